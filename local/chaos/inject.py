"""Injects faults into a stack: those of the broker and of Blob Storage, and the others by the source's side."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from local.chaos.admin import AdminPorts, NotInjected
from local.chaos.bystander import Bystander
from local.chaos.edge_cases import BLOB_CAUSES, BROKER_CAUSES, KILLED_AFTER_BLOB, count_met
from local.chaos.history import Histories
from local.chaos.schedule import BLOB_KINDS, BROKER_KINDS, BYSTANDER_KINDS, PEER_KINDS, Fault, draw
from local.chaos.sources import SourceSide
from local.chaos.streams import Destination
from local.stack.parts import Part
from local.stack.supervisor import Stack
from outbox_relay.emulators.servicebus.edges import Oversized

_RECEIVER_KINDS = ("cut-receiver", "expire-locks")
# Faults that last a while from the first transfer they hit, and the broker's names for them.
_TIMED_FROM_FIRST_HIT = {
    "refuse-content": "reject",
    "refuse-everything": "reject",
    "shrink-limit": "shrink-limit",
}
# The broker's names of faults that have another name here.
_NAMES = {"end-in-flight": "end-on-transfer", "late-acceptance": "delay-ack", "described-info": "reject"}
# Faults that the broker applies to the links that are idle when it is asked.
_IDLE_KINDS = ("detach-idle", "close-idle")
_CUT = 3
_POLL_EVERY_S = 0.1
_APPLIED_WITHIN_S = 20.0
_EXPIRES_AFTER_MS = 120_000
_MET_WITHIN_S = 15.0
_TRIES = 3


class Injector:
    """Injects faults into a running stack.

    Attributes:
        injected: By kind, how many faults were injected.
        applied: By kind, how many requests, transfers and connections were hit by the services' faults.
        failures: The faults that could not be injected, and why.
    """

    def __init__(
        self,
        stack: Stack,
        admin: AdminPorts,
        source: SourceSide,
        bystander: Bystander,
        *,
        destinations: Sequence[Destination],
        seed: int,
        shrunk_bytes: int,
    ) -> None:
        """`shrunk_bytes` is the temporary limit of a transfer; every well-formed event must fit.

        Each fault of the broker is injected into one of the `destinations`, drawn by the `seed`.
        """
        self._destinations = destinations
        self._rng = random.Random(f"destinations-{seed}")
        self._stack = stack
        self._admin = admin
        self._source = source
        self._bystander = bystander
        self._shrunk_bytes = shrunk_bytes
        self._standing: set[int] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._met: Counter[str] = Counter()
        self._refusals = 0
        self.injected: Counter[str] = Counter()
        self.applied: Counter[str] = Counter()
        self.failures: list[str] = []

    @property
    def refuses_everything(self) -> bool:
        """True while a destination refuses every event, or is about to."""
        return self._refusals > 0

    async def inject(self, fault: Fault) -> None:
        """Inject one fault, without waiting until it is over."""
        self.injected[fault.kind] += 1
        lasting = self._lasting(fault)
        if lasting is not None:
            self._begin(fault, lasting)
        else:
            await self._recorded(fault, self._at_once(fault))

    async def begin(self, plans: Iterable[dict[str, Any]]) -> None:
        """Inject faults of the broker that last until the campaign ends, at every destination."""
        for plan in plans:
            for each in self._destinations:
                content = {"entity": each.entity, **plan}
                made = await self._admin.post(self._stack.servicebus, "faults", content)
                self._standing.add(made["id"])

    async def set_status(self, destination: Destination, status: str) -> None:
        """Set the status of a destination; while the broker does not answer, it is asked again."""
        while True:
            with suppress(NotInjected):
                path = f"entities/{destination.entity}/status"
                await self._admin.post(self._stack.servicebus, path, {"status": status})
                return
            await asyncio.sleep(_POLL_EVERY_S)

    def _lasting(self, fault: Fault) -> Coroutine[Any, Any, None] | None:
        if fault.kind in _IDLE_KINDS:
            return self._until_a_link_is_idle(fault)
        if fault.kind in _TIMED_FROM_FIRST_HIT:
            work = self._from_first_hit(fault)
            return self._refusing(work) if fault.kind == "refuse-everything" else work
        if fault.kind in BYSTANDER_KINDS:
            return self._bystander.inject(fault.kind)
        if fault.kind == "kill-after-blob":
            return self._kill_after_blob(self._blobs, fault)
        return self._source.lasting(fault)

    def _begin(self, fault: Fault, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._recorded(fault, work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _recorded(self, fault: Fault, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except NotInjected as error:
            self.injected[fault.kind] -= 1
            self.failures.append(f"{fault.kind} was not injected: {error}")

    async def _at_once(self, fault: Fault) -> None:
        if fault.kind in BLOB_KINDS:
            await self._admin.post(self._blobs, "faults", {"kind": fault.kind, **fault.options})
        elif fault.kind not in BROKER_KINDS | PEER_KINDS:
            await self._source.at_once(fault)
        elif fault.kind == "silent-handshake":
            await self._silence(fault)
        elif fault.kind == "restart-broker":
            await self._admin.post(self._stack.servicebus, "restart", {"keep": True})
        else:
            one = self._any()
            entity = one.receiving if fault.kind in _RECEIVER_KINDS else one.entity
            await self._admin.post(
                self._stack.servicebus,
                "faults",
                {"kind": _NAMES.get(fault.kind, fault.kind), "entity": entity, **fault.options},
            )

    def _any(self) -> Destination:
        return self._rng.choice(self._destinations)

    @property
    def _blobs(self) -> Part:
        assert self._stack.blobs is not None
        return self._stack.blobs

    async def _kill_after_blob(self, blobs: Part, fault: Fault) -> None:
        """Kill a process that has written a content and still waits for the answer, so it has sent no message."""
        content = {"kind": "withhold-answer", "for_ms": _EXPIRES_AFTER_MS}
        path = f"faults/{(await self._admin.post(blobs, 'faults', content))['id']}"
        by = None
        try:
            async with asyncio.timeout(_APPLIED_WITHIN_S):
                while (withheld := (await self._admin.get(blobs, path))["withheld"]) is None:
                    await asyncio.sleep(_POLL_EVERY_S)
                by = withheld["by"]
                await self._source.kill(by, fault.options["kill"])
                while not (await self._admin.get(blobs, path))["withheld"]["client_left"]:
                    await asyncio.sleep(_POLL_EVERY_S)
        except TimeoutError as error:
            raise NotInjected("no content was written in time" if by is None else f"{by} went on") from error
        finally:
            await self._admin.delete(blobs, path)
        self._met[KILLED_AFTER_BLOB] += 1

    async def _silence(self, fault: Fault) -> None:
        """Silence what connects for a while, and cut connections of the relay, so that it has to."""
        await self._admin.post(self._stack.servicebus, "faults", {"kind": fault.kind, **fault.options})
        cut = {"kind": "cut-before-transfer", "entity": self._any().entity, "count": _CUT}
        await self._admin.post(self._stack.servicebus, "faults", cut)

    async def _until_a_link_is_idle(self, fault: Fault) -> None:
        content = {"kind": fault.kind, "entity": self._any().entity, **fault.options}
        with suppress(TimeoutError):
            async with asyncio.timeout(_APPLIED_WITHIN_S):
                while not (await self._admin.post(self._stack.servicebus, "faults", content))["applied"]:
                    await asyncio.sleep(_POLL_EVERY_S)

    async def _refusing(self, work: Coroutine[Any, Any, None]) -> None:
        self._refusals += 1
        try:
            await work
        finally:
            self._refusals -= 1

    async def _from_first_hit(self, fault: Fault) -> None:
        """Keep the fault for its time from the first transfer it hits, whenever that is."""
        for_s = fault.options["for_ms"] / 1000
        options = fault.options | {"for_ms": _EXPIRES_AFTER_MS}
        if fault.kind == "shrink-limit":
            options["bytes"] = self._shrunk_bytes
        content = {"kind": _TIMED_FROM_FIRST_HIT[fault.kind], "entity": self._any().entity, **options}
        broker = self._stack.servicebus
        path = f"faults/{(await self._admin.post(broker, 'faults', content))['id']}"
        try:
            async with asyncio.timeout(_APPLIED_WITHIN_S + for_s):
                while not (await self._admin.get(broker, path))["applied"]:
                    await asyncio.sleep(_POLL_EVERY_S)
                await asyncio.sleep(for_s)
                while fault.kind == "shrink-limit" and not await self._all_oversized_answers_met():
                    await asyncio.sleep(_POLL_EVERY_S)
        except TimeoutError:
            pass  # no further transfer came
        finally:
            await self._admin.delete(broker, path)

    async def _all_oversized_answers_met(self) -> bool:
        """Return True if the broker has answered oversized transfers in each way that it knows."""
        met: dict[str, int] = (await self._admin.get(self._stack.servicebus, "edges"))["edges"]
        return met.keys() >= {str(answer) for answer in Oversized}

    async def until_applied(self, history: Histories) -> None:
        """Wait until no fault is pending, or there is nothing left to relay."""
        while not history.complete and any([await self._pending(part) for part in self._services()]):
            await asyncio.sleep(_POLL_EVERY_S)

    async def clear(self) -> None:
        """Remove pending faults, wait for running ones to end, and count in `applied` what they hit."""
        self.applied = await self._count_applied()
        for part in self._services():
            for identifier in await self._pending(part):
                await self._admin.delete(part, f"faults/{identifier}")
        while self._running:
            await asyncio.wait(self._running)
        await self._source.end_faults()

    async def _pending(self, part: Part) -> list[int]:
        """Return the ids of the faults that are pending at a part, and are not to last."""
        pending = [fault["id"] for fault in (await self._admin.get(part, "faults"))["pending"]]
        return (
            pending
            if part is not self._stack.servicebus
            else [id_ for id_ in pending if id_ not in self._standing]
        )

    async def cover(self, seed: int, kinds: Collection[str], more: Callable[[], Awaitable[None]]) -> None:
        """Inject faults of these kinds again until the edge cases that they cause are met.

        The first try injects all that are needed at once; further tries, one after another. Call `clear` before.

        Args:
            seed: The seed of the faults' options.
            kinds: Kinds of the campaign.
            more: Commits events, so that there is something to relay.
        """
        causes = {**self._source.causes, **BROKER_CAUSES, **BLOB_CAUSES}
        causes = {edge: kind for edge, kind in causes.items() if kind in kinds}
        tries = {kind: draw(seed, events=1, faults=_TRIES, among=[kind]) for kind in causes.values()}
        unmet = await self._unmet(causes)
        await self._inject_until_met(unmet, [tries[causes[edge]][0] for edge in unmet], more)
        for number in range(1, _TRIES):
            for edge in await self._unmet(causes):
                await self._inject_until_met([edge], [tries[causes[edge]][number]], more)

    async def _inject_until_met(
        self, edges: Collection[str], faults: Sequence[Fault], more: Callable[[], Awaitable[None]]
    ) -> None:
        for fault in faults:
            await self.inject(fault)
            await more()
        with suppress(TimeoutError):
            async with asyncio.timeout(_MET_WITHIN_S):
                while await self._unmet(edges):
                    await asyncio.sleep(_POLL_EVERY_S)
        await self.clear()

    async def _unmet(self, edges: Collection[str]) -> list[str]:
        met = await self.met()
        return [edge for edge in edges if not met[edge]]

    async def met(self) -> Counter[str]:
        """Return the number of times each edge case of the broker, Blob Storage and the source's side was met."""
        services = await count_met(self._stack, self._admin, await self._count_applied())
        return services + self._met + await self._source.met()

    async def _count_applied(self) -> Counter[str]:
        applied: Counter[str] = Counter()
        for status in await self._status():
            applied.update(status["applied"])
        return applied

    def _services(self) -> list[Part]:
        blobs = [] if self._stack.blobs is None else [self._stack.blobs]
        return [*self._source.parts, self._stack.servicebus, *blobs]

    async def _status(self) -> list[dict[str, Any]]:
        return [await self._admin.get(part, "faults") for part in self._services()]

    def times_applied(self, kind: str) -> int | None:
        """Return the number of times the faults of a kind were applied.

        It is None for those that no service counts.
        """
        return self.applied.get(_TIMED_FROM_FIRST_HIT.get(kind) or _NAMES.get(kind, kind))

    async def waiting(self) -> int:
        """Return the number of messages left in the subscriptions and queues."""
        counts = await self._admin.get(self._stack.servicebus, "entities")
        held = [counts[each.receiving] for each in self._destinations]
        return sum(int(each[name]) for each in held for name in ("active", "locked", "deferred", "dead_letter"))

    async def close(self) -> None:
        """Cancel running faults; frozen hosts resume."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
