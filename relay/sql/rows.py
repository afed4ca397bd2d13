"""From rows of the event table to events.

The columns `id`, `partition_key` and `data` are required; `action`, `created_at`, `sequence`, `traceparent` and
`type` are used if the table has them. A row becomes a document of the shape that every outbox has
(relay/events.py), with its position:

    {"id": …, "partitionKey": …, "type": …, "data": {"action": …, "createdAt": …, …},
     "sequence": …, "traceparent": …, "_shard": 0, "_ulid": "01JD…"}

`data` is what its writer stored; `action` and `created_at` are added if it has no such member. The message's
body is the text of the column, to which nothing else is done. Columns of types that JSON does not have become
text, so that every document can be stored in quarantine. Where relay.toml names fields, a row is an object by the
names of its columns, text that is a JSON object or array is that, and the fields are taken from it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from changefeed.statements import Entry
from changefeed.ulid import milliseconds, to_text
from relay import jsontext
from relay.canary import is_canary
from relay.events import (
    DATA_TEXT,
    MAPPED,
    ORIGINAL,
    Document,
    Event,
    Received,
    Rejected,
    read_event,
    read_mapped,
)
from relay.routes.selection import Selection

REQUIRED_COLUMNS = ("id", "partition_key", "data")
OPTIONAL_COLUMNS = ("action", "created_at", "sequence", "traceparent", "type")

_UUID_BYTES = 16

# Maximum number of digits of an integer that is kept as one.
_MAX_DIGITS = 400


def select(entries: Iterable[Entry], shard_id: int, selection: Selection) -> Received:
    """The events of a page, in the order of the feed; rows that are none of the stream's are ignored."""
    received = Received()
    position = 0
    for entry in entries:
        document = document_if_taken(entry, shard_id, selection)
        if document is None:
            received.ignored += 1
            continue
        event = event_in(document, entry, selection, position)
        position += 1
        if isinstance(event, Event):
            received.events.append(event)
        else:
            received.rejected.append(event)
    return received


def document_if_taken(entry: Entry, shard_id: int, selection: Selection) -> Document | None:
    """The document of an entry that is one of the stream's; None for any other.

    A deleted row is the first stream's, because nothing is known of it but its key. A smoke test deletes its event
    when the event's own stream has passed it, which says nothing of the first one.
    """
    if entry.row is None:
        is_nobodys = bool(selection.routes) and any(map(is_canary, entry.key.values()))
        return document_of(entry, shard_id, selection) if selection.is_first and not is_nobodys else None
    if not selection.fields.names_fields and not selection.has_type(type_of(entry.row, selection)):
        return None
    document = document_of(entry, shard_id, selection)
    is_sure = selection.is_by_type and not selection.fields.names_fields
    return document if is_sure or selection.takes(document) else None


def type_of(row: Mapping[str, Any], selection: Selection) -> Any:
    """The type of a row: that of a table without such a column is the first of the stream's."""
    found = row.get("type", selection.type)
    # A column of fixed length is padded with spaces.
    return found.rstrip(" ") if isinstance(found, str) and found not in selection.types else found


def event_of(entry: Entry, shard_id: int, selection: Selection, position: int = 0) -> Event | Rejected:
    """The event of one entry; `position` is its place among those it came with."""
    return event_in(document_of(entry, shard_id, selection), entry, selection, position)


def event_in(document: Document, entry: Entry, selection: Selection, position: int = 0) -> Event | Rejected:
    """Likewise, where the entry's document was made before."""
    event = read(document, position, committed_at(entry.ulid))
    return event if entry.row is None else selection.judged(event)


def read(document: Document, position: int, committed_at: int | None) -> Event | Rejected:
    """The event of a document, which may be a mapped one."""
    if MAPPED in document:
        return read_mapped(document, position, committed_at=committed_at)
    return read_event(document, position, committed_at=committed_at)


def mapped_again(document: Document, selection: Selection) -> Document:
    """A document that quarantine has, as relay.toml maps it now."""
    fields, original = selection.fields, document.get(ORIGINAL, document)
    # One that was made of a row without names of fields has its place.
    if "_ulid" in original:
        return document if fields.names_fields and original is document else fields.document(original)
    if not fields.names_fields:
        return document
    place = {name: document[name] for name in ("_shard", "_ulid") if name in document}
    found = _of_columns(original, place, selection)
    if DATA_TEXT in document and found.get("data") == document["data"]:
        found[DATA_TEXT] = document[DATA_TEXT]
    return found


