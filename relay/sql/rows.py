"""From rows of the event table to events.

The columns `id`, `partition_key` and `data` are required; `action`, `created_at`, `sequence`, `traceparent` and
`type` are used where the table has them. A row becomes a document of the shape that every outbox has
(relay/events.py), with its position beside it:

    {"id": …, "partitionKey": …, "type": …, "data": {"action": …, "createdAt": …, …},
     "sequence": …, "traceparent": …, "_shard": 0, "_ulid": "01JD…"}

`data` is what its writer stored; `action` and `created_at` are added where it has no such member. The message's
body is the text of the column, to which nothing else is done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from changefeed.statements import Entry
from changefeed.ulid import milliseconds, to_text
from relay.events import DATA_TEXT, Event, Received, Rejected, read_event

REQUIRED_COLUMNS = ("id", "partition_key", "data")
OPTIONAL_COLUMNS = ("action", "created_at", "sequence", "traceparent", "type")

_UUID_BYTES = 16


def select(entries: Iterable[Entry], shard_id: int, event_type: str) -> Received:
    """The events of a page, in the order of the feed; rows of another type are ignored."""
    received = Received()
    position = 0
    for entry in entries:
        if not is_of_type(entry, event_type):
            received.ignored += 1
            continue
        event = event_of(entry, shard_id, event_type, position)
        position += 1
        if isinstance(event, Event):
            received.events.append(event)
        else:
            received.rejected.append(event)
    return received


def is_of_type(entry: Entry, event_type: str) -> bool:
    """Whether the relay relays it. Of a row that does not exist, nobody knows that it is of another type."""
    return entry.row is None or entry.row.get("type", event_type) == event_type


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
        key = {name: _identifier(value) for name, value in entry.key.items()}
        return {**key, "type": event_type, **place}
    row = entry.row
    data, text = _data(row)
    document: dict[str, Any] = {
        "id": _identifier(row.get("id")),
        "partitionKey": _identifier(row.get("partition_key")),
        "type": row.get("type", event_type),
        "data": data,
        **place,
    }
    if text is not None:
        document[DATA_TEXT] = text
    for column in ("sequence", "traceparent"):
        if row.get(column) is not None:
            document[column] = row[column]
    return document


def _data(row: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The payload, and its text if it is an object that came as text."""
    data = row.get("data")
    if not isinstance(data, str):
        return (data | _added(row, data), None) if isinstance(data, dict) else (data, None)
    parsed = _parsed(data)
    if not isinstance(parsed, dict):
        # It is quarantined as it stands.
        return (data if parsed is None else parsed), None
    added = _added(row, parsed)
    if not added:
        return parsed, data
    # Put before the text's own members, none of which is written anew.
    members = data.lstrip()[1:]
    comma = "" if not parsed else ","
    return {**added, **parsed}, orjson.dumps(added).decode()[:-1] + comma + members


def _parsed(text: str) -> Any:
    """What the text means; None where that cannot be found out. Numbers may lose digits."""
    try:
        return orjson.loads(text)
    except ValueError:
        # It is no JSON, or has a number or a depth that orjson refuses.
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None


def _added(row: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """What columns have and `data` has not."""
    action, created_at = row.get("action"), row.get("created_at")
    added: dict[str, Any] = {}
    if action is not None and "action" not in data:
        added["action"] = action
    if created_at is not None and "createdAt" not in data:
        added["createdAt"] = _time(created_at)
    return added


def _identifier(value: Any) -> str | None:
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
    moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
