"""Faults of the workers that relay from SQL: killed, frozen for longer than their claims last, or stopped."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any

import psycopg

from local.chaos.admin import NotInjected
from local.chaos.history import Histories
from local.chaos.streams import TABLE
from local.stack.parts import Part
from local.stack.supervisor import Stack
from verification.journal.entries import Frozen, Resumed

RELAY_KILLED_WITHIN_A_PAGE = "relay-killed-within-a-page"
RELAY_FROZEN = "relay-frozen"
RELAY_FROZEN_WITHIN_A_PAGE = "relay-frozen-within-a-page"
RELAY_STOPPED = "relay-stopped"

_BUSY_WITHIN_S = 3.0
_POLL_EVERY_S = 0.02
# Owners of shards with events that were read and are not known to be published.
_WITHIN_A_PAGE = f"""
select owner from changefeed."claim:{TABLE}" c
join changefeed."state:{TABLE}" s using (shard_id)
where owner is not null and c.last_ulid < s.ulid
"""


class RelayFaults:
    """Injects faults into the workers of a stack.

    Attributes:
        met: Number of times each edge case of the workers was met.
    """

    def __init__(
        self, stack: Stack, history: Histories, tables: Sequence[str], seed: int, *, frozen_s: float
    ) -> None:
        """`tables` are the event tables of the feeds; `frozen_s` is how long a worker stays frozen, in seconds."""
        self._within_a_page = " union ".join(_WITHIN_A_PAGE.replace(TABLE, each) for each in tables).encode()
        self._stack = stack
        self._history = history
        self._rng = random.Random(f"relays-{seed}")
        self._frozen_s = frozen_s
        self._frozen: set[Part] = set()
        self.met: Counter[str] = Counter()

    async def inject(self, kind: str) -> None:
        """Inject one fault; returns when it is over. Raises NotInjected."""
        if not self._workers():
            raise NotInjected(f"{kind}: no worker is up")
        if kind == "stop-relay":
            self._rng.choice(self._workers()).terminate()
            self.met[RELAY_STOPPED] += 1
            return
        worker, busy = await self._busy()
        if kind == "freeze-relay":
            self.met[RELAY_FROZEN_WITHIN_A_PAGE] += busy
            await self._freeze(worker)
        else:
            worker.kill_all()
            self.met[RELAY_KILLED_WITHIN_A_PAGE] += busy

    def kill(self, name: str) -> None:
        """Kill a worker by its name. Raises NotInjected."""
        worker = next((each for each in self._stack.hosts if each.name == name), None)
        if worker is None:
            raise NotInjected(f"{name} is not up")
        worker.kill_all()

    def _workers(self) -> list[Part]:
        return [worker for worker in self._stack.hosts if worker not in self._frozen]

    async def _busy(self) -> tuple[Part, bool]:
        """Return (worker, True) for one processing a page, else (any worker, False) after a timeout."""
        try:
            async with (
                asyncio.timeout(_BUSY_WITHIN_S),
                await psycopg.AsyncConnection.connect(
                    self._stack.settings["SQL"], autocommit=True, application_name="fault"
                ) as connection,
            ):
                while True:
                    found: list[Any] = await (await connection.execute(self._within_a_page)).fetchall()
                    # A worker's name has its process id: host/process/random.
                    owners = {owner.split("/")[1] for (owner,) in found if owner.count("/") == 2}
                    busy = [each for each in self._workers() if str(each.details["relay_pid"]) in owners]
                    if busy:
                        return self._rng.choice(busy), True
                    await asyncio.sleep(_POLL_EVERY_S)
        except (TimeoutError, psycopg.OperationalError) as error:
            if workers := self._workers():
                return self._rng.choice(workers), False
            raise NotInjected("no worker is up") from error

    async def _freeze(self, worker: Part) -> None:
        self._frozen.add(worker)
        try:
            worker.signal_all(signal.SIGSTOP)
            self._history.befell(worker.name, Frozen)
            await asyncio.sleep(self._frozen_s)
        finally:
            worker.signal_all(signal.SIGCONT)
            self._history.befell(worker.name, Resumed)
            self._frozen.discard(worker)
        self.met[RELAY_FROZEN] += 1
