"""Makes a stack misbehave: each kind of fault, by the admin ports, by signals to the hosts, or by a bystander."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from local.chaos.admin import AdminPorts, DidNotStrike
from local.chaos.bystander import Bystander
from local.chaos.edges import CAUSES, gather
from local.chaos.history import History
from local.chaos.hosts import HostFaults
from local.chaos.schedule import BYSTANDER_KINDS, COSMOS_KINDS, HOST_KINDS, Fault, draw
from local.stack.environment import DATABASE, TOPIC
from local.stack.parts import Part
from local.stack.supervisor import Stack
from outbox_emulators.functions.edges import Edge as FunctionsEdge
from outbox_emulators.functions.edges import read_journal
from outbox_emulators.servicebus.edges import Oversized

_SUBSCRIPTION = f"{TOPIC}/Subscriptions/all"
_OF_RECEIVERS = ("cut-receiver", "expire-locks")
# And what the broker calls them.
_FROM_FIRST_STRIKE = {"refuse-content": "reject", "shrink-limit": "shrink-limit"}
# They strike what is idle at the moment of asking, if anything is.
_OF_IDLE_LINKS = ("detach-idle", "close-idle")
_ASK_AGAIN_S = 0.1
_STRUCK_WITHIN_S = 20.0
_CALLED_OFF_WITHIN_MS = 60_000
_MET_WITHIN_S = 15.0
_SPLITS_AT_MOST = 8
_TRIES = 3

_OUTAGES = {
    "feed-outage": (
        FunctionsEdge.LEASE_GIVEN_UP,
        {"kind": "unavailable", "match": {"operation": "read-feed"}, "for_ms": 15_000},
    ),
    "outage": (FunctionsEdge.LEASE_LEFT_TO_EXPIRE, {"kind": "unavailable", "for_ms": 15_000}),
}


class Injector:
    """Applies faults to a running stack.

    Attributes:
        applied: By kind, how many were set off.
        struck: By kind, how many requests, transfers and connections those at the wire have hit.
        refused: What could not be set off, and why.
    """

    def __init__(
        self, stack: Stack, admin: AdminPorts, hosts: HostFaults, bystander: Bystander, *, shrunk_bytes: int
    ) -> None:
        """`shrunk_bytes` is the limit that a transfer has while it is shrunk: every sound event must fit."""
        self._stack = stack
        self._admin = admin
        self._hosts = hosts
        self._bystander = bystander
        self._shrunk_bytes = shrunk_bytes
        self._lasting: set[asyncio.Task[None]] = set()
        self._splits = 0
        self.applied: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()
        self.refused: list[str] = []

    async def strike(self, fault: Fault) -> None:
        """Set off one fault, without waiting for its end."""
        self.applied[fault.kind] += 1
        if fault.kind == "withhold-page":
            met = partial(self._until_met, FunctionsEdge.PAGE_WITHHELD)
            self._begin(fault, self._bystander.withhold_page(met))
        elif fault.kind == "time-out-function":
            self._begin(fault, self._time_out(fault))
        elif fault.kind in _OUTAGES:
            self._begin(fault, self._outage(fault))
        elif fault.kind in _OF_IDLE_LINKS:
            self._begin(fault, self._until_one_is_idle(fault))
        elif fault.kind in _FROM_FIRST_STRIKE:
            self._begin(fault, self._until_struck_and_then(fault))
        elif fault.kind in BYSTANDER_KINDS:
            self._begin(fault, self._bystander.strike(fault.kind))
        elif fault.kind in HOST_KINDS:
            self._begin(fault, self._hosts.strike(fault.kind, fault.options))
        else:
            await self._guarded(fault, self._at_once(fault))

    def _begin(self, fault: Fault, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(fault, work))
        self._lasting.add(task)
        task.add_done_callback(self._lasting.discard)

    async def _guarded(self, fault: Fault, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except DidNotStrike as error:
            self.applied[fault.kind] -= 1
            self.refused.append(f"{fault.kind} did not strike: {error}")

    async def _at_once(self, fault: Fault) -> None:
        if fault.kind in COSMOS_KINDS:
            await self._admin.post(self._stack.cosmos, "faults", {"kind": fault.kind, **fault.options})
        elif fault.kind == "split-partition":
            await self._split()
        elif fault.kind == "restart-broker":
            await self._admin.post(self._stack.servicebus, "restart", {"keep": True})
        else:
            entity = _SUBSCRIPTION if fault.kind in _OF_RECEIVERS else TOPIC
            await self._admin.post(
                self._stack.servicebus, "faults", {"kind": fault.kind, "entity": entity, **fault.options}
            )

    async def _until_met(self, edge: FunctionsEdge) -> None:
        """Wait until hosts have met an edge once more, but not for ever."""
        before = read_journal(self._stack.edge_journal)[edge]
        with suppress(TimeoutError):
            async with asyncio.timeout(_MET_WITHIN_S):
                while read_journal(self._stack.edge_journal)[edge] == before:
                    await asyncio.sleep(_ASK_AGAIN_S)

    async def _outage(self, fault: Fault) -> None:
        """Answer with 503 until a host gives a lease up for it: for longer than the SDK tries, which is 1.6 s."""
        edge, content = _OUTAGES[fault.kind]
        cosmos = self._stack.cosmos
        identifier = (await self._admin.post(cosmos, "faults", content))["id"]
        try:
            await self._until_met(edge)
        finally:
            await self._admin.delete(cosmos, f"faults/{identifier}")

    async def _time_out(self, fault: Fault) -> None:
        """Acknowledge a transfer later than the host lets a function run."""
        await self._admin.post(
            self._stack.servicebus, "faults", {"kind": "delay-ack", "entity": TOPIC, **fault.options}
        )
        await self._until_met(FunctionsEdge.TIMEOUT_KILLED_WORKER)

    async def _until_one_is_idle(self, fault: Fault) -> None:
        content = {"kind": fault.kind, "entity": TOPIC, **fault.options}
        with suppress(TimeoutError):
            async with asyncio.timeout(_STRUCK_WITHIN_S):
                while not (await self._admin.post(self._stack.servicebus, "faults", content))["applied"]:
                    await asyncio.sleep(_ASK_AGAIN_S)

    async def _until_struck_and_then(self, fault: Fault) -> None:
        """Strike for a while from the first transfer on that is struck, however long that takes."""
        for_s = fault.options["for_ms"] / 1000
        options = fault.options | {"for_ms": _CALLED_OFF_WITHIN_MS}
        if fault.kind == "shrink-limit":
            options["bytes"] = self._shrunk_bytes
        content = {"kind": _FROM_FIRST_STRIKE[fault.kind], "entity": TOPIC, **options}
        broker = self._stack.servicebus
        path = f"faults/{(await self._admin.post(broker, 'faults', content))['id']}"
        try:
            async with asyncio.timeout(_STRUCK_WITHIN_S):
                while not (await self._admin.get(broker, path))["applied"]:
                    await asyncio.sleep(_ASK_AGAIN_S)
                await asyncio.sleep(for_s)
                while fault.kind == "shrink-limit" and not await self._all_answers_met():
                    await asyncio.sleep(_ASK_AGAIN_S)
        except TimeoutError:
            pass  # what there was to strike was struck
        finally:
            await self._admin.delete(broker, path)

    async def _all_answers_met(self) -> bool:
        """Whether transfers that are too large were answered in each way that there is."""
        met: dict[str, int] = (await self._admin.get(self._stack.servicebus, "edges"))["edges"]
        return met.keys() >= {str(answer) for answer in Oversized}

    async def _split(self) -> None:
        """Split a physical partition: the first that has not been split, and then its children in turn."""
        if self._splits >= _SPLITS_AT_MOST:
            raise DidNotStrike(f"there were {_SPLITS_AT_MOST} splits already")
        range_id, self._splits = str(self._splits), self._splits + 1
        await self._admin.post(
            self._stack.cosmos, "split", {"database": DATABASE, "container": "data", "range": range_id}
        )

    async def until_struck(self, history: History) -> None:
        """Wait until every fault has struck for the last time, or there is nothing left to relay."""
        while not history.complete and any(told["pending"] for told in await self._told()):
            await asyncio.sleep(_ASK_AGAIN_S)

    async def heal(self) -> None:
        """Call off whatever is pending, and wait for what has begun; `struck` is told from now on."""
        self.struck = await self._strikes()
        for part in self._services():
            await self._admin.delete(part, "faults")
        while self._lasting:
            await asyncio.wait(self._lasting)

    async def make_up(self, seed: int, kinds: Collection[str], more: Callable[[], Awaitable[None]]) -> None:
        """Bring about what the faults of these kinds have not: at once, and what that leaves one after another.

        Call `heal` before. `more` commits something that is to be relayed.
        """
        causes = {edge: kind for edge, kind in CAUSES.items() if kind in kinds}
        tries = {kind: draw(seed, events=1, faults=_TRIES, among=[kind]) for kind in causes.values()}
        unmet = await self._unmet(causes)
        await self._bring_about(unmet, [tries[causes[edge]][0] for edge in unmet], more)
        for number in range(1, _TRIES):
            for edge in await self._unmet(causes):
                await self._bring_about([edge], [tries[causes[edge]][number]], more)

    async def _bring_about(
        self, edges: Collection[str], faults: Sequence[Fault], more: Callable[[], Awaitable[None]]
    ) -> None:
        """Strike with these faults until the edges were met, but not for ever."""
        for fault in faults:
            await self.strike(fault)
            await more()
        with suppress(TimeoutError):
            async with asyncio.timeout(_MET_WITHIN_S):
                while await self._unmet(edges):
                    await asyncio.sleep(_ASK_AGAIN_S)
        await self.heal()

    async def _unmet(self, edges: Collection[str]) -> list[str]:
        met = await gather(self._stack, self._admin, await self._strikes())
        return [edge for edge in edges if not met[edge]]

    async def _strikes(self) -> Counter[str]:
        strikes: Counter[str] = Counter()
        for told in await self._told():
            strikes.update(told["applied"])
        return strikes

    def _services(self) -> tuple[Part, Part]:
        return self._stack.cosmos, self._stack.servicebus

    async def _told(self) -> list[dict[str, Any]]:
        return [await self._admin.get(part, "faults") for part in self._services()]

    async def waiting(self) -> int:
        """How many messages the subscription still holds."""
        counts = await self._admin.get(self._stack.servicebus, "entities")
        held = counts[_SUBSCRIPTION]
        return int(held["active"]) + int(held["locked"]) + int(held["deferred"]) + int(held["dead_letter"])

    async def close(self) -> None:
        """End what has begun; what was frozen goes on."""
        lasting = list(self._lasting)
        for task in lasting:
            task.cancel()
        await asyncio.gather(*lasting, return_exceptions=True)
