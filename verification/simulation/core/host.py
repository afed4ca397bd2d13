"""A Functions host: a change feed processor that balances leases, and calls the worker until it succeeds.

The emulator of the host (`outbox_relay.emulators.functions`) does all of it over the wire, as the platform does.
This is the smallest model that gives the relay the same, so that millions of universes can be run.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from verification.simulation.channel import LineError
from verification.simulation.core.container import Document, GoneError
from verification.simulation.core.leases import Lease, LeaseChangedError, LeaseLostError
from verification.simulation.core.worker import Worker

if TYPE_CHECKING:
    from verification.simulation.core.services import Services

# The trigger's own timings, in seconds.
ACQUIRE_S, RENEW_S, EXPIRE_S = 13.0, 17.0, 60.0
# Between two reads of an idle feed: the platform's are equally far apart, and these get rarer, which saves rounds.
_POLL_S, _LONGEST_POLL_S = 2.5, 40.0
_PAGE = 40
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


class Host:
    """A host and its worker, which is another process."""

    def __init__(self, services: Services, name: str) -> None:
        self.services = services
        self.process = services.world.process(name)
        self.workers = 0
        self.worker = self._new_worker()
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._owned: dict[int, Lease] = {}
        self._invocations = 0
        self.process.start(self._run())

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def works(self) -> bool:
        """Neither killed nor frozen."""
        return self.process.is_alive and not self.process.is_frozen

    def _new_worker(self) -> Worker:
        self.workers += 1
        return Worker(self.services, f"{self.process.name}/{self.workers}")

    async def _run(self) -> None:
        self.process.start(self._renew())
        entropy = self.services.world.entropy
        while True:
            with contextlib.suppress(LineError):
                await self._balance()
            await asyncio.sleep(ACQUIRE_S * entropy.uniform(0.9, 1.1))

    async def _balance(self) -> None:
        services = self.services
        leases = list((await services.to_leases.ask(lambda: dict(services.leases.all))).values())
        now = self.process.wall()
        alive = [lease for lease in leases if lease.owner is not None and now - lease.renewed <= EXPIRE_S]
        held = Counter(lease.owner for lease in alive)
        share = math.ceil(len(leases) / len(held.keys() | {self.name})) if leases else 0
        wanted = [lease for lease in leases if lease not in alive]
        if not wanted and held and held[self.name] < share:
            most = max(held, key=lambda owner: (held[owner], owner or ""))
            if held[most] > share:
                wanted = [lease for lease in alive if lease.owner == most][:1]
        for lease in wanted[: max(0, share - held[self.name])]:
            # A reader that has lost its lease ends by itself, after its invocation.
            if lease.number not in self._reading:
                await self._acquire(lease)

    async def _acquire(self, lease: Lease) -> None:
        now = self.process.wall()
        leases = self.services.leases
        try:
            taken = await self.services.to_leases.ask(lambda: leases.change(lease, owner=self.name, renewed=now))
        except (LeaseLostError, LineError):
            return
        self._owned[lease.number] = taken
        self._reading[lease.number] = self.process.start(self._read(taken))

    async def _update(self, lease: Lease, **changes: Any) -> Lease:
        """Change an own lease. Raises LeaseLostError and LineError.

        After a conflict the processor reads the lease again, and continues while it is the owner. What is long on
        its way finds another lease, and changes nothing.
        """
        now, leases = self.process.wall(), self.services.leases
        while True:
            version = leases.version_of(lease.number)
            with contextlib.suppress(LeaseChangedError):
                return await self.services.to_leases.ask(
                    lambda version=version: leases.change_own(  # type: ignore[misc]
                        lease.number, self.name, version, renewed=now, **changes
                    )
                )

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            for lease in list(self._owned.values()):
                try:
                    await self._update(lease)
                except LeaseLostError:
                    self._owned.pop(lease.number, None)
                except LineError:
                    pass

    async def _read(self, lease: Lease) -> None:
        services = self.services
        position, idle_s = lease.position, _POLL_S
        try:
            while lease.number in self._owned:
                after = -1 if position is None else position
                page = await services.to_container.ask(
                    lambda after=after: services.container.read(lease.number, after, _PAGE)  # type: ignore[misc]
                )
                if not page:
                    idle_s = min(2 * idle_s, _LONGEST_POLL_S)
                    await asyncio.sleep(idle_s)
                    continue
                if lease.number not in self._owned:
                    break
                idle_s = _POLL_S
                await self._invoke(page)
                position = await self._checkpoint(lease, page)
        except GoneError:
            await self._follow_split(lease, position)
        except (LeaseLostError, LineError):
            await self._give_up(lease)
        finally:
            self._owned.pop(lease.number, None)
            self._reading.pop(lease.number, None)

    async def _invoke(self, page: list[Document]) -> None:
        self._invocations += 1
        invocation = f"{self.name}-{self._invocations}"
        pause_s, retry = _FIRST_PAUSE_S, 0
        while True:
            try:
                await self.worker.invoke([dict(each) for each in page], invocation, retry)
            except Exception:  # noqa: BLE001 - whatever it is, the retry policy repeats the invocation
                retry += 1
                await asyncio.sleep(pause_s * self.services.world.entropy.uniform(0.8, 1.2))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                if not self.worker.process.is_alive:
                    self.worker = self._new_worker()
            else:
                return

    async def _checkpoint(self, lease: Lease, page: list[Document]) -> int:
        position = int(page[-1]["_lsn"])
        while True:
            try:
                self._owned[lease.number] = await self._update(lease, position=position)
            except LineError:
                # The answer may be lost: the change is made again.
                continue
            return position

    async def _follow_split(self, lease: Lease, position: int | None) -> None:
        with contextlib.suppress(LineError):
            await self.services.to_leases.ask(lambda: self.services.leases.divide(lease, self.name, position))

    async def _give_up(self, lease: Lease) -> None:
        with contextlib.suppress(LeaseLostError, LineError):
            await self._update(lease, owner=None)
