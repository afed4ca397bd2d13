"""From rows of an event table to events, with every type that a driver may give for a column."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outbox_relay.changefeed.statements import Entry
from outbox_relay.changefeed.ulid import from_text, to_text
from relay.backends.canary import canary_id
from relay.backends.sql import quarantine as table
from relay.backends.sql.rows import (
    OPTIONAL_COLUMNS,
    REQUIRED_COLUMNS,
    document_if_taken,
    document_of,
    of_row,
    select,
)
from relay.core.events import Event, Reason, Rejected, read_event
from relay.core.place import Place
from relay.quarantine.record import Kept, record_of
from relay.routes.conditions import Condition
from relay.routes.mapping import Fields, Property
from relay.routes.pointers import Pointer
from relay.routes.selection import BY_DEFAULT, Route, Selection
from relay.servicebus.encoding import encode
from relay.servicebus.messages import cloudevents, plain
from tests.support.sql_outbox import event_of

NOON_MS = 1_770_000_000_000
ULID = NOON_MS.to_bytes(6, "big") + bytes(10)


def store_and_restore(rejected: Rejected) -> Kept:
    """Return the record of a rejection in the quarantine's table, read again."""
    record = record_of(rejected, "i")
    body = table.values_of(record)[3]
    assert isinstance(body, str)
    assert body.isascii()
    stored = table.item_of(body, None)
    return Kept.of(stored, stored["document"])


def released(rejected: Rejected, selection: Selection = BY_DEFAULT) -> Event | Rejected:
    """The event of what the quarantine's table has of a rejection."""
    kept = store_and_restore(rejected)
    assert kept.place == rejected.document.place
    return read_event(of_row(kept.stored, kept.place, selection))


def entry(**columns: Any) -> Entry:
    row = {"id": "e1", "partition_key": "k", "data": '{"action": "Made"}'} | columns
    return Entry(ULID, row, {})


def test_a_row_becomes_a_document_of_the_shape_that_every_outbox_has() -> None:
    document = document_of(
        entry(
            data='{"name": "Jane"}',
            action="Renamed",
            created_at=datetime(2026, 2, 9, 9, 37, 37, 302290, tzinfo=UTC),
            sequence=7,
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            type="domainEvent",
        ),
        3,
        BY_DEFAULT,
    )

    assert document.fields == {
        "id": "e1",
        "partitionKey": "k",
        "type": "domainEvent",
        "data": {"action": "Renamed", "createdAt": "2026-02-09T09:37:37.302290Z", "name": "Jane"},
        "sequence": 7,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    assert document.place == Place(ulid=to_text(ULID), shard=3)
    assert document.body == '{"action":"Renamed","createdAt":"2026-02-09T09:37:37.302290Z","name": "Jane"}'


def test_what_the_writer_stored_in_data_wins_over_the_columns() -> None:
    document = document_of(
        entry(
            data='{"action": "A", "createdAt": "2026-02-09T11:37:37.3022907+02:00"}',
            action="B",
            created_at=datetime(2026, 1, 1),
        ),
        0,
        BY_DEFAULT,
    )

    assert document.fields["data"] == {"action": "A", "createdAt": "2026-02-09T11:37:37.3022907+02:00"}


def test_columns_that_a_table_does_not_have_are_not_needed() -> None:
    event = event_of(entry(), 0, BY_DEFAULT)

    assert isinstance(event, Event)
    assert (event.id, event.partition_key, event.type, event.action) == ("e1", "k", "domainEvent", "Made")
    assert (event.sequence, event.traceparent, event.expires_at) == (None, None, None)
    assert event.committed_at == NOON_MS // 1000


def _zone(hours: int) -> timezone:
    return timezone(timedelta(hours=hours))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 2, 9, 11, 0, tzinfo=timezone(timedelta(hours=2))), "2026-02-09T09:00:00.000000Z"),
        (datetime(2026, 2, 9, 9, 0, 0, 5), "2026-02-09T09:00:00.000005Z"),
        ("2026-02-09T11:37:37.3022907+02:00", "2026-02-09T11:37:37.3022907+02:00"),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=_zone(-5)), "9999-12-31T23:59:59.000000-05:00"),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=_zone(5)), "9999-12-31T18:59:59.000000Z"),
        (datetime(1, 1, 1, tzinfo=_zone(5)), "0001-01-01T00:00:00.000000+05:00"),
        (datetime(9999, 12, 31, 23, 59, 59), "9999-12-31T23:59:59.000000Z"),
    ],
)
def test_times_are_written_in_utc_and_text_stays_as_it_is(value: object, text: str) -> None:
    assert document_of(entry(created_at=value), 0, BY_DEFAULT).fields["data"]["createdAt"] == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (UUID("0af76519-16cd-43dd-8448-eb211c80319c"), "0af76519-16cd-43dd-8448-eb211c80319c"),
        (UUID("0af76519-16cd-43dd-8448-eb211c80319c").bytes, "0af76519-16cd-43dd-8448-eb211c80319c"),
        (b"\x01\xff", "01ff"),
        (Decimal("12.50"), "12.50"),
        (7, "7"),
    ],
)
def test_identifiers_of_other_types_become_text(value: object, text: str) -> None:
    document = document_of(entry(id=value, partition_key=value), 0, BY_DEFAULT)

    assert (document.fields["id"], document.fields["partitionKey"]) == (text, text)
    assert document_of(Entry(ULID, None, {"id": value}), 0, BY_DEFAULT).fields["id"] == text


