"""`[fields]`, `[properties]` and `[message]` of relay.toml, for documents of another shape."""

from __future__ import annotations

import hashlib
import json
import tomllib
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outbox_relay.changefeed import START, Entry
from relay.backends.cosmos.source import event_of, select
from relay.backends.sql import rows
from relay.core import jsontext
from relay.core.documents import Mapped
from relay.core.events import MAX_PROPERTIES_BYTES, Event, Reason, Rejected, read_event
from relay.quarantine.record import Kept, record_of
from relay.routes import file
from relay.routes.mapping import PLAIN, Fields, Long, Moment, joined
from relay.routes.selection import DEFAULT, Selection
from relay.servicebus import messages
from tests.fuzz.budget import trying
from tests.support.sql_outbox import event_of as event_of_row

STORED = {
    "id": "1",
    "specversion": "1.0",
    "source": "/shop",
    "type": "com.shop.placed",
    "partitionkey": "order-7",
    "time": "2026-02-09T11:37:00Z",
    "data": {"amount": 12.5, "count": 3, "paid": True, "tenant": "a", "due": "2026-02-10T00:00:00+01:00"},
    "_ts": 1_700_000_000,
    "_lsn": 9,
}


def source(text: str) -> file.Source:
    """The only outbox of a relay.toml."""
    return file.parse(tomllib.loads(text)).sources[DEFAULT]


def fields(text: str) -> Fields:
    return source(text).fields


def cloudevent(text: str = "", **changes: Any) -> Event | Rejected:
    return event_of(fields(f'layout = "cloudevents"\n{text}').document({**STORED, **changes}))


def mapped(event: Event) -> Mapped:
    assert event.document.mapped is not None
    return event.document.mapped


def restored(rejected: Rejected) -> Kept:
    """Return the record of a rejected document, read again."""
    record = json.loads(json.dumps(record_of(rejected, "i")))
    return Kept.of(record, record["document"])


def accepted(found: Event | Rejected) -> Event:
    assert isinstance(found, Event), found
    return found


_NAMES = st.text(min_size=1, max_size=4).filter(lambda name: not name.isdecimal() and name[0] != "_")


@trying(200)
@given(paths=st.lists(st.lists(_NAMES, min_size=2, max_size=4), min_size=7, max_size=7), data=st.data())
def test_an_event_is_the_same_wherever_its_fields_are_stored(paths: list[list[str]], data: st.DataObject) -> None:
    # A first name of its own for each, so that none is within another.
    texts = ("id", "key", "type", "action", "trace")
    at = {name: [name, *path] for name, path in zip((*texts, "data", "time"), paths, strict=True)}
    values: dict[str, Any] = {name: data.draw(st.text("abcé😀", min_size=1, max_size=9)) for name in texts}
    values |= {"data": {"total": 7}, "time": "2026-02-09T11:37:00Z"}
    stored: dict[str, Any] = {"_ts": 1_700_000_000, "_lsn": 3, "ttl": 60}
    for name, path in at.items():
        holder = stored
        for each in path[:-1]:
            holder = holder.setdefault(each, {})
        holder[path[-1]] = values[name]
    escaped = {each: each.replace("~", "~0").replace("/", "~1") for path in at.values() for each in path}
    pointers = {name: "".join(f"/{escaped[each]}" for each in path) for name, path in at.items()}
    found = file.parse({"fields": pointers}).sources[DEFAULT].fields

    event = accepted(event_of(found.document(stored)))

    assert (event.id, event.partition_key, event.type) == (values["id"], values["key"], values["type"])
    assert (event.action, event.data, event.traceparent) == (values["action"], {"total": 7}, values["trace"])
    assert (event.committed_at, event.expires_at) == (1_700_000_000, 1_700_000_060)
    assert found.type_of(stored) == values["type"]


def test_what_is_not_configured_is_the_document_itself() -> None:
    assert source("") == file.Source(DEFAULT)
    assert fields('layout = "article"') is PLAIN
    assert fields('types = ["a"]') is PLAIN
    assert PLAIN.document(STORED) == (STORED, STORED, None, None, None, None, ())
    assert (fields("properties.p = '/n'").names_fields, fields("fields.id = '/n'").names_fields) == (False, True)


