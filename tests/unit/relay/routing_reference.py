"""Where an event goes, and as which message, by docs/routes.md and docs/mapping.md alone.

It shares no code with the relay, and is as slow and as plain as the pages. `content` is relay.toml as TOML has it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

Content = Mapping[str, Any]
Document = Mapping[str, Any]

_LAYOUTS: dict[str, dict[str, Any]] = {
    "article": {},
    "cloudevents": {
        "types": [],
        "events": {"/specversion": "1.0"},
        "fields": {"id": ["/source", "/id"], "key": "/partitionkey", "action": "/type", "time": "/time"},
    },
    "debezium": {"types": [], "fields": {"key": "/aggregateid", "action": "/type", "data": "/payload"}},
}
_DOCUMENT = {"id": "/id", "key": "/partitionKey", "type": "/type", "data": "/data", "trace": "/traceparent"}
_DOCUMENT |= {"sequence": "/sequence"}
_ROW = {"id": "/id", "key": "/partition_key", "type": "/type", "data": "/data", "trace": "/traceparent"}
_ROW |= {"sequence": "/sequence", "action": "/action", "time": "/created_at"}
_TABLES = ("events", "fields", "properties", "message")

NOWHERE = object()
"""The value of a place that does not exist."""


class NotMapped(Exception):
    """The event can never become a message."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message; times in milliseconds, `body` as the value that its JSON is."""

    id: str
    key: str
    subject: str
    body: Any
    properties: Mapping[str, tuple[str, Any]]
    correlation_id: str | None = None
    reply_to: str | None = None
    time_to_live: int | None = None
    scheduled_enqueue_time: int | None = None