@pytest.mark.parametrize(
    ("value", "sequence"),
    [(Decimal("7"), 7), (Decimal("7.0"), 7), (Decimal("7.5"), None), (Decimal("NaN"), None), ("7", None)],
)
def test_a_sequence_may_be_a_column_of_decimals(value: object, sequence: int | None) -> None:
    event = event_of(entry(sequence=value), 0, BY_DEFAULT)

    assert isinstance(event, Event)
    assert event.sequence == sequence


@pytest.mark.parametrize("data", [{"action": "Made"}, '{"action": "Made"}'])
def test_data_may_come_as_text_or_as_an_object(data: object) -> None:
    assert document_of(entry(data=data), 0, BY_DEFAULT).fields["data"] == {"action": "Made"}


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "Made", "n": 12345678901234567890123}',
        '{"action":"Made","n":0.1234567890123456789}',
        '{"action":"Made","n":1.10}',
        '{"action":"Made","n":1e400}',
        '{"action":"Made","n":' + "9" * 400 + "}",
        '{"action":"Made","n":1,"n":2}',
        '{"action":"Made","text":"\\ud800"}',
        ' {"action":"Made"} ',
        '{"action":"Made","deep":' + "[" * 500 + "]" * 500 + "}",
    ],
)
def test_the_body_is_the_text_that_was_committed(text: str) -> None:
    event = event_of(entry(data=text), 0, BY_DEFAULT)

    assert isinstance(event, Event)
    assert plain(event).body == text.encode()


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ('{"n":1e400}', '{"action":"Made","n":1e400}'),
        (" { } ", '{"action":"Made" } '),
        ("{}", '{"action":"Made"}'),
    ],
)
def test_columns_are_put_before_the_members_of_the_text(text: str, body: str) -> None:
    event = event_of(entry(data=text, action="Made"), 0, BY_DEFAULT)

    assert isinstance(event, Event)
    assert event.action == "Made"
    assert plain(event).body == body.encode()


@pytest.mark.parametrize("levels", [600, 900])
def test_what_is_nested_deeply_is_published_and_can_be_stored(levels: int) -> None:
    text = '{"action":"Made","deep":' + "[" * levels + "]" * levels + ',"n":1}'
    event = event_of(entry(data=text), 0, BY_DEFAULT)

    assert isinstance(event, Event)
    assert plain(event).body == text.encode()
    assert event.document.body == text
    assert store_and_restore(Rejected.of(event, Reason.SET_ASIDE, "")).stored["data"] == text


def test_half_of_a_surrogate_pair_that_sql_server_has_as_it_is_becomes_an_escape() -> None:
    event = event_of(entry(data='{"action":"Made","text":"\ud800é"}'), 0, BY_DEFAULT)

    assert isinstance(event, Event)
    assert plain(event).body == '{"action":"Made","text":"\\ud800é"}'.encode()


_BY_COLUMNS = Selection(
    ("domainEvent",),
    (Condition("/other", (7,)),),
    fields=Fields(
        (("key", (Pointer.parse("/partition_key"),)), ("time", (Pointer.parse("/created_at"),))),
        (Property("p", Pointer.parse("/other")), Property("at", Pointer.parse("/created_at"), "date")),
    ),
)