def test_an_id_that_is_unique_within_a_source_is_joined_with_it() -> None:
    assert accepted(cloudevent()).id == "/shop 1"
    assert accepted(cloudevent(id="x" * 122)).id == "/shop " + "x" * 122


@pytest.mark.parametrize(
    ("source", "identifier", "made"),
    [
        ("A 1", "2", "A%201&2"),
        ("A", "1 2", "A&1%202"),
        ("50%", "a&b", "50% a&b"),
        ("50% ", "a&b", "50%25%20&a%26b"),
    ],
)
def test_an_id_of_places_with_spaces_is_no_other_ones(source: str, identifier: str, made: str) -> None:
    assert accepted(cloudevent(source=source, id=identifier)).id == made


@trying(300)
@given(st.text("ab %&2056", min_size=3, max_size=9))
def test_different_parts_are_joined_to_different_ids(text: str) -> None:
    # What is cut from one text at different places is what is most alike, with the separator or without it.
    cut = [(text[:place], text[place:]) for place in range(1, len(text))]
    cut += [(text[:place], text[place + 1 :]) for place in range(1, len(text) - 1)]
    different = {parts: joined(parts) for parts in cut}
    different |= {parts: joined(parts) for parts in [(text, "a"), ("a", text)]}

    assert len(set(different.values())) == len(different)
    assert all(" " in "".join(parts) or found == " ".join(parts) for parts, found in different.items())


@pytest.mark.parametrize("identifier", ["x" * 123, "😀" * 62])
def test_a_joined_id_is_hashed_where_service_bus_would_refuse_it(identifier: str) -> None:
    digest = hashlib.sha256(f"/shop {identifier}".encode()).hexdigest()

    assert accepted(cloudevent(id=identifier)).id == digest


@pytest.mark.parametrize(("identifier", "reason"), [("x" * 129, Reason.ID_TOO_LONG), (7, Reason.ID_NOT_STRING)])
def test_an_id_that_stands_in_one_place_is_not_hashed(identifier: Any, reason: Reason) -> None:
    found = cloudevent("fields.id = '/event'", event=identifier)

    assert isinstance(found, Rejected)
    assert found.reason is reason


def test_a_cloudevent_is_recognised_by_its_version_and_not_by_a_type() -> None:
    found = source('layout = "cloudevents"')
    selection = Selection(found.types or (), found.events, fields=found.fields)

    received = select([STORED, {**STORED, "specversion": 1}, {"id": "contact", "type": "contact"}], selection)

    assert [event.action for event in received.events] == ["com.shop.placed"]
    assert (received.rejected, received.ignored) == ([], 2)


def test_events_of_one_commit_are_ordered_by_the_mapped_field() -> None:
    found = source('layout = "cloudevents"\nfields.order = "/data/at"\nfields.sequence = "/data/at"')
    selection = Selection((), found.events, fields=found.fields)
    commit = [{**STORED, "id": str(at), "data": {"at": at}} for at in (3, 1, 2)]

    received = select(commit, selection)

    assert [(event.id, event.sequence) for event in received.events] == [
        ("/shop 1", 1),
        ("/shop 2", 2),
        ("/shop 3", 3),
    ]


def test_an_outbox_has_the_rules_of_the_top_and_its_own_unless_it_has_another_layout() -> None:
    text = """
        types = ["order"]
        [fields]
        key = "/customer"
        [properties]
        tenant = "/tenant"
        [outboxes.shop]
        container = "shop"
        types = []
        fields.action = "/what"
        [outboxes.billing]
        container = "billing"
        layout = "debezium"
    """
    found = file.parse(tomllib.loads(text)).sources

    shop, billing = found["shop"], found["billing"]
    assert (shop.types, [each.text for each in shop.fields.of_document("key")]) == ((), ["/customer"])
    assert [each.text for each in shop.fields.of_document("action")] == ["/what"]
    assert [each.name for each in shop.fields.properties] == ["tenant"]
    assert [each.text for each in billing.fields.of_columns("key")] == ["/aggregateid"]
    assert billing.fields.properties == ()


