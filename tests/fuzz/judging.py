"""Judges what became of a batch: where each document ended up, in which order, and with which content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.message import Message, Property
from outbox_relay.emulators.servicebus.sections import DATA, sections
from relay.core.documents import SourceDocument
from relay.core.events import Reason, Rejected
from relay.core.results import Outcome
from relay.quarantine.record import record_of
from tests.fuzz import oracle

# What the broker holds, by session in the order of arrival, and the quarantine records by id.
Accepted = Mapping[str, Sequence[Message]]
Records = Mapping[str, Mapping[str, Any]]


def judge(
    stored: list[Any], outcome: Outcome, accepted: Accepted, records: Records, *, cloudevents: bool = False
) -> list[str]:
    """Check everything; returns the fate of each document."""
    fates = [oracle.fate(document) for document in stored]
    check_counts(outcome, fates)
    check_each(stored, fates, accepted, records)
    check_order_and_content(stored, fates, accepted, records, cloudevents=cloudevents)
    return fates


def check_counts(outcome: Outcome, fates: list[str]) -> None:
    """Every document is counted exactly once: what an earlier attempt has set aside, as superseded."""
    counted = Counter(fates)
    late = (Reason.MESSAGE_REFUSED, Reason.MESSAGE_TOO_LARGE)
    assert outcome.ignored == counted.pop(oracle.IGNORED, 0)
    assert outcome.unsent == 0
    found = Counter({reason: count for reason, count in outcome.quarantined.items() if reason not in late})
    found[oracle.EVENT] = outcome.published + outcome.already_published
    found[oracle.EVENT] += sum(outcome.quarantined[reason] for reason in late)
    assert found <= counted
    assert found.total() + outcome.superseded == counted.total()


def check_each(stored: list[Any], fates: list[str], accepted: Accepted, records: Records) -> None:
    """Exactly one of the three, seen where it ends up; what is set aside is set aside whole."""
    versions = Counter(
        (document["partitionKey"], document["id"])
        for document, each in zip(stored, fates, strict=True)
        if each == oracle.EVENT
    )
    held = {(key, message.message_id) for key, messages in accepted.items() for message in messages}
    kept = 0
    for document, each in zip(stored, fates, strict=True):
        record = None if document is None else records.get(shelved_as(document))
        if each == oracle.IGNORED:
            assert record is None
        elif each == oracle.EVENT:
            name = (document["partitionKey"], document["id"])
            assert name in held or record is not None
            # One id may come in several versions, of which one was accepted and another too large.
            assert not (name in held and record is not None) or versions[name] > 1
        else:
            assert record is not None
            assert record["reason"] == each
        if record is not None:
            # Two documents that differ in the order of their members alone share a record.
            assert oracle.as_text(record["document"], sort=True) == oracle.as_text(document, sort=True)
            kept += 1
    assert kept >= len(records)


def check_order_and_content(
    stored: list[Any], fates: list[str], accepted: Accepted, records: Records, *, cloudevents: bool
) -> None:
    """Each key's messages are its events in their order, each id once, each as stored."""
    wanted: dict[str, dict[str, Any]] = {}
    for document, each in zip(stored, fates, strict=True):
        if each == oracle.EVENT and shelved_as(document) not in records:
            wanted.setdefault(document["partitionKey"], {}).setdefault(document["id"], document)
    assert {key: list(ids) for key, ids in wanted.items()} == {
        key: [message.message_id for message in messages] for key, messages in accepted.items() if messages
    }
    for key, messages in accepted.items():
        for message, document in zip(messages, wanted.get(key, {}).values(), strict=True):
            check_message(message, document, cloudevents=cloudevents)


def check_message(message: Message, document: dict[str, Any], *, cloudevents: bool) -> None:
    """By the contract, property by property."""
    assert message.partition_key == document["partitionKey"]
    assert message.field(Property.SUBJECT) == document["data"]["action"]
    assert message.field(Property.CONTENT_TYPE) == "application/json"
    found = dict(message.application_properties)
    extensions = {name: found.pop(name) for name in list(found) if name.startswith("cloudEvents:")}
    assert found == oracle.properties(document)
    assert bool(extensions) == cloudevents
    if cloudevents:
        assert extensions["cloudEvents:id"] == document["id"]
        assert extensions["cloudEvents:type"] == document["data"]["action"]
        assert extensions["cloudEvents:partitionkey"] == document["partitionKey"]
    body = b"".join(
        codec.decode(message.bare, each.value)[0] for each in sections(message.bare) if each.code == DATA
    )
    assert oracle.as_text(oracle.read(body)) == oracle.as_text(document["data"])


def shelved_as(document: dict[str, Any]) -> str:
    """The id under which this document is set aside, whatever the reason."""
    identifier: str = record_of(Rejected(SourceDocument.plain(document), Reason.MESSAGE_REFUSED, ""), "fuzz")["id"]
    return identifier
