"""A user's document may have any members: also those that are called as the relay once called its own."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outbox_relay.changefeed.statements import Entry
from outbox_relay.operator.backends.cosmos.reader import CosmosOutbox
from outbox_relay.operator.backends.sql.reader import SqlOutbox
from relay.backends.cosmos.source import select
from relay.backends.sql.rows import of_row
from relay.backends.sql.rows import select as select_rows
from relay.config.settings import Settings
from relay.config.streams import read_streams
from relay.core.documents import SourceDocument
from relay.core.events import Event, Reason, Received, Rejected, read_event
from relay.core.holds import Holds
from relay.core.place import Place
from relay.large.content import Content
from relay.quarantine.record import Kept, record_of
from relay.routes import file
from relay.routes.selection import DEFAULT, Selection
from relay.servicebus import messages
from tests.fuzz.budget import trying
from tests.support.operators import relay_command
from tests.unit.relay.commands import ENVIRONMENT

OWN = ("_dataText", "_original", "_mapped", "problem", "_ulid", "_shard", "stored", "fields", "placed", "mapped")
"""Names that this or an earlier version gave what it knows of a document."""

FILES = {
    "nothing": "",
    "rules": '[[routes]]\nwhen = { "/data/note" = "n" }\nto = ["default"]',
    "properties": 'properties.note = "/data/note"',
    "fields": 'fields.action = "/act"\nproperties.note = "/note"',
}

ULID = (1_770_000_000_000).to_bytes(6, "big") + bytes(9) + b"\x07"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=3) | st.just('{"action":"X"}'),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*OWN, "id", "data", "action", "properties"]), inner, max_size=3)
    ),
    max_leaves=6,
)
extras = st.dictionaries(st.sampled_from(OWN), json_values, max_size=4)
an_earlier_version = {"id": "e0", "partitionKey": "other", "type": "x", "data": {"action": "B"}, "_ulid": 1}


@pytest.fixture(scope="module", params=list(FILES.values()), ids=list(FILES))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an app with each kind of relay.toml."""
    made = tmp_path_factory.mktemp("app")
    (made / "relay.toml").write_text(request.param)
    return made


def stream_of(environment: dict[str, str], folder: Path) -> Settings:
    (stream,) = read_streams(environment, app=folder)
    return stream


def stored(extra: Mapping[str, Any], within: Mapping[str, Any]) -> dict[str, Any]:
    """A document of Cosmos DB that is an event, with these members of its own."""
    data = {"action": "Made", "createdAt": "2026-02-09T11:37:00Z", "note": "n", **within}
    service = {"_ts": 1_700_000_000, "_lsn": 9, "_etag": '"e"', "_rid": "r"}
    return {"id": "e1", "partitionKey": "k", "type": "domainEvent", "act": "Made", "note": "n", "data": data} | {
        **extra,
        **service,
    }


def checked(received: Received, restore: Any, data: Any, fields: Any) -> None:
    """Select a document, store it in quarantine and judge it again: both are the same event."""
    (event,) = received.events
    message = messages.contract(None, fields)(event)
    assert (event.id, event.partition_key, event.action, message.subject) == ("e1", "k", "Made", "Made")
    assert json.loads(message.body) == data
    # A large event's content is the body of its message.
    assert json.loads(Content.of(message).body) == data
    assert message.application_properties.get("note") == ("n" if fields.properties else None)

    for reason in (Reason.SET_ASIDE, Reason.KEY_PARKED, Reason.MESSAGE_TOO_LARGE):
        rejected = Rejected.of(event, reason, "")
        record = json.loads(json.dumps(record_of(rejected, "i")))
        kept = Kept.of(record, record["document"])
        again = restore(kept)
        assert isinstance(again, Event), again
        assert messages.contract(None, fields)(again) == message
        assert again.document.place == event.document.place
        assert kept.source.place == event.document.place
        assert record_of(Rejected.of(again, reason, ""), "i")["id"] == record["id"]
        held = Holds({"k": event.document.place})
        assert held.parks(again)


@trying(60)
@given(extra=extras, within=extras)
@example(extra={"_original": an_earlier_version}, within={})
@example(extra={"_original": "no object", "_mapped": 5}, within={})
@example(extra={"_dataText": '{"action":"other"}'}, within={})
@example(extra={"_ulid": 7}, within={})
@example(extra={"_ulid": "01JD0000000000000000000009", "_shard": 0}, within={})
@example(extra={"_original": an_earlier_version, "_mapped": {"action": "B", "problem": "none"}}, within={})
@example(extra={}, within={"_original": 1, "problem": "p", "_dataText": "t"})
def test_a_document_with_our_names_is_published_kept_and_released_as_it_is(
    folder: Path, extra: dict[str, Any], within: dict[str, Any]
) -> None:
    outbox = CosmosOutbox(settings := stream_of(ENVIRONMENT, folder))
    document = stored(extra, within)
    before = json.dumps(document)

    def restore(kept: Kept) -> Event | Rejected:
        assert kept.stored == document
        return outbox.event_of(outbox.document_of(kept.stored, kept.place))

    received = select([document], settings.selection)

    checked(received, restore, document["data"], settings.selection.fields)
    assert json.dumps(document) == before


