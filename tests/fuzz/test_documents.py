"""Whatever a batch of changes holds: each document is published, quarantined or ignored, and nothing raises."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest
from azure.servicebus.aio import ServiceBusClient
from hypothesis import given
from hypothesis import strategies as st

from local.functions.documents import from_text
from local.servicebus import codec
from local.servicebus.message import DATA, Message, Property, sections
from relay import messages
from relay.errors import PublishError
from relay.events import Reason
from relay.ledger import AcceptedLedger
from relay.pipeline import Outcome, Relay
from relay.publisher import Publisher
from relay.quarantine import Quarantine, Quarantined, record_of
from relay.senders import SenderPool
from tests.fuzz import oracle
from tests.fuzz.budget import DOCUMENTS, tried, trying
from tests.fuzz.documents import MOST_DOCUMENTS, batches
from tests.fuzz.service import FAULTS, Client, Shelf, Topic


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    """Limits small enough to be met, and faults and refusals in some of the runs."""
    limit = draw(st.sampled_from([262_144, 262_144, 1500, 4000]))
    faults = draw(st.one_of(st.just([]), st.lists(st.sampled_from(FAULTS), max_size=8)))
    refused = draw(st.one_of(st.just([]), st.lists(st.integers(0, 199).map(str), max_size=3)))
    return Topic(limit, faults, frozenset(refused))


@pytest.mark.timeout(60 + DOCUMENTS // 50)
# The documents of a run number half of the most a batch may have, about.
@trying(2 * DOCUMENTS // MOST_DOCUMENTS + DOCUMENTS // 500)
@given(text=batches(), topic=topics(), senders=st.integers(1, 4), formatted=st.booleans())
def test_each_document_is_published_or_quarantined_or_ignored_as_the_contract_says(
    runner: asyncio.Runner, text: str, topic: Topic, senders: int, formatted: bool
) -> None:
    shelf = Shelf()
    pool = SenderPool(cast(ServiceBusClient, Client(topic)), "t", senders)
    encode = messages.cloudevents("/fuzz") if formatted else messages.plain
    publisher = Publisher(pool, encode, AcceptedLedger(), send_timeout_s=30)
    relay = Relay(publisher, cast(Quarantine, shelf), "domainEvent")
    stored = oracle.read(text)

    outcome = runner.run(handled(relay, topic, text))

    fates = [oracle.fate(document) for document in stored]
    check_counts(outcome, fates)
    check_each(stored, fates, topic, shelf)
    check_order_and_content(stored, fates, topic, shelf, cloudevents=formatted)
    assert topic.too_large == 0
    tried["documents through the relay"] += len(stored)
    tried.update(f"documents {named(each)}" for each in fates)


async def handled(relay: Relay, topic: Topic, text: str) -> Outcome:
    """The outcome, after as many attempts as there were faults and one."""
    while True:
        faulty = topic.faulty
        try:
            outcome = await relay.handle(from_text(text), "fuzz")
        except PublishError:
            assert topic.faulty > faulty
        else:
            await relay.close()
            return outcome


def check_counts(outcome: Outcome, fates: list[str]) -> None:
    """Every document is counted exactly once."""
    counted = Counter(fates)
    late = (Reason.MESSAGE_REFUSED, Reason.MESSAGE_TOO_LARGE)
    assert outcome.ignored == counted.pop(oracle.IGNORED, 0)
    sent = outcome.published + outcome.remembered + sum(outcome.quarantined[reason] for reason in late)
    assert sent == counted.pop(oracle.EVENT, 0)
    assert {reason: count for reason, count in outcome.quarantined.items() if reason not in late} == dict(counted)
    assert outcome.unsent == 0


def check_each(stored: list[Any], fates: list[str], topic: Topic, shelf: Shelf) -> None:
    """Exactly one of the three, seen where it ends up; what is set aside is set aside whole."""
    versions = Counter(
        (document["partitionKey"], document["id"])
        for document, each in zip(stored, fates, strict=True)
        if each == oracle.EVENT
    )
    kept = 0
    for document, each in zip(stored, fates, strict=True):
        record = None if document is None else shelf.records.get(shelved_as(document))
        if each == oracle.IGNORED:
            assert record is None
        elif each == oracle.EVENT:
            name = (document["partitionKey"], document["id"])
            assert topic.holds(*name) or record is not None
            # One id may come in several versions, of which one was accepted and another too large.
            assert not (topic.holds(*name) and record is not None) or versions[name] > 1
        else:
            assert record is not None
            assert record["reason"] == each
        if record is not None:
            assert oracle.told(record["document"]) == oracle.told(document)
            kept += 1
    assert kept >= len(shelf.records)


def check_order_and_content(
    stored: list[Any], fates: list[str], topic: Topic, shelf: Shelf, *, cloudevents: bool
) -> None:
    """Each key's messages are its events in their order, each id once, each as stored."""
    wanted: dict[str, dict[str, Any]] = {}
    for document, each in zip(stored, fates, strict=True):
        if each == oracle.EVENT and shelved_as(document) not in shelf.records:
            wanted.setdefault(document["partitionKey"], {}).setdefault(document["id"], document)
    assert {key: list(ids) for key, ids in wanted.items()} == {
        key: [message.message_id for message in accepted] for key, accepted in topic.accepted.items()
    }
    for key, accepted in topic.accepted.items():
        for message, document in zip(accepted, wanted[key].values(), strict=True):
            check_message(message, document, cloudevents=cloudevents)


def check_message(message: Message, document: dict[str, Any], *, cloudevents: bool) -> None:
    """By the contract, property by property."""
    assert message.partition_key == document["partitionKey"]
    # The SDK leaves an empty text out of the message: nothing is lost to a receiver, who gets None for both.
    assert message.field(Property.SUBJECT) == document["data"]["action"]
    assert message.field(Property.CONTENT_TYPE) == "application/json"
    found = {name: value for name, value in message.application_properties.items()}
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
    assert oracle.told(oracle.read(body)) == oracle.told(document["data"])


def shelved_as(document: dict[str, Any]) -> str:
    """The id under which this document is set aside, whatever the reason."""
    identifier: str = record_of(Quarantined(document, Reason.MESSAGE_REFUSED, ""), "fuzz", 0)["id"]
    return identifier


def named(each: str) -> str:
    """What to count a fate as."""
    return each if each in (oracle.IGNORED, oracle.EVENT) else "malformed"
