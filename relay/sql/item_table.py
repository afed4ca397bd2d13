"""The table relay.item: its statements, in the SQL that all databases have in common, and its rows."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from changefeed.statements import Row
from relay.quarantine.items import Filter, Item, RecordSummary
from relay.quarantine.record import RECORD_TYPE
from relay.sql.texts import decode, digest, encode, encode_id

# The columns of a summary, and what `RecordSummary.of` calls them.
_SUMMARY = {
    "id": "id",
    "partition_key": "partitionKey",
    "reason": "reason",
    "detail": "detail",
    "quarantined_at": "quarantinedAt",
    "position": "position",
    "invocation_id": "invocationId",
    "document_id": "documentId",
    "document_parts": "documentParts",
    "lsn": "lsn",
    "place": "place",
    "ulid": "ulid",
}
_COLUMNS = ("key_digest", "etag", "type", "body", *_SUMMARY)

_ITEM = " where key_digest = ? and id = ?"
INSERT = f"insert into relay.item ({', '.join(_COLUMNS)}) values ({', '.join('?' * len(_COLUMNS))})"
READ = f"select body, touched_at, etag from relay.item{_ITEM}"
EXISTS = f"select 1 from relay.item{_ITEM}"
TOUCH = f"update relay.item set etag = ?, touched_at = ?{_ITEM}"
DELETE = f"delete from relay.item{_ITEM}"
DELETE_UNCHANGED = f"{DELETE} and etag = ?"

HOLDS = "select body from relay.item where type in (?, ?)"
OF_TYPE = "select body, touched_at from relay.item where type = ?"
COUNT = "select count(*) from relay.item where type = ?"
SUMMARIES = f"select {', '.join(_SUMMARY)} from relay.item where type = ?"
WITH_REASON = " and reason = ?"
WITH_KEY = " and key_digest = ?"
SINCE = " and quarantined_at >= ?"
WITH_ID = " and id like ? escape '!'"
IN_ORDER = " order by quarantined_at, position, id"
AT_MOST = " offset 0 rows fetch next ? rows only"

BEGIN, COMMIT, ROLLBACK = "begin transaction", "commit", "rollback"


def values_of(item: Item) -> list[Any]:
    """The parameters of INSERT."""
    # In ASCII: the database's encoding does not matter.
    body = json.dumps(dict(item))
    row: dict[str, Any] = {"id": encode_id(item["id"]), "partitionKey": encode(item["partitionKey"])}
    if item["type"] == RECORD_TYPE:
        document = item.get("document")
        named = {**item, "place": item.get("order"), "documentId": None}
        if isinstance(document, dict) and isinstance(document.get("id"), str):
            named["documentId"] = document["id"]
        row = {name: _encoded(named.get(name)) for name in _SUMMARY.values()} | row
    return [digest(item["partitionKey"]), new_etag(), item["type"], body, *map(row.get, _SUMMARY.values())]


def item_of(body: str, touched_at: str | None) -> Item:
    """An item of its columns."""
    item: dict[str, Any] = json.loads(body)
    return item if touched_at is None else {**item, "touchedAt": touched_at}


def summary_of(row: Row) -> RecordSummary:
    """A row of SUMMARIES."""
    named = zip(_SUMMARY.values(), row, strict=True)
    return RecordSummary.of(
        {name: decode(value) if isinstance(value, str) else value for name, value in named if value is not None}
    )


def records(chosen: Filter) -> tuple[str, list[object]]:
    """What stands behind COUNT or SUMMARIES, and the parameters of both."""
    conditions, values = "", [RECORD_TYPE]
    if chosen.reason is not None:
        conditions += WITH_REASON
        values.append(encode(chosen.reason))
    if chosen.partition_key is not None:
        conditions += WITH_KEY
        values.append(digest(chosen.partition_key))
    if chosen.since is not None:
        conditions += SINCE
        values.append(chosen.since)
    return conditions, list(values)


def new_etag() -> str:
    """An ETag that no item has had."""
    return uuid4().hex


def _encoded(value: Any) -> Any:
    return encode(value) if isinstance(value, str) else value