_AMOUNTS = replace(
    _BY_COLUMNS,
    events=(),
    fields=Fields(
        (("key", (Pointer.parse("/amount"),)), ("sequence", (Pointer.parse("/amount"),))),
        (
            Property("amount", Pointer.parse("/amount")),
            Property("double", Pointer.parse("/amount"), "double"),
        ),
    ),
)


@pytest.mark.parametrize(
    ("value", "text", "double", "sequence"),
    [
        ("12.50", "12.50", 12.5, None),
        ("12.00", "12.00", 12.0, 12),
        ("12", "12", 12.0, 12),
        ("-0.0000001", "-0.0000001", -1e-07, None),
        ("12345678901234567890.123456789", "12345678901234567890.123456789", 12345678901234567890.0, None),
    ],
)
def test_a_decimal_is_its_digits_whatever_its_value(
    value: str, text: str, double: float, sequence: int | None
) -> None:
    event = event_of(entry(amount=Decimal(value)), 0, _AMOUNTS)

    assert isinstance(event, Event)
    assert event.document.mapped is not None
    assert event.document.mapped.properties == {"amount": text, "double": double}
    assert [type(each) for each in event.document.mapped.properties.values()] == [str, float]
    assert (event.partition_key, event.sequence) == (text, sequence)
    again = released(Rejected.of(event, Reason.SET_ASIDE, ""), _AMOUNTS)
    assert isinstance(again, Event)
    assert again.document.mapped == event.document.mapped
    assert (again.partition_key, again.sequence) == (text, sequence)


@pytest.mark.parametrize(
    ("value", "wanted", "holds"),
    [
        ("12.50", 12.5, True),
        ("12.50", "12.50", True),
        ("12.50", "12.5", False),
        ("12.00", 12, True),
        ("1.00", True, False),
        ("0.10", 0.1, True),
        ("NaN", "NaN", True),
        ("NaN", 0, False),
        ("sNaN", 1.5, False),
        ("Infinity", 1.5, False),
    ],
)
def test_a_condition_compares_a_decimal_with_numbers_by_value(
    value: str, wanted: str | float, holds: bool
) -> None:
    selection = replace(_AMOUNTS, events=(Condition("/amount", (wanted,)),))
    row = entry(amount=Decimal(value), partition_key="k", type="domainEvent")

    taken = document_if_taken(row, 0, selection)

    assert (taken is not None) == holds
    kept = store_and_restore(Rejected(document_of(row, 0, selection), Reason.SET_ASIDE, ""))
    assert kept.place is not None
    assert selection.takes(of_row(kept.stored, kept.place, selection)) == holds


@pytest.mark.parametrize("text", ["[1]", '{"k": 1}', '{"x":1}'])
def test_text_that_looks_like_json_is_text_where_a_string_is_wanted(text: str) -> None:
    fields = Fields(
        (("key", (Pointer.parse("/other"),)), ("action", (Pointer.parse("/other"),))),
        (Property("p", Pointer.parse("/other")), Property("k", Pointer.parse("/other/k"))),
    )
    selection = replace(_BY_COLUMNS, events=(Condition("/other", (text,)),), fields=fields)

    (event,) = select([entry(id=text, other=text, type="domainEvent")], 0, selection).events

    assert (event.id, event.partition_key, event.action) == (text, text, text)
    assert event.document.mapped is not None
    assert event.document.mapped.properties == {"p": text} | ({"k": 1} if "k" in text else {})


