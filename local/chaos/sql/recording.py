"""What happens in the database of a campaign, recorded by triggers in the transactions that do it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from local.chaos.recordings import RECORD, Leases, Origin, Quarantine, Recorded, claim, position_of

_TABLE = "outbox.domain_event"
_CONSUMER = "relay"
_COMMITTED, _PLACED, _CLAIMED, _STORED, _REMOVED = "committed", "placed", "claimed", "stored", "removed"

_MAKE = """
create schema chaos;
create table chaos.recording (
    number bigint generated always as identity primary key,
    at double precision not null default extract(epoch from clock_timestamp()),
    what text not null,
    content jsonb not null
);
"""
# Readers may not write there themselves: the trigger does it as the owner.
_TRIGGER = """
create function chaos.{what}() returns trigger language plpgsql security definer as $body$
begin
    insert into chaos.recording (what, content) values ('{what}', jsonb_build_object({values}));
    return null;
end
$body$;
"""
_ON = """
create trigger record_{what}_{number} after {event} on {table} for each row {condition}
execute function chaos.{what}();
"""

_FEED = f'changefeed."feed:{_TABLE}"'
_CLAIM = f'changefeed."claim:{_TABLE}"'
_OF_RELAY = f"new.consumer = '{_CONSUMER}'"
_IS_NEWS = "(new.owner, new.epoch, new.last_ulid) is distinct from (old.owner, old.epoch, old.last_ulid)"

# For each: the values, and the table, event and condition of each of its triggers.
_TRIGGERS: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    _COMMITTED: ("'id', new.id", [(_TABLE, "insert", "")]),
    _PLACED: ("'id', new.id, 'shard', new.shard_id, 'ulid', new.ulid", [(_FEED, "insert", "")]),
    _CLAIMED: (
        "'shard', new.shard_id, 'owner', new.owner, 'epoch', new.epoch, 'cursor', new.last_ulid",
        [
            (_CLAIM, "insert", f"when ({_OF_RELAY})"),
            (_CLAIM, "update", f"when ({_OF_RELAY} and {_IS_NEWS})"),
        ],
    ),
    _STORED: (
        "'key', new.key_digest, 'id', new.id, 'of', new.partition_key, 'document', new.document_id, "
        "'reason', new.reason",
        [("relay.item", "insert", f"when (new.type = '{RECORD}')")],
    ),
    _REMOVED: (
        "'key', old.key_digest, 'id', old.id",
        [("relay.item", "delete", f"when (old.type = '{RECORD}')")],
    ),
}
READ = "select at, what, content from chaos.recording order by at, number"


async def begin(url: str) -> None:
    """Make the triggers, in a database on which the relay is installed."""
    statements = [_MAKE]
    for what, (values, triggers) in _TRIGGERS.items():
        statements.append(_TRIGGER.format(what=what, values=values))
        for number, (table, event, condition) in enumerate(triggers):
            statements.append(_ON.format(what=what, number=number, event=event, table=table, condition=condition))
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("".join(statements).encode())


def recorded(rows: Iterable[tuple[float, str, dict[str, Any]]]) -> Recorded:
    """What the rows of `READ` say."""
    found = Recorded()
    leases, quarantine = Leases(found.entries), Quarantine(found.entries)
    for at, what, values in rows:
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