@dataclass(frozen=True, slots=True)
class Aside:
    """An event that is set aside; the reason only if it is that no rule takes it."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Outbox:
    """An outbox with what the file says about it.

    Attributes:
        rules: `types`, `events`, `fields`, `properties` and `message`, with those of the layout.
        routes: The rules about its events, in their order.
        is_sql: Whether its documents are rows.
    """

    rules: Mapping[str, Any]
    routes: Sequence[Mapping[str, Any]]
    keeps_unrouted: bool
    is_sql: bool = False
    destinations: list[str] = field(default_factory=list)

    @property
    def is_mapped(self) -> bool:
        return any(self.rules[each] for each in ("fields", "properties", "message")) or self.rules["types"] == []

    @property
    def is_by_columns(self) -> bool:
        return self.is_sql and bool(self.rules["fields"])


def outbox_of(content: Content, name: str, *, is_sql: bool = False) -> Outbox:
    """The outbox of this name."""
    own = content.get("outboxes", {}).get(name, {})
    rules: dict[str, Any] = {"types": ["domainEvent"], **{each: {} for each in _TABLES}}
    for part in ([] if "layout" in own else [content]) + [own]:
        for said in (_LAYOUTS[part.get("layout", "article")], part):
            rules["types"] = said.get("types", rules["types"])
            for table in _TABLES:
                rules[table] = {**rules[table], **said.get(table, {})}
    routes = [each for each in content.get("routes", []) if each.get("outbox", name) == name]
    named = list(dict.fromkeys(each for route in routes for each in route["to"])) or ["default"]
    # The stream that has what no rule takes.
    first = "default" if "default" in named else named[0]
    named.sort(key=lambda each: each != first)
    keeps = content.get("unrouted", "quarantine") == "quarantine"
    return Outbox(rules, routes, keeps, is_sql, named)


def destinations_of(outbox: Outbox, document: Document) -> dict[str, Sent | Aside]:
    """Return what becomes of a document, by destination."""
    reading = _Reading(outbox, document)
    if not _is_event(reading):
        return {}
    route = next((each for each in outbox.routes if reading.fulfils(each.get("when", {}))), None)
    if outbox.routes and route is None:
        found = _message(reading)
        unrouted = Aside("no-route") if isinstance(found, Sent) else found
        return {outbox.destinations[0]: unrouted} if outbox.keeps_unrouted else {}
    return dict.fromkeys(route["to"] if route else outbox.destinations, _message(reading))


def _is_event(reading: _Reading) -> bool:
    types = reading.outbox.rules["types"]
    return (not types or reading.text("type") in types) and reading.fulfils(reading.outbox.rules["events"])


class _Reading:
    """A document as the rules of its outbox see it."""

    def __init__(self, outbox: Outbox, document: Document) -> None:
        self.outbox = outbox
        self.document = document if outbox.is_by_columns or not outbox.is_sql else _as_document(document)
        defaults = _ROW if outbox.is_by_columns else _DOCUMENT
        given = outbox.rules["fields"]
        data = given.get("data", "/data")
        within = {"action": f"{data}/action", "time": f"{data}/createdAt"}
        self._places = {name: [place] for name, place in defaults.items()}
        for name, place in within.items():
            self._places.setdefault(name, []).append(place)
        self._places |= {name: place if isinstance(place, list) else [place] for name, place in given.items()}

    def get(self, name: str) -> Any:
        """The value of a field of an event."""
        in_text = name != "key" or self.outbox.is_sql
        places = [self.at(place, in_text=in_text) for place in self._places[name]]
        if name == "id" and len(places) > 1:
            return _joined(places)
        return next((value for value in places if value is not NOWHERE), NOWHERE)

    def text(self, name: str) -> Any:
        """The value of a field; of a number of an SQL outbox, and of a key that is one, the text."""
        value = self.get(name)
        if not self.outbox.is_sql or isinstance(value, str):
            return value
        return str(value) if isinstance(value, Decimal) else _as_text(value) if name in ("id", "key") else value

    def at(self, place: str, *, in_text: bool = True) -> Any:
        """The value at a place, which may be within JSON text."""
        names = _names(place)
        found = _within(self.document, names)
        if found is NOWHERE and in_text:
            data = names[:1] if self.outbox.is_by_columns else _names(self._places["data"][0])
            is_document = self.outbox.is_mapped and not self.outbox.is_sql
            if self.outbox.is_by_columns or (is_document and names[: len(data)] == data):
                found = self._within_text(_within(self.document, data), names[len(data) :])
        return found

    def _within_text(self, text: Any, names: Sequence[str]) -> Any:
        value = _json(text) if isinstance(text, str) else None
        is_list = isinstance(value, list) and self.outbox.is_by_columns
        return _within(value, names) if isinstance(value, dict) or is_list else NOWHERE

    def fulfils(self, conditions: Mapping[str, Any]) -> bool:
        """Return True if all conditions hold."""
        return all(
            _holds(self.at(name) if name.startswith("/") else self.text(name), condition)
            for name, condition in conditions.items()
        )


def _as_document(row: Document) -> Document:
    """The document that a row becomes, by docs/sql.md."""
    text = row["data"]
    data = _json(text) if isinstance(text, str) else None
    if isinstance(data, dict):
        added = {"action": row.get("action"), "createdAt": row.get("created_at")}
        data = {**{name: value for name, value in added.items() if value is not None}, **data}
    made = {"id": _as_text(row["id"]), "partitionKey": _as_text(row["partition_key"]), "type": row["type"]}
    made["data"] = text if data is None else data
    return made | {name: row[name] for name in ("sequence", "traceparent") if row.get(name) is not None}


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _names(place: str) -> list[str]:
    return [each.replace("~1", "/").replace("~0", "~") for each in place.split("/")[1:]]


def _within(value: Any, names: Sequence[str]) -> Any:
    for name in names:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]*", name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return NOWHERE
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _joined(parts: Sequence[Any]) -> Any:
    """An id of several places."""
    if not all(isinstance(each, str) and each for each in parts):
        return NOWHERE
    escaped = [each.replace("%", "%25").replace(" ", "%20").replace("&", "%26") for each in parts]
    joined = "&".join(escaped) if any(" " in each for each in parts) else " ".join(parts)
    is_short = _units(joined) <= 128
    return joined if is_short else hashlib.sha256(joined.encode(errors="surrogatepass")).hexdigest()


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", errors="surrogatepass")) // 2


def _holds(value: Any, condition: Any) -> bool:
    if isinstance(condition, dict):
        text = str(value) if isinstance(value, Decimal) else value
        return isinstance(text, str) and text.startswith(condition["prefix"])
    return any(_equals(value, each) for each in (condition if isinstance(condition, list) else [condition]))


def _equals(value: Any, other: Any) -> bool:
    """Return True if two values are equal in JSON."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, Decimal):
        return str(value) == other or (isinstance(other, int | float) and value == Decimal(repr(other)))
    numbers = (int, float)
    if isinstance(value, numbers) and isinstance(other, numbers):
        return value == other
    return isinstance(value, str) and isinstance(other, str) and value == other


def _message(reading: _Reading) -> Sent | Aside:
    try:
        return _made(reading)
    except NotMapped:
        return Aside()