def test_properties_have_the_types_that_relay_toml_names() -> None:
    event = accepted(
        cloudevent(
            """
            [properties]
            nothing = "/data/nothing"
            tenant = "/data/tenant"
            paid = "/data/paid"
            amount = "/data/amount"
            count = "/data/count"
            price = { from = "/data/count", as = "double" }
            text = { from = "/data/amount", as = "string" }
            due = { from = "/data/due", as = "date" }
            """
        )
    )

    found = mapped(event).properties
    assert found == {
        "tenant": "a", "paid": True, "amount": 12.5, "count": 3, "price": 3.0, "text": "12.5",
        "due": 1_770_678_000_000,
    }  # fmt: skip
    assert [type(found[name]) for name in ("paid", "count", "price", "due")] == [bool, Long, float, Moment]


@pytest.mark.parametrize(
    ("rule", "changes", "detail"),
    [
        ("", {"source": 7}, "fields.id: there is no text at /source and /id"),
        ("fields.id = '/event'", {}, "fields.id: there is nothing at /event"),
        ("fields.key = '/secret/key'", {}, "fields.key: there is nothing at /secret/key"),
        ("fields.key = '/secret/key'", {"source": 7}, "fields.id: there is no text at /source and /id"),
        ("fields.type = '/time'", {"time": 7}, "fields.type: /time is a number, not a string"),
        ("", {"type": ["secret"]}, "fields.type: /type is an array, not a string"),
        ("fields.action = '/data'", {}, "fields.action: /data is an object, not a string"),
        ("", {"time": "secret"}, "fields.time: /time is no time in RFC 3339 with its zone"),
        ("properties.p = '/data'", {}, "properties.p: /data is an object, which no property can have"),
        ("properties.p = '/n'", {"n": 2**63}, "properties.p: /n is a number of more than 64 bits"),
        (
            "properties.p = {from = '/n', as = 'long'}",
            {"n": "secret"},
            "properties.p: /n is a string, not a",
        ),
        (
            "properties.p = {from = '/n', as = 'long'}",
            {"n": 1.5},
            "properties.p: /n is a number, not a whole",
        ),
        (
            "properties.p = {from = '/n', as = 'double'}",
            {"n": "nan"},
            "properties.p: /n is a string, not a",
        ),
        (
            "properties.p = {from = '/n', as = 'double'}",
            {"n": 10**400},
            "properties.p: /n is a number, not a n",
        ),
        ("properties.p = {from = '/n', as = 'boolean'}", {"n": 1}, "properties.p: /n is a number, not a boolean"),
        (
            "properties.p = {from = '/n', as = 'date'}",
            {"n": "2026-02-09"},
            "properties.p: /n is no time in RFC",
        ),
        ("message.time_to_live = '/n'", {"n": "P1M"}, "message.time_to_live: /n is a string, not a duration"),
        ("message.time_to_live = '/n'", {"n": 0}, "message.time_to_live: /n is no duration from 1 ms to 49 days"),
        ("message.time_to_live = '/n'", {"n": "P50D"}, "message.time_to_live: /n is no duration from 1 ms to 49"),
        ("message.subject = '/n'", {"n": {}}, "message.subject: /n is an object, not a string"),
    ],
)
def test_what_cannot_be_mapped_is_rejected_with_field_and_rule_and_without_its_value(
    rule: str, changes: dict[str, Any], detail: str
) -> None:
    found = cloudevent(rule, **changes)

    assert isinstance(found, Rejected)
    assert found.reason is Reason.NOT_MAPPED
    assert found.detail.startswith(detail)
    assert "secret" not in found.detail.replace("/secret/key", "")


