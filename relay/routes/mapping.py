"""Which fields of an outbox are the id, the key and so on: the parts `[fields]`, `[properties]` and `[message]`.

What is stored gets its fields (relay.core.documents) where it is read. What cannot be mapped does not fail there:
the document says why (`problem`), and is set aside like any other that can never become a message.
docs/mapping.md describes the parts.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from relay.core import jsontext
from relay.core.documents import Mapped, Numeric, SourceDocument, StoredDocument
from relay.core.events import MAX_KEY_LENGTH, utf16_units
from relay.core.place import Place, RowPlace
from relay.core.times import parse_duration, parse_rfc3339
from relay.routes.pointers import MISSING, Pointer

DOCUMENT_FIELDS: Mapping[str, str] = {
    "id": "/id",
    "key": "/partitionKey",
    "type": "/type",
    "data": "/data",
    "trace": "/traceparent",
    "order": "/order",
    "sequence": "/sequence",
}
"""The fields of a document that is not mapped. `action` and `time` are within `data`: `action` and `createdAt`."""

ROW_FIELDS: Mapping[str, str] = {
    "id": "/id",
    "key": "/partition_key",
    "type": "/type",
    "action": "/action",
    "data": "/data",
    "time": "/created_at",
    "trace": "/traceparent",
    "sequence": "/sequence",
}
"""The columns of an event table that is not mapped."""

NAMES = (*DOCUMENT_FIELDS, "action", "time")
"""The names of `[fields]`."""

# The fields that need not be in `data`, with their names there.
_BESIDE = {"action": "action", "time": "createdAt"}
# The names of fields in relay/core/documents.py, where they differ.
_MEMBERS = {"key": "partitionKey", "trace": "traceparent"}

LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "article": {},
    # https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md, and its extensions Partitioning,
    # Distributed Tracing and Sequence: an id is unique within its source.
    "cloudevents": {
        "types": [],
        "events": {"/specversion": "1.0"},
        "fields": {
            "id": ["/source", "/id"],
            "key": "/partitionkey",
            "action": "/type",
            "time": "/time",
        },
    },
    # https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
    "debezium": {
        "types": [],
        "fields": {"key": "/aggregateid", "action": "/type", "data": "/payload"},
    },
}
"""The parts of relay.toml that each `layout` provides, by the name of the layout."""

# What is above this in AMQP's unsigned 32 bits of milliseconds cannot be a message's time to live.
_MAX_TTL_MS = 2**32 - 1


class Long(int):
    """An integer of 64 bits: an AMQP long, whatever its value."""


class Moment(int):
    """A time, in milliseconds since 1970."""


Value = str | bool | float | Long | Moment
"""The value of a property: AMQP's string, boolean, double, long or timestamp. A plain int has no encoding."""


class Unmappable(Exception):
    """A value cannot be mapped. The message is a part of a sentence, which never contains the value."""


_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def _as_is(value: Any) -> Value:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return _long(value)
    raise Unmappable(f"is {_kind(value)}, which no property can have")


def _string(value: Any) -> Value:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | int | float):
        return jsontext.encode(value).decode()
    raise Unmappable(f"is {_kind(value)}, not a string")


def _number(value: Any) -> Any:
    """Return the number that a decimal column has; any other value as it is."""
    return value.number if isinstance(value, Numeric) else value


def _long(value: Any) -> Value:
    value = _number(value)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Unmappable(f"is {_kind(value)}, not a whole number")
    if not -(2**63) <= value < 2**63:
        raise Unmappable("is a number of more than 64 bits")
    return Long(value)