_VALUES = st.one_of(
    st.none(),
    st.text(),
    st.text(st.characters(categories=["Cs"]), min_size=1),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.binary(),
    st.booleans(),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.lists(st.decimals() | st.text() | st.binary()),
    st.just(NOON_MS.to_bytes(16, "big")),
)
_NUMBERS = st.sampled_from(["1e400", "-1E-400", "9" * 5000, "-0", "1.10", "NaN", "-Infinity"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.text(st.characters()) | st.floats() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)
_DATA = st.one_of(
    st.text(),
    _JSON.map(json.dumps),
    st.dictionaries(st.sampled_from(["action", "createdAt", "n"]), _JSON).map(json.dumps),
    _NUMBERS.map(lambda number: f'{{"action":"A","n":{number}}}'),
    st.tuples(st.sampled_from([3, 300, 600, 1100, 3000]), st.sampled_from(["A", "\\ud800"])).map(
        lambda of: f'{{"deep":{"[" * of[0]}{"]" * of[0]},"action":"{of[1]}"}}'
    ),
    st.tuples(st.sampled_from([3, 300, 600, 1100, 3000]), st.booleans()).map(
        lambda of: "[" * of[0] + ("9" * 500 if of[1] else "") + "]" * of[0]
    ),
)


@given(
    columns=st.dictionaries(st.sampled_from([*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS, "other"]), _VALUES),
    data=_DATA | _VALUES,
    key=st.dictionaries(st.text(), _VALUES),
)
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_any_row_is_an_event_whose_message_can_be_encoded_or_a_rejection(
    columns: dict[str, Any], data: object, key: dict[str, Any]
) -> None:
    for each in (entry(**columns | {"data": data, "type": "domainEvent"}), Entry(ULID, None, key)):
        judged = event_of(each, 0, BY_DEFAULT)
        if isinstance(judged, Event):
            encode(cloudevents("/contacts")(judged))
            judged = Rejected.of(judged, Reason.SET_ASIDE, "")
        assert store_and_restore(judged).stored == json.loads(json.dumps(dict(judged.document.stored)))


class _Hostile:
    """A value of a driver that can be neither written, compared nor hashed."""

    def _fail(self, *_: object) -> Any:
        raise RuntimeError("secret")

    __str__ = __repr__ = __eq__ = __hash__ = _fail


_ZONES = st.integers(-14, 14).map(_zone)
_EXTREMES = st.one_of(
    _VALUES,
    st.datetimes(timezones=_ZONES),
    st.builds(lambda zone: datetime.max.replace(tzinfo=zone), _ZONES),
    st.builds(lambda zone: datetime.min.replace(tzinfo=zone), _ZONES),
    st.sampled_from([Decimal("1E+1000000"), Decimal("-Infinity"), Decimal("sNaN"), float("nan")]),
    st.builds(_Hostile),
    st.lists(st.builds(_Hostile), max_size=1),
)
_ROUTED = replace(
    BY_DEFAULT, routes=(Route((Condition("/data/action", ("Made",)),), ("default",)),), keeps_unrouted=True
)


@pytest.mark.parametrize("selection", [BY_DEFAULT, _BY_COLUMNS, _ROUTED], ids=["usual", "by columns", "routed"])
@given(
    columns=st.dictionaries(
        st.sampled_from([*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS, "other"]), _EXTREMES, min_size=1, max_size=4
    ),
    data=st.just('{"action": "Made"}') | _EXTREMES,
)
@settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None)
def test_no_value_of_a_row_ends_its_page(selection: Selection, columns: dict[str, Any], data: object) -> None:
    sound = entry(id="e9", type="domainEvent", other=7, created_at="2026-02-09T11:37:00Z")

    received = select([entry(**columns | {"data": data}), sound], 0, selection)

    assert "e9" in [each.id for each in received.events]
    assert received.documents == 2
    for each in received.events:
        encode(cloudevents("/contacts")(each))
    for rejected in received.rejected:
        assert "secret" not in rejected.detail
        store_and_restore(rejected)


def test_a_row_that_cannot_be_read_is_set_aside_with_the_place_of_the_defect_by_the_first_stream() -> None:
    broken, second = entry(type=_Hostile(), partition_key="k"), replace(_ROUTED, is_first=False)

    (rejected,) = select([broken], 0, BY_DEFAULT).rejected

    assert (rejected.id, rejected.partition_key, rejected.reason) == ("e1", "k", Reason.NOT_MAPPED)
    assert rejected.detail.startswith("the row cannot be read: RuntimeError at ")
    assert store_and_restore(rejected).stored["type"] == "(_Hostile)"
    assert select([broken], 0, second).ignored == 1


@pytest.mark.parametrize(
    ("text", "kind"), [("[1]", "an array"), ("7", "a number"), ('"x"', "a string"), ("no JSON", "a string")]
)
def test_data_that_is_no_object_is_named_by_its_kind(text: str, kind: str) -> None:
    rejected = event_of(entry(data=text), 0, BY_DEFAULT)

    assert isinstance(rejected, Rejected)
    assert rejected.detail == f"data is {kind}, not an object"