@pytest.mark.parametrize(
    ("rule", "value", "made"),
    [
        *(("properties.p = {from = '/n', as = 'long'}", number, number) for number in (2**63 - 1, -(2**63), 7)),
        ("properties.p = {from = '/n', as = 'long'}", "-9223372036854775808", -(2**63)),
        ("properties.p = {from = '/n', as = 'long'}", 5.0, 5),
        ("properties.p = {from = '/n', as = 'long'}", True, None),
        ("properties.p = {from = '/n', as = 'long'}", "9223372036854775808", None),
        ("properties.p = {from = '/n', as = 'long'}", -(2**63) - 1, None),
        ("properties.p = {from = '/n', as = 'double'}", "1e3", 1000.0),
        ("properties.p = {from = '/n', as = 'double'}", True, None),
        ("properties.p = {from = '/n', as = 'double'}", [], None),
        ("properties.p = {from = '/n', as = 'double'}", "seven", None),
        ("properties.p = {from = '/n', as = 'double'}", "-01.50E-1", -0.15),
        *(
            ("properties.p = {from = '/n', as = 'double'}", text, None)
            for text in ("1_000", " 12 ", "١٢", "+1", ".5", "1.", "0x1p3", "inf", "nan", "1e400", "")
        ),
        ("properties.p = {from = '/n', as = 'date'}", "1970-01-01t00:00:00z", 0),
        ("properties.p = {from = '/n', as = 'date'}", "1970-01-01 00:00:00Z", 0),
        ("properties.p = {from = '/n', as = 'date'}", "1972-07-01T01:59:60+02:00", 78796800000),
        *(
            ("properties.p = {from = '/n', as = 'date'}", text, None)
            for text in (
                "2026-W07-1T00:00:00Z",
                "2026-02-09T11Z",
                "2026-02-09T11:00Z",
                "2026-02-09T11:00:00+05:30:15",
                "2026-02-09T11:00:00,5Z",
                "20260209T110000Z",
                "2026-02-09T110000+0000",
                "2026-02-09T24:00:00Z",
                "2026-02-09T11:00:60Z",
                "2026-02-30T11:00:00Z",
                "0000-01-01T00:00:00Z",
                "2026-02-09T11:00:00Z ",
                "2026-02-09T11:00:00+24:00",
                "٢٠٢٦-02-09T11:00:00Z",
            )
        ),
        ("message.time_to_live = '/n'", " 600 ", None),
        ("message.time_to_live = '/n'", "٦٠٠", None),
        ("properties.p = {from = '/n', as = 'boolean'}", "true", True),
        ("properties.p = {from = '/n', as = 'boolean'}", "false", False),
        ("properties.p = {from = '/n', as = 'boolean'}", False, False),
        ("properties.p = {from = '/n', as = 'boolean'}", "True", None),
        ("properties.p = {from = '/n', as = 'string'}", True, "true"),
        ("properties.p = {from = '/n', as = 'string'}", 1.5, "1.5"),
        ("properties.p = {from = '/n', as = 'date'}", "1970-01-01T00:00:00.0019+00:00", 1),
        ("properties.p = {from = '/n', as = 'date'}", "1969-12-31T23:59:59.9999Z", -1),
        ("properties.p = {from = '/n', as = 'date'}", "2026-02-09T11:37:00", None),
        ("properties.p = '/n'", 2**63 - 1, 2**63 - 1),
        ("message.time_to_live = '/n'", 4_294_967.295, 2**32 - 1),
        ("message.time_to_live = '/n'", 4_294_967.296, None),
        ("message.time_to_live = '/n'", 0.001, 1),
        ("message.time_to_live = '/n'", "PT1M", 60_000),
        ("message.time_to_live = '/n'", True, None),
        ("message.time_to_live = '/n'", 10**400, None),
        ("message.correlation_id = '/n'", 7, "7"),
    ],
)
def test_a_value_becomes_one_of_the_type_or_the_event_is_set_aside(rule: str, value: Any, made: Any) -> None:
    found = cloudevent(rule, n=value)

    if made is None:
        assert isinstance(found, Rejected)
        assert found.reason is Reason.NOT_MAPPED
    else:
        made_of = mapped(accepted(found))
        (result,) = (made_of.properties or made_of.message).values()
        assert (result, isinstance(result, bool)) == (made, isinstance(made, bool))


def test_new_properties_count_and_have_no_half_of_a_pair() -> None:
    rule = "properties.note = '/note'\nmessage.subject = '/subject'"
    half = MAX_PROPERTIES_BYTES // 2

    assert isinstance(cloudevent(rule, note="x" * half), Event)
    large = cloudevent(rule, note="x" * half, subject="y" * half)
    lone = cloudevent(rule, note="\ud800")

    assert isinstance(large, Rejected)
    assert large.reason is Reason.PROPERTIES_TOO_LARGE
    assert "properties.note 7504, message.subject 7500" in large.detail
    assert isinstance(lone, Rejected)
    assert (lone.reason, lone.detail[:15]) == (Reason.PROPERTY_NOT_UNICODE, "properties.note")


def test_data_that_is_json_text_is_sent_as_that_text() -> None:
    text = ' {"total": 1.000000000000000000001}'

    event = accepted(cloudevent(data=text))

    assert (event.data, event.body) == ({"total": 1.0}, text.encode())