def _double(value: Any) -> Value:
    value = _number(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Unmappable(f"is {_kind(value)}, not a number")
    try:
        # float() takes more: spaces, underscores and the digits of other scripts.
        number = float(value) if not isinstance(value, str) or _DECIMAL.fullmatch(value) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise Unmappable(f"is {_kind(value)}, not a number that a double can have")
    return number


def _boolean(value: Any) -> Value:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise Unmappable(f"is {_kind(value)}, not a boolean")


def _date(value: Any) -> Value:
    moment = _time(value)
    # Rounded down, as azure-servicebus does.
    return Moment((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


def _time(value: Any) -> datetime:
    if not isinstance(value, str):
        raise Unmappable(f"is {_kind(value)}, not a time in RFC 3339, such as 2026-02-09T11:37:00Z")
    try:
        # A space instead of the T is what the standard leaves to its users.
        return parse_rfc3339(f"{value[:10]}T{value[11:]}" if value[10:11] == " " else value)
    except (ValueError, OverflowError):
        raise Unmappable("is no time in RFC 3339 with its zone, such as 2026-02-09T11:37:00Z") from None


def _ttl(value: Any) -> Value:
    """Return a time to live in milliseconds."""
    value = _number(value)
    wrong = f"is {_kind(value)}, not a duration, such as PT10M, or 600 in seconds"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Unmappable(wrong)
    try:
        if isinstance(value, str) and not (value.isascii() and value.strip() == value):
            raise Unmappable(wrong)
        lasts = parse_duration(value) if isinstance(value, str) else timedelta(seconds=value)
    except (ValueError, OverflowError):
        raise Unmappable(wrong) from None
    found = lasts // timedelta(milliseconds=1)
    if not 0 < found <= _MAX_TTL_MS:
        raise Unmappable("is no duration from 1 ms to 49 days, which is what a message can have")
    return found


TYPES: Mapping[str, Callable[[Any], Value]] = {
    "string": _string,
    "long": _long,
    "double": _double,
    "boolean": _boolean,
    "date": _date,
}
"""The types that `as` names, with what makes a value one."""

MESSAGE: Mapping[str, Callable[[Any], Value]] = {
    "subject": _string,
    "correlation_id": _string,
    "reply_to": _string,
    "time_to_live": _ttl,
    "scheduled_enqueue_time": _date,
}
"""The properties of a message that `[message]` can set, by name, each with the conversion of its value."""

OWN_PROPERTIES = (
    *("type", "cosmosTimestamp", "createdAt", "traceparent", "sequence", "originalId"),
    *("dataRef", "dataSha256", "dataLength", "dataContentType"),
)
"""The properties that the relay itself gives a message, with those of a large event."""

BROKERS_PROPERTIES = ("DeadLetterReason", "DeadLetterErrorDescription")
"""The properties that Service Bus gives a dead letter. A copy that is sent again is without them."""


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message from a field.

    Attributes:
        name: Its name.
        pointer: Where its value is.
        type: A name of `TYPES`; None to take the value's own type.
    """

    name: str
    pointer: Pointer
    type: str | None = None

    def convert(self, value: Any) -> Value:
        """Convert the value that is there. Raises Unmappable."""
        return (_as_is if self.type is None else TYPES[self.type])(value)


@dataclass(frozen=True, slots=True)
class Fields:
    """The places of an event's fields in what an outbox stores.

    Attributes:
        given: Those that relay.toml names, by a name of `NAMES`; an id may have several, which are joined.
        properties: Properties of the message.
        message: What else the message has, by a name of `MESSAGE`.
        is_mapped: Whether anything is mapped at all.
    """

    given: tuple[tuple[str, tuple[Pointer, ...]], ...] = ()
    properties: tuple[Property, ...] = ()
    message: tuple[tuple[str, Pointer], ...] = ()
    is_mapped: bool = True
    _documents: Mapping[str, tuple[Pointer, ...]] = field(init=False, repr=False, compare=False)
    _rows: Mapping[str, tuple[Pointer, ...]] = field(init=False, repr=False, compare=False)
    _time_place: Pointer | None = field(init=False, repr=False, compare=False)
    _names_type: bool = field(init=False, repr=False, compare=False)
    _rules: tuple[list[_Rule], list[_Rule]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = dict(self.given)
        data = given["data"][0].text if "data" in given else None
        object.__setattr__(self, "_documents", _places(DOCUMENT_FIELDS, data) | given)
        object.__setattr__(self, "_rows", _places(ROW_FIELDS, data) | given)
        object.__setattr__(self, "_time_place", given["time"][0] if "time" in given else None)
        object.__setattr__(self, "_names_type", "type" in given)
        properties = [_Rule("properties", each.name, each.pointer, each.convert) for each in self.properties]
        message = [_Rule("message", name, pointer, MESSAGE[name]) for name, pointer in self.message]
        object.__setattr__(self, "_rules", (properties, message))

    @property
    def names_fields(self) -> bool:
        """True if relay.toml names fields: a row of an SQL outbox is then mapped by its columns."""
        return bool(self.given)

    def type_of(self, stored: StoredDocument) -> Any:
        """Return the type of a stored document, or None if it has none."""
        [place] = self._documents["type"]
        found = place.find(stored)
        if found is MISSING and self.may_be_in_text(place):
            found = place.find_in(self._opened(stored))
        return None if found is MISSING else found

    def may_be_in_text(self, place: Pointer) -> bool:
        """Return True if a place in a document is within its data, which may be stored as JSON text."""
        data = self._documents["data"][0].names
        return self.is_mapped and len(place.names) > len(data) and place.names[: len(data)] == data

    def document(self, stored: StoredDocument) -> SourceDocument:
        """Return a document of Cosmos DB with its fields.

        Its key is never within data that is text: Cosmos DB keeps such a document under another partition key.
        """
        if not self.is_mapped:
            return SourceDocument.plain(stored)
        return self._mapped(stored, (stored, *self._opened(stored)), self._documents, key_views=1)

    def _opened(self, stored: StoredDocument) -> tuple[StoredDocument, ...]:
        """Return a document, followed by the object that its data is if that is stored as JSON text."""
        pointer = self._documents["data"][0]
        text = pointer.find(stored)
        found = jsontext.read_object(text) if isinstance(text, str) and text.lstrip()[:1] == "{" else None
        if found is None:
            return ()
        view: dict[str, Any] = found[0]
        for name in reversed(pointer.names):
            view = {name: view}
        return (view,)

    def of_fields(self, row: SourceDocument) -> SourceDocument:
        """Return a row of an SQL outbox whose columns have the usual names: it is mapped by its fields."""
        if not self.is_mapped:
            return row
        return self._mapped(row.stored, row.views or (row.fields,), self._documents, row.placed, row.body)

    def of_row(
        self, row: StoredDocument, opened: StoredDocument, place: Place | RowPlace, event_type: str
    ) -> SourceDocument:
        """Return a row of an SQL outbox, mapped by its columns.

        Args:
            row: By column, values that JSON has.
            opened: The columns whose text is JSON, as what it says.
            place: Its place in the feed.
            event_type: The type of a row that has none, where relay.toml does not name its place.
        """
        usual = None if self._names_type else event_type
        return self._mapped(row, (row, opened), self._rows, place, event_type=usual)

    def of_document(self, name: str) -> tuple[Pointer, ...]:
        """Return the places of a field in a stored document.

        The first place that has a value counts; an id concatenates the values of all places.
        """
        return self._documents[name]

    def of_columns(self, name: str) -> tuple[Pointer, ...]:
        """Return the places of a field in a row of an SQL outbox.

        The first place that has a value counts; an id concatenates the values of all places.
        """
        return self._rows[name]

    def column_of(self, name: str) -> str:
        """Return the column of an SQL outbox in which a field is looked for first."""
        return self._rows[name][0].names[0]

    def _mapped(
        self,
        stored: StoredDocument,
        views: tuple[Mapping[str, Any], ...],
        places: Mapping[str, tuple[Pointer, ...]],
        placed: Place | RowPlace | None = None,
        body: str | None = None,
        event_type: str | None = None,
        key_views: int | None = None,
    ) -> SourceDocument:
        """Return the document with its fields, which are at these places of the views.

        `key_views` is the number of views that may have its key; None for all.
        """
        fields: dict[str, Any] = {} if event_type is None else {"type": event_type}
        beside: dict[str, Any] = {}
        problems: list[str] = []
        for name, pointers in places.items():
            within = views[:key_views] if name == "key" else views
            value, member = _found(name, pointers, within), _MEMBERS.get(name, name)
            if isinstance(value, Numeric):
                value = _number(value) if name in _NUMBERS else str(value)
            if value is not MISSING:
                (beside if name in _BESIDE else fields)[member] = value
            elif name in _REQUIRED and member not in fields:
                where = (" and " if name == "id" else " or ").join(map(str, pointers))
                wanted = "no text" if len(pointers) > 1 and name == "id" else "nothing"
                problems.append(f"fields.{name}: there is {wanted} at {where}")
        for name, value in (("type", fields.get("type", "")), ("action", beside.get("action", ""))):
            if not isinstance(value, str):
                where = " or ".join(map(str, places[name]))
                problems.append(f"fields.{name}: {where} is {_kind(value)}, not a string")
        text = fields.get("data")
        opened = _found("data", places["data"], views[1:]) if isinstance(text, str) else MISSING
        if isinstance(text, str) and isinstance(opened, dict):
            fields["data"], body = opened, jsontext.escaped(text)
        created_at = beside.get("time")
        if created_at is not None and self._time_place is not None:
            try:
                _time(created_at)
            except Unmappable as error:
                problems.append(f"fields.time: {self._time_place} {error}")
        properties, message = self._further(views, problems)
        mapped = Mapped(beside.get("action"), created_at, properties, message)
        return SourceDocument(stored, fields, placed, mapped, body, problems[0] if problems else None, views)

    def _further(
        self, views: Sequence[Mapping[str, Any]], problems: list[str]
    ) -> tuple[dict[str, Value], dict[str, Value]]:
        """Return the properties, and what else the message has; adds to the problems."""
        made: tuple[dict[str, Value], dict[str, Value]] = ({}, {})
        for values, rules in zip(made, self._rules, strict=True):
            for rule in rules:
                found = rule.pointer.find_in(views)
                if found is None or found is MISSING:
                    continue
                try:
                    values[rule.name] = rule.convert(found)
                except Unmappable as error:
                    problems.append(f"{rule.part}.{rule.name}: {rule.pointer} {error}")
        return made


class _Rule(NamedTuple):
    part: str
    name: str
    pointer: Pointer
    convert: Callable[[Any], Value]


_NUMBERS = ("order", "sequence")
_REQUIRED = ("id", "key", "type", "action", "data")


def _places(fields: Mapping[str, str], data: str | None) -> dict[str, tuple[Pointer, ...]]:
    """Return the places of the fields that relay.toml does not name; action and time may be within `data`."""
    found: dict[str, tuple[Pointer, ...]] = {name: (Pointer.parse(text),) for name, text in fields.items()}
    for name, member in _BESIDE.items():
        found[name] = (*found.get(name, ()), Pointer.parse(f"{data or fields['data']}/{member}"))
    return found


def _found(name: str, pointers: tuple[Pointer, ...], views: Sequence[Mapping[str, Any]]) -> Any:
    if name == "id" and len(pointers) > 1:
        return _joined(pointers, views)
    for pointer in pointers:
        value = pointer.find_in(views)
        if value is not MISSING:
            return value
    return MISSING


def _joined(pointers: tuple[Pointer, ...], views: Sequence[Mapping[str, Any]]) -> Any:
    """Return an id of several texts, which no other texts have: a digest of them if they are too long."""
    parts = [pointer.find_in(views) for pointer in pointers]
    if not all(isinstance(each, str) and each for each in parts):
        return MISSING
    text = joined(parts)
    if utf16_units(text) <= MAX_KEY_LENGTH:
        return text
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def joined(parts: Sequence[str]) -> str:
    """Join texts, none of them empty, to one that no other texts of the same number become."""
    if not any(" " in each for each in parts):
        return " ".join(parts)
    # Without any space, it is none of the above.
    return "&".join(each.translate(_ESCAPES) for each in parts)


_ESCAPES = str.maketrans({character: f"%{ord(character):02X}" for character in "% &"})


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = ((bool, "a boolean"), (str, "a string"), (int | float, "a number"), (list, "an array"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "an object")


PLAIN = Fields(is_mapped=False)
"""The fields of an outbox whose documents have them by their own names."""
