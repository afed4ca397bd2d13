"""Writes to an SQL outbox of one shard for a measurement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import psycopg

_EVENTS = "copy outbox.domain_event (id, partition_key, type, data) from stdin"
_PLACES = 'copy changefeed."outbox:outbox.domain_event" (shard_id, id) from stdin'
_SHARD = 0


async def fill(url: str, documents: Sequence[dict[str, Any]]) -> None:
    """Write documents in their order, all in one transaction: readers see all of them at once."""
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.cursor() as cursor:
        async with cursor.copy(_EVENTS) as copy:
            for each in documents:
                row = each["id"], each["partitionKey"], each["type"], json.dumps(each["data"])
                await copy.write_row(row)
        async with cursor.copy(_PLACES) as copy:
            for each in documents:
                await copy.write_row((_SHARD, each["id"]))
