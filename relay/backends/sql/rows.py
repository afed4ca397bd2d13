"""From rows of the event table to events.

The columns `id`, `partition_key` and `data` are required; `action`, `created_at`, `sequence`, `traceparent` and
`type` are used if the table has them. They become the fields that a document of every outbox has
(relay/core/documents.py):

    {"id": …, "partitionKey": …, "type": …, "data": {"action": …, "createdAt": …, …},
     "sequence": …, "traceparent": …}

`data` is what its writer stored; `action` and `created_at` are added if it has no such member. The message's
body is the text of the column, to which nothing else is done. Columns of types that JSON does not have become
text, so that every row can be stored in quarantine. Where relay.toml names fields, they are taken from the row as
an object by the names of its columns, and a place within a column is in the JSON that its text is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from outbox_relay.changefeed.statements import Entry
from outbox_relay.changefeed.ulid import milliseconds
from relay.backends.canary import is_canary
from relay.core import jsontext
from relay.core.documents import Numeric, SourceDocument, StoredDocument
from relay.core.errors import described
from relay.core.events import Event, Received, Rejected, read_event
from relay.core.place import Place, RowPlace
from relay.routes.selection import Selection

REQUIRED_COLUMNS = ("id", "partition_key", "data")
_REQUIRED = tuple(zip(("id", "partitionKey", "data"), REQUIRED_COLUMNS, strict=True))
OPTIONAL_COLUMNS = ("action", "created_at", "sequence", "traceparent", "type")

_UUID_BYTES = 16


def select(entries: Iterable[Entry], shard_id: int, selection: Selection) -> Received:
    """The events of a page, in the order of the feed; rows that are none of the stream's are ignored."""
    return select_each(entries, shard_id, lambda _: selection)


def select_each(entries: Iterable[Entry], shard_id: int, selection_of: Callable[[Entry], Selection]) -> Received:
    """Pick the events of a page as `select` does, each by the selection that counts for it."""
    received = Received()
    position = 0
    for entry in entries:
        selection = selection_of(entry)
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


def document_if_taken(entry: Entry, shard_id: int, selection: Selection) -> SourceDocument | None:
    """Return the document of an entry that is one of the stream's, or None for any other.

    A deleted row is the first stream's, because nothing is known of it but its key. A smoke test deletes its event
    when the event's own stream has passed it, which says nothing of the first one. A row that cannot be read is
    the first stream's, too.
    """
    if entry.row is None:
        is_nobodys = bool(selection.routes) and any(map(is_canary, entry.key.values()))
        return document_of(entry, shard_id, selection) if selection.is_first and not is_nobodys else None
    try:
        return _if_taken(entry, entry.row, shard_id, selection)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - one row must not end the page
        return _unreadable(entry, entry.row, shard_id, selection, error) if selection.is_first else None


def _if_taken(entry: Entry, row: Mapping[str, Any], shard_id: int, selection: Selection) -> SourceDocument | None:
    if not selection.fields.names_fields and not selection.has_type(type_of(row, selection)):
        return None
    document = document_of(entry, shard_id, selection)
    is_sure = selection.is_by_type and not selection.fields.names_fields
    return document if is_sure or selection.takes(document) else None


def _unreadable(
    entry: Entry, row: Mapping[str, Any], shard_id: int, selection: Selection, error: Exception
) -> SourceDocument:
    """Return the document of a row from which no event can be made, by a defect of the relay."""
    stored = {name: _cell(value) for name, value in row.items()}
    names = {"id": selection.fields.column_of("id"), "partitionKey": selection.fields.column_of("key")}
    fields = {name: stored[column] for name, column in names.items() if isinstance(stored.get(column), str)}
    problem = f"the row cannot be read: {described(error)}"
    place = RowPlace(shard_id, entry.ulid)
    return SourceDocument(stored, {**fields, "type": selection.type}, place, problem=problem)


def type_of(row: Mapping[str, Any], selection: Selection) -> Any:
    """Return the type of a row: that of a table without such a column is the first of the stream's."""
    return row.get("type", selection.type)


def event_in(document: SourceDocument, entry: Entry, selection: Selection, position: int) -> Event | Rejected:
    """Return the event of one entry whose document was made before; `position` is its place in its page."""
    event = read_event(document, position, committed_at=committed_at(entry.ulid))
    return event if entry.row is None else selection.judged(event)


def committed_at(ulid: bytes) -> int:
    """Return the time at which an event with this position was committed, in whole seconds since 1970."""
    # A clock that has stepped back leaves positions ahead of the time: no event was committed in the future.
    return min(position_time(ulid), int(time.time()))


def position_time(ulid: bytes) -> int:
    """Return the time in a position, in whole seconds since 1970: it is the same for every process."""
    return milliseconds(ulid) // 1000


def document_of(entry: Entry, shard_id: int, selection: Selection) -> SourceDocument:
    """Return the document of one entry. Of a row that does not exist, it has the primary key and no more."""
    place = RowPlace(shard_id, entry.ulid)
    if entry.row is None:
        key = {name: identifier_of(value) for name, value in entry.key.items()}
        column = selection.fields.column_of("id")
        named = {"id": key[column]} if column in key else {}
        return SourceDocument(key, {**key, **named, "type": selection.type}, place)
    return of_row(entry.row, place, selection)