def committed_at(ulid: bytes) -> int:
    """When an event with this position was committed, in whole seconds since 1970."""
    # A clock that has stepped back leaves positions ahead of the time: no event was committed in the future.
    return min(milliseconds(ulid) // 1000, int(time.time()))


def document_of(entry: Entry, shard_id: int, selection: Selection) -> dict[str, Any]:
    """The document of one entry. Of a row that does not exist, it has the primary key and no more."""
    place = {"_shard": shard_id, "_ulid": to_text(entry.ulid)}
    if entry.row is None:
        key = {name: identifier_of(value) for name, value in entry.key.items()}
        return {**key, "type": selection.type, **place}
    row = entry.row
    if selection.fields.names_fields:
        return _by_columns(row, place, selection)
    data, text = _data(row)
    document: dict[str, Any] = {
        "id": identifier_of(row.get("id")),
        "partitionKey": identifier_of(row.get("partition_key")),
        "type": type_of(row, selection),
        "data": data,
        **place,
    }
    if text is not None:
        document[DATA_TEXT] = text
    for column in ("sequence", "traceparent"):
        if row.get(column) is not None:
            document[column] = _integer(row[column])
    return dict(selection.fields.document(document))


def _by_columns(row: Mapping[str, Any], place: Mapping[str, Any], selection: Selection) -> dict[str, Any]:
    """The document of a row with other columns."""
    texts: dict[str, str] = {}
    document = _of_columns({name: _cell(name, value, texts) for name, value in row.items()}, place, selection)
    column, *within = selection.fields.of_columns("data")[0].names
    if column in texts and isinstance(document.get("data"), dict):
        text = jsontext.member(texts[column], within)
        if text is not None:
            document[DATA_TEXT] = text
    return document


def _of_columns(row: Document, place: Mapping[str, Any], selection: Selection) -> dict[str, Any]:
    document = selection.fields.of_row(row, {"type": selection.type, **place})
    for name in ("id", "partitionKey"):
        if isinstance(document.get(name), int):
            document[name] = identifier_of(document[name])
    if isinstance(document["type"], str):
        # A column of fixed length is padded with spaces.
        document["type"] = document["type"].rstrip(" ")
    return document


def _cell(name: str, value: Any, texts: dict[str, str]) -> Any:
    """A column's value as JSON has it. JSON text is added to `texts`, by the column's name."""
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        found = jsontext.read_object(value)
        if found is not None:
            parsed, texts[name] = found
            return parsed
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        parsed = jsontext.parsed(value)
        return value if parsed is None or jsontext.is_deep(parsed, value) else parsed
    if isinstance(value, bytes) and len(value) == _UUID_BYTES:
        return identifier_of(value)
    if isinstance(value, datetime):
        return _time(value)
    return value if isinstance(value, dict) else _integer(value)


def _data(row: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The payload, and its text if it is an object that came as text."""
    data = row.get("data")
    if not isinstance(data, str):
        return (data | _added(row, data), None) if isinstance(data, dict) else (_plain(data), None)
    # SQL Server's text can have half of a surrogate pair as it is.
    data = jsontext.escaped(data)
    parsed = jsontext.parsed(data)
    if not isinstance(parsed, dict):
        # It is quarantined unchanged.
        return (data if parsed is None or jsontext.is_deep(parsed, data) else parsed), None
    added = _added(row, parsed)
    kept = jsontext.shallow(parsed) if jsontext.is_deep(parsed, data) else parsed
    if not added:
        return kept, data
    # Put before the text's own members, none of which is rewritten.
    members = data.lstrip()[1:]
    comma = "" if not parsed else ","
    return {**added, **kept}, jsontext.encode(added).decode()[:-1] + comma + members


def _added(row: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The members that columns have and `data` has not."""
    action, created_at = row.get("action"), row.get("created_at")
    added: dict[str, Any] = {}
    if action is not None and "action" not in data:
        added["action"] = _plain(action)
    if created_at is not None and "createdAt" not in data:
        added["createdAt"] = _time(created_at)
    return added


def _plain(value: Any) -> Any:
    """A column's value as JSON has it: any value but text, integers, booleans and finite numbers becomes text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return [_plain(each) for each in value] if isinstance(value, list) else str(value)


def _integer(value: Any) -> Any:
    """An integer that a column of decimals has, as one; any other value as `_plain` has it."""
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() < _MAX_DIGITS:
        whole = int(value)
        return whole if whole == value else str(value)
    return _plain(value)


def identifier_of(value: Any) -> str | None:
    """An id or key as text: numbers and UUIDs as they are written, other bytes as hexadecimal digits."""
    if value is None or isinstance(value, str):
        return value
    # A UUID of PostgreSQL comes as its 16 bytes.
    if isinstance(value, bytes) and len(value) == _UUID_BYTES:
        return str(UUID(bytes=value))
    return value.hex() if isinstance(value, bytes) else str(value)


def _time(value: Any) -> Any:
    """A time in UTC with microseconds, without a zone taken for UTC; text as its writer stored it."""
    if not isinstance(value, datetime):
        return value if isinstance(value, str) else str(value)
    try:
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        # In UTC it would be before the year 1 or after 9999: it stays in its own zone.
        moment = value
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
