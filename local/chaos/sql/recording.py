"""Triggers that record the changes in the database of a campaign, in the transactions that make them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import psycopg

from local.chaos.recordings import RECORD, Leases, Origin, Quarantine, Recorded, claim, position_of
from local.chaos.streams import TABLE
from relay.config.settings import CONSUMER, QUARANTINE_TABLE, SqlFeed

_COMMITTED, _PLACED, _CLAIMED, _STORED, _REMOVED = "committed", "placed", "claimed", "stored", "removed"

_MAKE = """
create schema chaos;
create table chaos.recording (
    number bigint generated always as identity primary key,
    at double precision not null default extract(epoch from clock_timestamp()),
    what text not null,
    of_table text not null,
    content jsonb not null
);
"""
# Readers may not write there themselves: the trigger does it as the owner.
_TRIGGER = """
create function chaos.{what}() returns trigger language plpgsql security definer as $body$
begin
    insert into chaos.recording (what, of_table, content)
    values ('{what}', tg_table_schema || '.' || tg_table_name, jsonb_build_object({values}));
    return null;
end
$body$;
"""
_ON = """
create trigger record_{what}_{number} after {event} on {table} for each row {condition}
execute function chaos.{what}();
"""

_IS_NEWS = "(new.owner, new.epoch, new.last_ulid) is distinct from (old.owner, old.epoch, old.last_ulid)"
_IS_RECORD = f"when (%s.type = '{RECORD}')"

# The values of each.
_VALUES = {
    _COMMITTED: "'id', new.id",
    _PLACED: "'id', new.id, 'shard', new.shard_id, 'ulid', new.ulid",
    _CLAIMED: "'consumer', new.consumer, 'shard', new.shard_id, 'owner', new.owner, 'epoch', new.epoch, "
    "'cursor', new.last_ulid",
    _STORED: "'key', new.key_digest, 'id', new.id, 'of', new.partition_key, 'document', new.document_id, "
    "'reason', new.reason",
    _REMOVED: "'key', old.key_digest, 'id', old.id",
}
READ = "select at, what, of_table, content from chaos.recording order by at, number"


def placed_since(table: str, since: float) -> str:
    """Return the query for the ids and positions of the events of a table that got them since then."""
    return (
        "select content->>'id', content->>'ulid' from chaos.recording "
        f"where what = '{_PLACED}' and of_table = 'changefeed.feed:{table}' and at >= {since}"
    )


def time_of(position: str) -> int:
    """Return the time in a position, in whole seconds since 1970. Its first 48 bits are milliseconds."""
    (number,) = position_of(position)
    return (number >> 80) // 1000


def _triggers(feeds: Iterable[SqlFeed]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the records of each trigger, its table, its event and its condition."""
    consumers = {feed.consumer for feed in feeds}
    of_relay = f"new.consumer in ({', '.join(repr(each) for each in sorted(consumers))})"
    for table in dict.fromkeys(feed.feed for feed in feeds):
        claim_table = f'changefeed."claim:{table}"'
        yield _COMMITTED, table, "insert", ""
        yield _PLACED, f'changefeed."feed:{table}"', "insert", ""
        yield _CLAIMED, claim_table, "insert", f"when ({of_relay})"
        yield _CLAIMED, claim_table, "update", f"when ({of_relay} and {_IS_NEWS})"
    for table in dict.fromkeys(feed.quarantine_table for feed in feeds):
        yield _STORED, table, "insert", _IS_RECORD % "new"
        yield _REMOVED, table, "delete", _IS_RECORD % "old"


async def begin(url: str, feeds: Sequence[SqlFeed]) -> None:
    """Make the triggers, in a database on which the relay is installed for the feeds of its streams."""
    statements = [_MAKE, *(_TRIGGER.format(what=what, values=values) for what, values in _VALUES.items())]
    statements += [
        _ON.format(what=what, number=number, event=event, table=table, condition=condition)
        for number, (what, table, event, condition) in enumerate(_triggers(feeds))
    ]
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("".join(statements).encode())


def recorded(
    rows: Iterable[tuple[float, str, str, dict[str, Any]]],
    feed: str = TABLE,
    consumer: str = CONSUMER,
    quarantined: str = QUARANTINE_TABLE,
) -> Recorded:
    """Return the entries of the rows of `READ` about one stream.

    They are of its feed, its consumer and its quarantine's table.
    """
    found = Recorded()
    leases, quarantine = Leases(found.entries), Quarantine(found.entries)
    own = {
        _COMMITTED: feed,
        _PLACED: f"changefeed.feed:{feed}",
        _CLAIMED: f"changefeed.claim:{feed}",
        _STORED: quarantined,
        _REMOVED: quarantined,
    }
    for at, what, table, values in rows:
        if table != own[what] or values.get("consumer", consumer) != consumer:
            continue
        if what == _COMMITTED:
            found.origins[values["id"]] = Origin(at, None, "")
        elif what == _PLACED:
            placed = position_of(values["ulid"]), str(values["shard"])
            found.origins[values["id"]] = Origin(found.origins[values["id"]].at, *placed)
        elif what == _CLAIMED:
            state = claim(values["owner"], values["epoch"], values["cursor"])
            leases.changed(at, str(values["shard"]), state)
        elif what == _STORED:
            record = values["of"], values["document"], values["reason"]
            quarantine.stored(at, f"{values['key']} {values['id']}", *record)
        else:
            quarantine.removed(at, f"{values['key']} {values['id']}")
    return found