def of_row(row: Mapping[str, Any], place: Place | RowPlace, selection: Selection) -> SourceDocument:
    """Return the document of a row, in values of the database or, as quarantine has them, of JSON."""
    if selection.fields.names_fields:
        return _by_columns(row, place, selection)
    data, text = _data(row)
    fields: dict[str, Any] = {
        "id": identifier_of(row.get("id")),
        "partitionKey": identifier_of(row.get("partition_key")),
        "type": type_of(row, selection),
        "data": data,
    }
    for name, column in _REQUIRED:
        if column not in row:
            del fields[name]
    numeric: dict[str, Numeric] = {}
    for column in ("sequence", "traceparent"):
        value = row.get(column)
        if isinstance(value, Decimal | Numeric):
            numeric[column] = _cell(value)
        if value is not None:
            fields[column] = _number(value)
    # The rules of relay.toml see all digits.
    views = ({**fields, **numeric},) if numeric else ()
    return selection.fields.of_fields(SourceDocument(Columns(row), fields, place, body=text, views=views))


def _by_columns(row: Mapping[str, Any], place: Place | RowPlace, selection: Selection) -> SourceDocument:
    """Return the document of a row with other columns."""
    stored = {name: _cell(value) for name, value in row.items()}
    document = selection.fields.of_row(stored, Opened(stored), place, selection.type)
    fields = dict(document.fields)
    for name in ("id", "partitionKey"):
        if isinstance(fields.get(name), int):
            fields[name] = identifier_of(fields[name])
    body = document.body
    column, *within = selection.fields.of_columns("data")[0].names
    text = stored.get(column)
    # A record of an earlier version has the object itself.
    if within and isinstance(text, str) and isinstance(fields.get("data"), dict):
        body = jsontext.member(jsontext.escaped(text), within)
    return SourceDocument(stored, fields, place, document.mapped, body, document.problem, document.views)


class Columns(Mapping[str, Any]):
    """A row by its columns. A value becomes one that JSON has where it is looked at."""

    __slots__ = ("_row",)

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def __getitem__(self, name: str) -> Any:
        return _cell(self._row[name])

    def __contains__(self, name: object) -> bool:
        return name in self._row

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)


class Opened(Mapping[str, Any]):
    """The columns of a row whose text is a JSON object or array, as that. It is read where it is looked at."""

    __slots__ = ("_read", "_row")

    def __init__(self, row: StoredDocument) -> None:
        self._row = row
        self._read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """Return the object or array that a column's text is; the default for any other column."""
        if name not in self._read:
            self._read[name] = _opened(self._row.get(name))
        found = self._read[name]
        return default if found is None else found

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._row if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _opened(value: Any) -> Any:
    """Return the object or array that a text is, or None if it is neither."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value if isinstance(value, dict) else None
    text = jsontext.escaped(value)
    found = jsontext.parsed(text)
    if isinstance(found, dict):
        return jsontext.shallow(found) if jsontext.is_deep(found, text) else found
    return found if isinstance(found, list) and not jsontext.is_deep(found, text) else None


def _cell(value: Any) -> Any:
    """Return a column's value in JSON's types; its kind, if a driver gives one that cannot be written."""
    try:
        return _as_json(value)
    except Exception:  # noqa: BLE001 - a value of any class may raise anything
        return f"({type(value).__name__})"


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes) and len(value) == _UUID_BYTES:
        return identifier_of(value)
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, Decimal):
        return Numeric.of(value)
    return _plain(value)


def _data(row: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Return the payload, and its text if it is an object that came as text."""
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
    """Return the members that columns have and `data` has not."""
    action, created_at = row.get("action"), row.get("created_at")
    added: dict[str, Any] = {}
    if action is not None and "action" not in data:
        added["action"] = _plain(action)
    if created_at is not None and "createdAt" not in data:
        added["createdAt"] = _time(created_at)
    return added


def _plain(value: Any) -> Any:
    """Return a column's value in JSON's types: all but text, integers, booleans and finite numbers become text."""
    # JSON has what a record of an earlier version made of JSON text.
    if value is None or isinstance(value, str | bool | int | dict):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return [_plain(each) for each in value] if isinstance(value, list) else str(value)


def _number(value: Any) -> Any:
    """Return the number that a column of decimals has; any other value as `_plain` returns it."""
    numeric = Numeric.of(value) if isinstance(value, Decimal) else value
    return numeric.number if isinstance(numeric, Numeric) else _plain(value)


def identifier_of(value: Any) -> str | None:
    """Return an id or key as text: numbers and UUIDs as they are written, other bytes as hexadecimal digits."""
    if value is None or isinstance(value, str):
        return value
    # A UUID of PostgreSQL comes as its 16 bytes.
    if isinstance(value, bytes) and len(value) == _UUID_BYTES:
        return str(UUID(bytes=value))
    return value.hex() if isinstance(value, bytes) else str(value)


def _time(value: Any) -> Any:
    """Return a time in UTC with microseconds, without a zone taken for UTC; text as its writer stored it."""
    if not isinstance(value, datetime):
        return value if isinstance(value, str) else str(value)
    try:
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (OverflowError, ValueError):
        # At either end of the calendar, UTC may have no such time.
        return value.isoformat(timespec="microseconds")
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