@trying(60)
@given(extra=st.dictionaries(st.sampled_from(OWN), json_values.map(json.dumps) | st.integers()), within=extras)
@example(extra={"_original": json.dumps(an_earlier_version), "_mapped": "{}"}, within={})
@example(extra={"_dataText": '{"action":"other"}', "_ts": 5, "_lsn": 5, "ttl": 1, "order": 3}, within={})
@example(extra={"_ulid": "01JD0000000000000000000009", "_shard": 4}, within={"_ulid": 5})
def test_a_row_with_our_names_is_published_kept_and_released_as_it_is(
    folder: Path, extra: dict[str, Any], within: dict[str, Any]
) -> None:
    environment = {"SQL": "postgresql://db", "SQL_FEED": "public.event", "SERVICEBUS": ENVIRONMENT["SERVICEBUS"]}
    feed = stream_of(environment, folder).feed
    assert feed is not None
    outbox, selection = SqlOutbox(feed), feed.selection
    data = {"action": "Made", "createdAt": "2026-02-09T11:37:00Z", "note": "n", **within}
    row = {"id": "e1", "partition_key": "k", "type": "domainEvent", "data": json.dumps(data), "act": "Made"}
    row |= {"note": "n", **extra}

    def restore(kept: Kept) -> Event | Rejected:
        assert kept.stored == row
        return outbox.event_of(outbox.document_of(kept.stored, kept.place))

    received = select_rows([Entry(ULID, row, {})], 3, selection)

    checked(received, restore, data, selection.fields)
    assert received.events[0].body == row["data"].encode()
    assert received.events[0].document.place.shard == 3


async def test_explain_shows_a_document_with_our_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = stored({"_original": "text", "_mapped": 5, "_dataText": "x"}, {})
    (tmp_path / "event.json").write_text(json.dumps(document))

    run = await relay_command(ENVIRONMENT, "explain", str(tmp_path / "event.json"), "--json")

    (stream,) = run.json["streams"]
    assert (stream["outcome"], json.loads(stream["message"]["body"])) == ("publish", document["data"])


# records of version 1


def record_before(document: dict[str, Any], **places: Any) -> dict[str, Any]:
    key = document.get("partitionKey", "(no partition key)")
    return {"id": "r", "type": "quarantinedEvent", "partitionKey": key, **places, "document": document}


BODY = '{"action": "Made", "n": 1.000000000000000000001}'
ROW_BEFORE = {
    "id": "e1",
    "partitionKey": "k",
    "type": "domainEvent",
    "data": json.loads(BODY),
    "sequence": 7,
    "_shard": 3,
    "_ulid": "01JD0000000000000000000009",
    "_dataText": BODY,
}


def test_a_document_in_a_record_of_version_1_is_the_one_that_was_stored() -> None:
    document = stored({}, {})
    mapped = {**document, "_original": document, "_mapped": {"action": "Made", "properties": {}}}
    with_our_names = stored({"_original": an_earlier_version, "_mapped": {}, "_ulid": "x", "_shard": 1}, {})

    for before in (document, mapped):
        kept = Kept.of(record_before(before, lsn=9), before)
        assert (kept.stored, kept.place, kept.source.place) == (document, None, Place(lsn=9))
    kept = Kept.of(record_before(with_our_names, lsn=9), with_our_names)
    assert (kept.stored, kept.place) == (with_our_names, None)


def test_a_row_in_a_record_of_version_1_is_the_row_with_its_place_and_its_text() -> None:
    columns = {"id": "e1", "key": "k", "payload": json.loads(BODY), "note": "n"}
    mapped = {**ROW_BEFORE, "_original": ROW_BEFORE, "_mapped": {"action": "Made", "properties": {"p": 1}}}
    by_columns = {**ROW_BEFORE, "_original": columns, "_mapped": {"action": "Made"}}
    place = Place(ulid=ROW_BEFORE["_ulid"], shard=3)

    for before in (ROW_BEFORE, mapped):
        kept = Kept.of(record_before(before, ulid=ROW_BEFORE["_ulid"]), before)
        assert kept.place == place
        assert kept.stored == {
            "id": "e1", "partition_key": "k", "type": "domainEvent", "data": BODY, "sequence": 7
        }  # fmt: skip
    kept = Kept.of(record_before(by_columns, ulid=ROW_BEFORE["_ulid"]), by_columns)
    assert (kept.stored, kept.place) == ({**columns, "payload": BODY}, place)


def test_json_within_a_column_of_a_record_of_version_1_is_mapped_again() -> None:
    data = {"action": "Made", "n": [{"a": 1}]}
    columns = {"id": "e1", "key": "k", "body": {"data": data}, "list": [{"a": 1}]}
    document = {**ROW_BEFORE, "data": data, "_original": columns, "_mapped": {"action": "Made"}}
    rules = file.parse(tomllib.loads('fields = { key = "/key", data = "/body/data" }\nproperties.p = "/list/0/a"'))
    selection = Selection(("domainEvent",), fields=rules.sources[DEFAULT].fields)
    kept = Kept.of(record_before(document, ulid=ROW_BEFORE["_ulid"]), document)
    assert kept.place is not None

    event = read_event(of_row(kept.stored, kept.place, selection))

    assert isinstance(event, Event)
    assert json.loads(messages.contract(None, selection.fields)(event).body) == data
    assert event.document.mapped is not None
    assert event.document.mapped.properties == {"p": 1}


def test_the_place_of_a_document_is_not_a_column_of_its_row() -> None:
    row = SourceDocument({"_lsn": 5, "order": 1}, {"order": 1}, Place(ulid="01", shard=0))

    assert (row.place, row.lsn) == (Place(ulid="01", shard=0), None)
    assert Selection(("a",)).takes(SourceDocument.plain({"type": "a", "_original": {"type": "b"}}))