@pytest.mark.parametrize("place", ["data", "body/payload"])
def test_what_is_not_named_is_within_data_that_is_json_text(place: str) -> None:
    text = '{"action": "Made", "createdAt": "2026-02-09T11:37:00Z", "total": 1.000000000000000000001, "n": "t"}'
    found = source(
        f"fields.data = '/{place}'\nproperties.total = '/{place}/n'\nevents = {{ '/{place}/n' = ['t'] }}"
    )
    stored: Any = text
    for name in reversed(place.split("/")):
        stored = {name: stored}
    stored |= {"id": "1", "partitionKey": "k", "type": "domainEvent"}

    (event,) = select([stored], Selection(("domainEvent",), found.events, fields=found.fields)).events

    assert (event.action, event.body, mapped(event).created_at) == ("Made", text.encode(), "2026-02-09T11:37:00Z")
    assert mapped(event).properties == {"total": "t"}
    missing = event_of(fields("properties.p = '/n'").document({**stored, "data": "{no JSON"}))
    assert str(missing) == "not-mapped: fields.action: there is nothing at /data/action"


@pytest.mark.parametrize(("data", "place"), [("/data", "/data/kind"), ("/body/data", "/body/data/of/kind")])
def test_the_type_may_be_within_data_that_is_json_text(data: str, place: str) -> None:
    found = source(f"fields.data = '{data}'\nfields.type = '{place}'\nfields.action = '{place}'")
    selection = Selection(("placed",), fields=found.fields)

    def stored(kind: str) -> dict[str, Any]:
        names = place.split("/")[1:]
        depth = data.count("/")
        value: Any = kind
        for name in reversed(names[depth:]):
            value = {name: value}
        value = json.dumps(value)
        for name in reversed(names[:depth]):
            value = {name: value}
        return {"id": kind, "partitionKey": "k", **value}

    received = select([stored("placed"), stored("paid"), {"id": "3", "data": "placed"}], selection)

    assert ([each.id for each in received.events], received.ignored) == (["placed"], 2)


def test_a_key_within_text_is_none_as_cosmos_db_knows_no_such_partition_key() -> None:
    rules = fields("fields.key = '/data/customer'")
    stored = {"id": "1", "type": "domainEvent", "data": {"action": "Made", "customer": "c"}}

    event = accepted(event_of(rules.document(stored)))
    missing = event_of(rules.document({**stored, "data": json.dumps(stored["data"])}))

    assert event.partition_key == "c"
    assert str(missing) == "not-mapped: fields.key: there is nothing at /data/customer"


def row(text: str, rules: str, **columns: Any) -> Event | Rejected:
    """The event of a row of an SQL outbox."""
    found = source(f"types = []\n{rules}")
    stored = {"id": UUID(int=7).bytes, "customer": 7, "kind": "placed", "payload": text, **columns}
    entry = Entry(START, stored, {})
    return event_of_row(entry, 0, Selection((), fields=found.fields))


def test_documents_that_the_rules_do_not_take_are_counted() -> None:
    selection = Selection(("domainEvent",), fields=fields("properties.p = '/n'"))
    other = {**STORED, "type": "contact"}

    received = select([{**STORED, "type": "domainEvent"}, other, None, other], selection)

    assert (received.documents, received.ignored) == (4, 3)


COLUMNS = 'fields = { key = "/customer", type = "/kind", action = "/kind", data = "/payload/data" }'


def test_the_columns_of_a_row_are_fields_and_data_within_json_is_sent_as_its_text() -> None:
    text = '{"data": 1, "b": {"data": 2}, "data": {"n": 1.000000000000000000001, "ü": "\\ud800"}  }'

    rules = COLUMNS + "\nproperties.at = {from = '/at', as = 'date'}"
    event = accepted(row(text, rules, at=datetime(2026, 2, 9)))

    assert (event.id, event.partition_key, event.type) == (str(UUID(int=7)), "7", "placed")
    assert event.body == b'{"n": 1.000000000000000000001, "\xc3\xbc": "\\ud800"}'
    assert mapped(event).properties == {"at": 1_770_595_200_000}