def _made(reading: _Reading) -> Sent:
    outbox = reading.outbox
    identifier, key, kind, action = (reading.text(each) for each in ("id", "key", "type", "action"))
    for text in (identifier, key, kind, action):
        _require(isinstance(text, str))
    _require(0 < _units(identifier) <= 128 and 0 < _units(key) <= 128)
    data = reading.get("data")
    if isinstance(data, str) and outbox.is_mapped:
        data = _json(data)
    _require(isinstance(data, dict))
    created_at = reading.get("time")
    if "time" in outbox.rules["fields"] and created_at not in (None, NOWHERE):
        _as_date(created_at)
    properties: dict[str, tuple[str, Any]] = {"type": ("string", kind)}
    if "_ts" in reading.document and not outbox.is_sql:
        properties["cosmosTimestamp"] = ("long", reading.document["_ts"])
    for name, value in (("createdAt", created_at), ("traceparent", reading.get("trace"))):
        # A decimal of an SQL outbox is text with all its digits.
        value = str(value) if isinstance(value, Decimal) else value
        if isinstance(value, str):
            properties[name] = ("string", value)
    sequence = reading.get("sequence")
    if isinstance(sequence, Decimal) and sequence == int(sequence):
        sequence = int(sequence)
    if type(sequence) is int and -(2**63) <= sequence < 2**63:
        properties["sequence"] = ("long", sequence)
    for name, rule in outbox.rules["properties"].items():
        place, wanted = (rule["from"], rule["as"]) if isinstance(rule, dict) else (rule, None)
        value = reading.at(place)
        if value is not NOWHERE and value is not None:
            properties[name] = _property(value, wanted)
    further: dict[str, Any] = {}
    for name, place in outbox.rules["message"].items():
        value = reading.at(place)
        if value is not NOWHERE and value is not None:
            further[name] = _FURTHER[name](value)
    subject = further.pop("subject", action)
    texts = (identifier, key, action, subject, *(value for _, value in properties.values()), *further.values())
    _require(all(_is_unicode(each) for each in texts if isinstance(each, str)))
    return Sent(identifier, key, subject, data, properties, **further)


def _is_unicode(text: str) -> bool:
    return not re.search("[\ud800-\udfff]", text)


def _require(holds: bool) -> None:
    if not holds:
        raise NotMapped


def _property(value: Any, wanted: str | None) -> tuple[str, Any]:
    match wanted:
        case None:
            if isinstance(value, Decimal):
                return "string", str(value)
            _require(isinstance(value, str | bool | int | float))
            kinds = {str: "string", bool: "boolean", int: "long", float: "double"}
            _require(type(value) is not int or -(2**63) <= value < 2**63)
            return kinds[type(value)], value
        case "string":
            return "string", _as_string(value)
        case "long":
            return "long", _as_long(value)
        case "double":
            return "double", _as_double(value)
        case "boolean":
            _require(value in ("true", "false") or isinstance(value, bool))
            return "boolean", value in ("true", True)
    return "date", _as_date(value)


def _as_string(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    _require(isinstance(value, str | bool | int | float))
    return value if isinstance(value, str) else json.dumps(value)


def _as_long(value: Any) -> int:
    _require(not isinstance(value, bool))
    if isinstance(value, str):
        _require(re.fullmatch("-?[0-9]+", value) is not None)
    elif isinstance(value, float | Decimal):
        _require(value == int(value))
    else:
        _require(isinstance(value, int))
    _require(-(2**63) <= int(value) < 2**63)
    return int(value)


def _as_double(value: Any) -> float:
    _require(not isinstance(value, bool))
    if isinstance(value, str):
        _require(re.fullmatch("-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?", value) is not None)
    else:
        _require(isinstance(value, int | float | Decimal))
    return float(value)


def _as_date(value: Any) -> int:
    """Milliseconds, of a time to the second in one of a few zones."""
    pattern = r"[0-9]{4}-[0-9][0-9]-[0-9][0-9][T ][0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})"
    _require(isinstance(value, str) and re.fullmatch(pattern, value) is not None)
    try:
        moment = datetime.strptime(value.replace("Z", "+00:00").replace(" ", "T"), "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        raise NotMapped from None
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _as_duration(value: Any) -> int:
    _require(not isinstance(value, bool))
    if isinstance(value, str):
        durations = {"PT10M": 600, "P1D": 86_400, "P50D": 50 * 86_400}
        _require(value in durations or re.fullmatch("[0-9]+([.][0-9]+)?", value) is not None)
        value = durations[value] if value in durations else float(value)
    _require(isinstance(value, int | float | Decimal))
    _require(0 < value <= 49 * 86_400)
    return int(value * 1000)


_FURTHER = {
    "subject": _as_string,
    "correlation_id": _as_string,
    "reply_to": _as_string,
    "time_to_live": _as_duration,
    "scheduled_enqueue_time": _as_date,
}
