"""From rows of the event table to events.

The columns `id`, `partition_key` and `data` are required; `action`, `created_at`, `sequence`, `traceparent` and
`type` are used where the table has them. A row becomes a document of the shape that every outbox has
(relay/events.py), with its position beside it:

    {"id": …, "partitionKey": …, "type": …, "data": {"action": …, "createdAt": …, …},
     "sequence": …, "traceparent": …, "_shard": 0, "_ulid": "01JD…"}

`data` is what its writer stored; `action` and `created_at` are added where it has no such member.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from changefeed.statements import Entry
from changefeed.ulid import milliseconds, to_text
from relay.events import Event, Received, Rejected, read_event

REQUIRED_COLUMNS = ("id", "partition_key", "data")
OPTIONAL_COLUMNS = ("action", "created_at", "sequence", "traceparent", "type")


def select(entries: Iterable[Entry], shard_id: int, event_type: str) -> Received:
    """The events of a page, in the order of the feed; rows of another type are ignored."""
    received = Received()
    position = 0
    for entry in entries:
        if entry.row is not None and entry.row.get("type", event_type) != event_type:
            received.ignored += 1
            continue
        event = event_of(entry, shard_id, event_type, position)
        position += 1
        if isinstance(event, Event):
            received.events.append(event)
        else:
            received.rejected.append(event)
    return received


def event_of(entry: Entry, shard_id: int, event_type: str, position: int = 0) -> Event | Rejected:
    """The event of one entry; `position` is its place among those it came with."""
    document = document_of(entry, shard_id, event_type)
    # A clock that has stepped back leaves positions ahead of the time: no event was committed in the future.
    committed_at = min(milliseconds(entry.ulid) // 1000, int(time.time()))
    return read_event(document, position, committed_at=committed_at)


def document_of(entry: Entry, shard_id: int, event_type: str) -> dict[str, Any]:
    """The document of one entry. Of a row that does not exist, it has the primary key and no more."""
    place = {"_shard": shard_id, "_ulid": to_text(entry.ulid)}
    if entry.row is None:
        return {**{name: _plain(value) for name, value in entry.key.items()}, "type": event_type, **place}
    row = entry.row
    document: dict[str, Any] = {
        "id": _plain(row.get("id")),
        "partitionKey": _plain(row.get("partition_key")),
        "type": row.get("type", event_type),
        "data": _data(row),
        **place,
    }
    for column in ("sequence", "traceparent"):
        if row.get(column) is not None:
            document[column] = row[column]
    return document


def _data(row: Mapping[str, Any]) -> Any:
    data = row.get("data")
    if isinstance(data, str | bytes):
        try:
            data = orjson.loads(data)
        except ValueError:
            # It is quarantined as it stands: no object, so no payload.
            return data.decode(errors="replace") if isinstance(data, bytes) else data
    if not isinstance(data, dict):
        return data
    named = (("action", row.get("action")), ("createdAt", row.get("created_at")))
    added = {name: _plain(value) for name, value in named if value is not None and name not in data}
    return {**added, **data} if added else data


def _plain(value: Any) -> Any:
    """A value of a column as JSON has it: times in UTC with microseconds, identifiers as text."""
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