def test_what_is_released_from_quarantine_has_the_same_body() -> None:
    first = event_of(entry(data='{"action":"Made","n":1e400}'), 0, BY_DEFAULT)
    assert isinstance(first, Event)

    again = released(Rejected.of(first, Reason.SET_ASIDE, ""))

    assert isinstance(again, Event)
    assert plain(again).body == plain(first).body


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"data": "no JSON"}, Reason.DATA_NOT_OBJECT),
        ({"data": "[" * 5000}, Reason.DATA_NOT_OBJECT),
        ({"data": "7"}, Reason.DATA_NOT_OBJECT),
        ({"data": None}, Reason.DATA_NOT_OBJECT),
        ({"data": "{}"}, Reason.ACTION_NOT_STRING),
        ({"partition_key": None}, Reason.PARTITION_KEY_NOT_STRING),
        ({"id": None}, Reason.ID_NOT_STRING),
        ({"data": '{"action":"\\ud800"}'}, Reason.PROPERTY_NOT_UNICODE),
        ({"data": '{"action":"Made","createdAt":"\\udc00\\ud800"}'}, Reason.PROPERTY_NOT_UNICODE),
        ({"action": 7, "data": "{}"}, Reason.ACTION_NOT_STRING),
        ({"data": b"\x00"}, Reason.DATA_NOT_OBJECT),
        ({"data": Decimal("NaN")}, Reason.DATA_NOT_OBJECT),
        ({"data": '{"action":"Made","n":NaN}'}, Reason.DATA_NOT_OBJECT),
    ],
)
def test_what_can_never_be_a_message_is_rejected_with_its_reason(columns: dict[str, Any], reason: Reason) -> None:
    rejected = event_of(entry(**columns), 0, BY_DEFAULT)

    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason


def test_a_row_that_does_not_exist_is_rejected_under_its_primary_key() -> None:
    rejected = event_of(Entry(ULID, None, {"id": "gone"}), 2, BY_DEFAULT, position=5)

    assert isinstance(rejected, Rejected)
    assert (rejected.id, rejected.reason, rejected.position) == ("gone", Reason.PARTITION_KEY_MISSING, 5)
    assert rejected.document.fields == {"id": "gone", "type": "domainEvent"}
    assert rejected.document.place == Place(ulid=to_text(ULID), shard=2)


def test_rows_of_another_type_are_ignored_and_places_count_the_rest() -> None:
    received = select([entry(), entry(id="c1", type="contact"), entry(id="e2"), entry(id="")], 0, BY_DEFAULT)

    assert [(event.id, event.position) for event in received.events] == [("e1", 0), ("e2", 1)]
    assert [(item.id, item.position) for item in received.rejected] == [("", 2)]
    assert received.ignored == 1


def test_no_event_was_committed_in_the_future_whatever_its_position_says() -> None:
    ahead = (int(time.time() * 1000) + 3_600_000).to_bytes(6, "big") + bytes(10)

    event = event_of(Entry(ahead, dict(entry().row or {}), {}), 0, BY_DEFAULT)

    assert isinstance(event, Event)
    assert event.committed_at is not None
    assert event.committed_at <= time.time()


@pytest.mark.parametrize(
    ("row", "identifier"),
    [
        (
            {
                "id": "e1",
                "partition_key": "k",
                "data": '{"action": "Named", "n": 12345678901234567890.0}',
                "sequence": 7,
            },
            "faf8567afc3e8bb24acb5734edcc9a2675b906f6",
        ),
        (None, "bfddb276f03b4918f5b42621dc9e70cd421614f8"),
    ],
)
def test_a_row_has_the_same_record_in_every_version_of_the_relay(
    row: dict[str, Any] | None, identifier: str
) -> None:
    """Records of older versions are found, released and discarded by their ids."""
    found = Entry(from_text("01JKGB3J6JFWXA3CP3TKJZC1RR"), row, {"id": "e1"})
    rejected = Rejected(document_of(found, 3, BY_DEFAULT), Reason.MESSAGE_REFUSED, "")

    assert record_of(rejected, "i1")["id"] == identifier


def test_a_row_that_a_smoke_test_has_deleted_is_no_event_where_several_streams_read_the_feed() -> None:
    gone = [Entry(ULID, None, {"id": each}) for each in (canary_id(), "e1")]
    first = replace(BY_DEFAULT, routes=(Route((), ("default", "b")),))

    assert [each.id for each in select(gone, 0, first).rejected] == ["e1"]
    assert len(select(gone, 0, BY_DEFAULT).rejected) == 2
    assert select(gone, 0, replace(first, destination="b", is_first=False)).ignored == 2
