"""The services of an SQL outbox's world: the database, beside what every world has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relay.config.settings import CONSUMER
from verification.journal import entries
from verification.simulation import services
from verification.simulation.channel import RpcChannel
from verification.simulation.plan import Plan
from verification.simulation.sql.server import Server
from verification.simulation.sql.tables import ClaimRow, Placed
from verification.simulation.world import World

# Shorter than in the other worlds, as relays look at an idle shard every second.
WINDOW_S = 120.0


class Services(services.Services):
    """The services, in one world.

    Attributes:
        names: The names of processes, by those that their relays have.
    """

    def __init__(self, world: World, plan: Plan) -> None:
        super().__init__(world, plan, WINDOW_S)
        self.server = Server(world)
        self.server.noted = self._claim_changed
        self.server.tables.placed = self._placed
        self.to_database = RpcChannel(world, "database")
        self.names: dict[str, str] = {}
        self._committed: dict[str, int] = {}

    def commit(self, entry: entries.Committed) -> None:
        """Note an event that is committed; its position becomes known later."""
        self._committed[entry.id] = len(self.journal)
        self.journal.append(entry)

    def _placed(self, rows: Sequence[Placed]) -> None:
        for row in rows:
            number = self._committed.get(row.identifier)
            if number is not None:
                entry = self.journal[number]
                assert isinstance(entry, entries.Committed)
                self.journal[number] = replace(entry, position=_position(row.ulid))

    def _claim_changed(self, by: str, before: ClaimRow, after: ClaimRow) -> None:
        if after.consumer != CONSUMER:
            return
        if (before.owner, before.epoch) != (after.owner, after.epoch):
            if before.owner is not None:
                self._note(entries.Lost, by, before)
            if after.owner is not None:
                self._note(entries.Claimed, by, after)
        if before.last_ulid != after.last_ulid:
            self.journal.append(
                entries.Checkpointed(
                    at=self.at,
                    by=by,
                    lease=str(after.shard_id),
                    owner=by,
                    epoch=after.epoch,
                    position=_position(after.last_ulid),
                )
            )

    def _note(self, kind: type[entries.Claimed | entries.Lost], by: str, row: ClaimRow) -> None:
        owner = self.names.get(row.owner or "", "")
        self.journal.append(kind(at=self.at, by=by, lease=str(row.shard_id), owner=owner, epoch=row.epoch))


def _position(ulid: bytes) -> entries.Position:
    return (int.from_bytes(ulid),)
