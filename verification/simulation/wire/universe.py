"""One universe of the wire: the app as it is deployed, with the real SDKs, over the emulators' own servers."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator

import relay.servicebus.pipelined.link
import relay.servicebus.pool  # noqa: F401 - a universe imports nothing
from outbox_relay.operator.backends.backend import open_backend
from outbox_relay.operator.cli.quarantine_admin import QuarantineAdmin
from outbox_relay.operator.cli.release import Release
from outbox_relay.operator.cli.sender import ordered_sender
from relay.config.settings import Settings
from relay.quarantine.items import Items
from verification.journal.entries import Entry
from verification.simulation import determinism
from verification.simulation.connected import ConnectedWorld, sockets_of
from verification.simulation.faults import Fault
from verification.simulation.operators import BaseOperator
from verification.simulation.plan import EVENTS, FAULTS, Plan, Result
from verification.simulation.topic import CONDITIONS
from verification.simulation.universe import SPAN_S, BaseUniverse, Document
from verification.simulation.verdict import judged
from verification.simulation.wire import memory
from verification.simulation.wire.fault_injection import KINDS, SERVICES, Strikes
from verification.simulation.wire.host import Host
from verification.simulation.wire.services import WINDOW_S, Services


class Operator(BaseOperator):
    """An operator who connects to the same services as the app."""

    # Each virtual second costs the requests of all hosts.
    pauses_s = (20.0, 60.0)
    patience_s = 240.0

    def __init__(self, services: Services, number: int) -> None:
        super().__init__(services, number)
        self._backend = open_backend(Settings.from_environment({**os.environ, **services.settings()}))

    def _items(self) -> Items:
        return self._backend.open_store()

    async def _release(self, records: QuarantineAdmin, key: str) -> Release:
        outbox = self._backend.open_outbox()
        try:
            async with ordered_sender(self._backend.settings) as sender:
                release = Release(records, sender, outbox, self._backend)
                await release.release_parked(key, None)
                return release
        finally:
            await outbox.close()


def plan(seed: int, events: int = EVENTS, faults: int = FAULTS) -> Plan:
    """Return the plan of a seed."""
    return Plan.of(seed, events, faults, kinds=KINDS, services=SERVICES, span_s=SPAN_S)


def simulate(chosen: Plan) -> Result:
    """Run the universe of a plan to its end."""
    with _restored():
        journal, virtual_s, is_over = _run(chosen)
        # What is left of its processes takes back what they have changed of this one, when it is collected.
        gc.collect()
    return judged(chosen, journal, window_s=WINDOW_S, learned={}, virtual_s=virtual_s, is_over=is_over)


def _run(chosen: Plan) -> tuple[list[Entry], float, bool]:
    world = ConnectedWorld(f"{chosen.seed} world")
    with determinism.of(world), sockets_of(world), memory.of(world):
        try:
            universe = Universe(world, chosen)
            is_over = universe.run()
        finally:
            world.close()
    return universe.services.journal, world.now, is_over


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """Give the processes an environment of their own, and let this one be as it was."""
    before = dict(os.environ)
    os.environ.clear()
    # aiohttp looks for one with each request.
    os.environ["NETRC"] = os.devnull
    try:
        yield
    finally:
        sys.modules.pop("function_app", None)
        os.environ.clear()
        os.environ.update(before)
        time.tzset()


class Universe(BaseUniverse[Host]):
    """The processes, the writer and the faults of one plan, with services on a network."""

    def __init__(self, world: ConnectedWorld, chosen: Plan) -> None:
        super().__init__(world, chosen)
        self.services = Services(world, chosen.policy)

    def _begin(self) -> Callable[[Fault], None]:
        self.services.start()
        Operator(self.services, 1)
        return Strikes(self.services, lambda: self.working, self.keep_hosts).strike

    def _host(self, name: str) -> Host:
        return Host(self.services, name)

    def _is_quiet(self) -> bool:
        return not self.services.watch.awaited and not self.services.watch.parked

    def _store(self, key: str, documents: list[Document]) -> None:
        for document in documents:
            if condition := document.pop("refused", None):
                document["id"] = f"refused-{CONDITIONS.index(condition)}-{document['id']}"
        self.services.commit(key, documents)