@pytest.mark.parametrize("placed", [b"\x01" * 16, START])
def test_a_row_that_is_gone_has_the_id_of_the_column_that_relay_toml_names(placed: bytes) -> None:
    selection = Selection((), fields=fields('types = []\nlayout = "debezium"\nfields.id = "/event_id"'))
    entry = Entry(placed, None, {"event_id": UUID(int=7).bytes, "id": 3, "day": 1})

    (gone,) = rows.select([entry], 0, selection).rejected

    assert (gone.id, gone.reason) == (str(UUID(int=7)), Reason.PARTITION_KEY_MISSING)
    # Its row is looked for with all columns of its primary key.
    assert gone.document.stored == {"event_id": str(UUID(int=7)), "id": "3", "day": "1"}


def test_a_row_that_cannot_be_read_has_the_id_of_the_column_that_relay_toml_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    selection = Selection((), fields=fields('types = []\nlayout = "debezium"\nfields.id = "/event_id"'))
    monkeypatch.setattr(rows, "_by_columns", fail)
    row = {"event_id": "e1", "id": "3", "aggregateid": "k", "type": "t", "payload": "{}"}

    (unreadable,) = rows.select([Entry(START, row, {})], 0, selection).rejected

    assert (unreadable.id, unreadable.partition_key) == ("e1", "k")
    assert unreadable.detail.startswith("the row cannot be read: RuntimeError")


def test_a_place_within_an_array_that_a_column_has_as_text_is_looked_up() -> None:
    rules = COLUMNS + "\nproperties.p = '/list/1'"
    deep = "[" * 700 + "]" * 700

    found = [
        mapped(accepted(row('{"data": {}}', rules, list=text))).properties
        for text in ('[1, "x"]', "  [1, 7]", f'[{deep}, "x"]', "[no JSON")
    ]

    assert found == [{"p": "x"}, {"p": 7}, {}, {}]


@pytest.mark.parametrize(("place", "count"), [("/kind", 0), ("/payload/kind", 0), (None, 1)])
def test_a_row_without_the_type_that_relay_toml_names_is_no_event(place: str | None, count: int) -> None:
    named = f', type = "{place}"' if place else ""
    rules = f'fields = {{ key = "/customer", action = "/action", data = "/payload"{named} }}'
    stored = {"id": "1", "customer": "a", "action": "Made", "payload": "{}"}

    received = rows.select([Entry(START, stored, {})], 0, Selection(("domainEvent",), fields=fields(rules)))

    assert (len(received.events), received.ignored) == (count, 1 - count)


def test_the_action_of_a_row_is_in_a_column_or_within_its_data() -> None:
    rules = 'fields = { key = "/customer", type = "/kind", data = "/payload" }'

    assert accepted(row('{"action": "Placed"}', rules)).action == "Placed"
    assert accepted(row('{"action": "Placed"}', rules, action="Paid")).action == "Paid"
    missing = row("{}", rules)
    assert isinstance(missing, Rejected)
    assert missing.detail == "fields.action: there is nothing at /action or /payload/action"


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=4)),
    lambda each: st.one_of(st.lists(each, max_size=3), st.dictionaries(st.text(max_size=3), each, max_size=3)),
    max_leaves=8,
)


@trying(200)
@given(
    st.dictionaries(st.text(max_size=3), JSON, min_size=1, max_size=4), st.sampled_from([None, 0, 2]), st.data()
)
def test_the_text_of_any_value_is_found_in_json_text(
    content: dict[str, Any], indent: int | None, data: st.DataObject
) -> None:
    names, value = [], content
    while isinstance(value, dict) and value:
        names.append(data.draw(st.sampled_from(sorted(value))))
        value = value[names[-1]]
    text = json.dumps(content, indent=indent)

    found = jsontext.member(text, names)

    assert found is not None
    assert json.loads(found) == value
    assert found == found.strip()
    assert jsontext.member(text, [*names, "x"]) is None


@pytest.mark.parametrize("rules", ["", "properties.n = '/sequence'"])
@pytest.mark.parametrize(
    ("wanted", "count"), [("'12.50'", 1), ("12.5", 1), ("{ prefix = '12' }", 1), ("'12.5'", 0)]
)
def test_rules_see_all_digits_of_a_sequence_in_a_column_of_decimals(rules: str, wanted: str, count: int) -> None:
    found = source(f"{rules}\nevents = {{ '/sequence' = {wanted} }}")
    stored = {"id": "1", "partition_key": "k", "data": '{"action": "Made"}', "sequence": Decimal("12.50")}
    selection = Selection(("domainEvent",), found.events, fields=found.fields)

    events = rows.select([Entry(START, stored, {})], 0, selection).events

    assert len(events) == count
    assert [mapped(each).properties for each in events if rules] == [{"n": "12.50"}] * bool(count and rules)


