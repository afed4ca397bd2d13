"""Values that PostgreSQL can hold and Python cannot: none stops a shard, and none is altered."""

from __future__ import annotations

from itertools import product

from outbox_relay.changefeed import AsyncFeed, connect_async
from outbox_relay.changefeed.statements import Statement
from relay.core.events import Reason, Rejected
from relay.routes.selection import BY_DEFAULT
from relay.servicebus.messages import plain
from tests.support.sql_outbox import TABLE, event_of

_TIMES = ("infinity", "-infinity", "20000-01-01", "0044-03-15 BC", "2026-02-09 11:00+02")
_NUMBERS = ("1e400", "9" * 400, "0.12345678901234567890", "1.10", "-0")
_DEPTHS = (900, 3000, 12_000)
"""Levels that every version of Python reads as JSON, that 3.13 reads and 3.11 does not, and that neither reads."""
_INSERT = "insert into outbox.domain_event (id, partition_key, data, created_at) values (?, 'k', ?::json, ?)"
_REQUEST = 'insert into changefeed."outbox:outbox.domain_event" (shard_id, id) values (0, ?)'


async def test_numbers_times_and_depths_beyond_pythons_stop_nothing(outbox_database: str) -> None:
    session = await connect_async(outbox_database)
    texts = [f'{{"action":"Made","createdAt":"x","n":{number}}}' for number in _NUMBERS]
    deep = [f'{{"action":"Made","createdAt":"x","deep":{"[" * depth}{"]" * depth}}}' for depth in _DEPTHS]
    for number, (text, created_at) in enumerate([*product(texts, _TIMES), *product(deep, ["now"])]):
        await session.execute(Statement(_INSERT, (str(number), text, created_at)))
        await session.execute(Statement(_REQUEST, (str(number),)))

    entries = (await AsyncFeed(session, TABLE).read(0)).entries
    await session.close()
    events = [event_of(entry, 0, BY_DEFAULT) for entry in entries]

    for event, text in zip(events, [*(text for text in texts for _ in _TIMES), *deep], strict=True):
        if isinstance(event, Rejected):
            assert text in deep[1:]
            assert event.reason is Reason.DATA_NOT_OBJECT
        else:
            assert plain(event).body == text.encode()
