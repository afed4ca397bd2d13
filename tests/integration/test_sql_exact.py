"""Values that PostgreSQL can hold and Python cannot: none stops a shard, and none is altered."""

from __future__ import annotations

from itertools import product

from changefeed import AsyncFeed, connect_async
from changefeed.statements import Statement
from relay.events import Event, Rejected
from relay.routes.selection import BY_DEFAULT
from relay.servicebus.messages import plain
from tests.support.sql_outbox import TABLE, event_of

_TIMES = ("infinity", "-infinity", "20000-01-01", "0044-03-15 BC", "2026-02-09 11:00+02")
_NUMBERS = ("1e400", "9" * 400, "0.12345678901234567890", "1.10", "-0")
_INSERT = "insert into outbox.domain_event (id, partition_key, data, created_at) values (?, 'k', ?::json, ?)"
_REQUEST = 'insert into changefeed."outbox:outbox.domain_event" (shard_id, id) values (0, ?)'


async def test_numbers_times_and_depths_beyond_pythons_stop_nothing(outbox_database: str) -> None:
    session = await connect_async(outbox_database)
    texts = [f'{{"action":"Made","createdAt":"x","n":{number}}}' for number in _NUMBERS]
    deep = '{"action":"Made","deep":' + "[" * 3000 + "]" * 3000 + "}"
    for number, (text, created_at) in enumerate([*product(texts, _TIMES), (deep, "now")]):
        await session.execute(Statement(_INSERT, (str(number), text, created_at)))
        await session.execute(Statement(_REQUEST, (str(number),)))

    *entries, too_deep = (await AsyncFeed(session, TABLE).read(0)).entries

    for entry, (text, _) in zip(entries, product(texts, _TIMES), strict=True):
        event = event_of(entry, 0, BY_DEFAULT)
        assert isinstance(event, Event)
        assert plain(event).body == text.encode()
    assert isinstance(event_of(too_deep, 0, BY_DEFAULT), Rejected)
    await session.close()