def test_a_row_in_quarantine_is_mapped_again_with_its_text() -> None:
    wrong = row('{"data": {"n": 1.000000000000000000001}}', f"{COLUMNS}\nproperties.p = '/payload/data'")
    assert isinstance(wrong, Rejected)
    kept = restored(wrong)
    right = Selection((), fields=fields(f"types = []\n{COLUMNS}"))
    assert kept.place is not None

    document = rows.of_row(kept.stored, kept.place, right)

    event = accepted(read_event(document))
    assert (event.id, event.body) == (str(UUID(int=7)), b'{"n": 1.000000000000000000001}')
    assert document.place == wrong.document.place


def test_a_document_in_quarantine_is_mapped_again_as_relay_toml_says_now() -> None:
    wrong = cloudevent("properties.p = '/data'")
    assert isinstance(wrong, Rejected)
    kept = restored(wrong)
    right = Selection((), fields=fields('layout = "cloudevents"\nproperties.p = "/data/tenant"'))

    event = accepted(event_of(right.fields.document(kept.stored)))
    assert (event.id, mapped(event).properties) == ("/shop 1", {"p": "a"})
    # And as it was, once nothing is mapped any more.
    assert kept.stored == STORED


FILES = (
    "",
    'fields.action = "/nothing"',
    'fields = { action = "/kind", key = "/customer" }',
    'layout = "debezium"',
    'properties.note = "/data/note"',
    'fields.data = "/payload"\nproperties.note = "/payload/note"',
    'fields.id = ["/kind", "/id"]\nmessage.subject = "/customer"',
)

VALUES = st.sampled_from([None, "a", "b ", '{"action": "Made", "note": "n"}', "{}", "[1]", 7, 1.5, True])
ROWS = st.fixed_dictionaries(
    {"id": st.just("e1"), "partition_key": VALUES, "data": VALUES},
    optional=dict.fromkeys(("kind", "customer", "payload", "aggregateid", "action", "sequence"), VALUES),
)


def selection(text: str) -> Selection:
    return Selection((), fields=fields(f"types = []\n{text}"))


@trying(200)
@given(stored=ROWS, before=st.sampled_from(FILES), now=st.sampled_from(FILES))
@example(stored={"id": "e1", "partition_key": "k", "data": '{"action": "Made"}'}, before=FILES[1], now="")
@example(stored={"id": "e1", "partition_key": "k", "data": '{"action": "Made"}'}, before="", now=FILES[1])
def test_a_row_in_quarantine_is_judged_as_it_would_be_today(stored: dict[str, Any], before: str, now: str) -> None:
    found = event_of_row(Entry(START, stored, {}), 0, selection(before))
    kept = restored(Rejected.of(found, Reason.SET_ASIDE, "") if isinstance(found, Event) else found)
    assert kept.place is not None

    again = read_event(rows.of_row(kept.stored, kept.place, selection(now)))

    today = event_of_row(Entry(START, stored, {}), 0, selection(now))
    if isinstance(again, Event) and isinstance(today, Event):
        contract = messages.contract(None, selection(now).fields)
        assert contract(again) == contract(today)
    else:
        assert str(again) == str(today)


@trying(200)
@given(
    stored=ROWS.map(lambda each: {**each, "partitionKey": each["partition_key"], "type": "t"}),
    before=st.sampled_from(FILES),
    now=st.sampled_from(FILES),
)
def test_a_document_in_quarantine_is_judged_as_it_would_be_today(
    stored: dict[str, Any], before: str, now: str
) -> None:
    found = event_of(selection(before).fields.document(stored))
    kept = restored(Rejected.of(found, Reason.SET_ASIDE, "") if isinstance(found, Event) else found)

    again = event_of(selection(now).fields.document(kept.stored))

    today = event_of(selection(now).fields.document(stored))
    assert again == today if isinstance(again, Event) else str(again) == str(today)
