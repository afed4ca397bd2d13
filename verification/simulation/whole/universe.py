"""One universe from the writer's commit to the effect at two consumers: outbox, the relay's core, and inbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from relay.servicebus.messages import Message
from verification.journal.entries import Entry
from verification.simulation import determinism
from verification.simulation.core import fault_injection, universe
from verification.simulation.core.services import Services
from verification.simulation.faults import Fault
from verification.simulation.plan import EVENTS, FAULTS, Plan, Result
from verification.simulation.receiving import consumers
from verification.simulation.receiving.consumers import Consumers
from verification.simulation.topic import CONDITIONS
from verification.simulation.universe import EVENT_TYPE, SPAN_S
from verification.simulation.world import World
from verification.simulation.writing import writers
from verification.simulation.writing.documents import Document
from verification.simulation.writing.writers import Writers

_KINDS = {**fault_injection.KINDS, **writers.KINDS, **consumers.KINDS}

# The share of events that the topic refuses.
_REFUSED = 0.01


def plan(seed: int, events: int = EVENTS, faults: int = FAULTS) -> Plan:
    """Return the plan of a seed."""
    return Plan.of(seed, events, faults, kinds=_KINDS, services=fault_injection.SERVICES, span_s=SPAN_S)


def simulate(chosen: Plan) -> Result:
    """Run the universe of a plan to its end."""
    world = World(f"{chosen.seed} whole")
    whole = _Universe(world, chosen)
    with determinism.of(world):
        try:
            is_over = whole.run()
            seen = [*whole.writers.promises.violations(), *whole.consumers.violations()]
        finally:
            world.close()
    result = whole.services.judged(chosen, is_over=is_over)
    return replace(result, violations=[*seen, *result.violations])


class _Services(Services):
    """Services whose topic has two subscriptions."""

    def __init__(self, world: World, chosen: Plan) -> None:
        super().__init__(world, chosen)
        self.consumers = Consumers(world, self.journal)

    def _taken(self, message: Message, by: str, number: int, is_repeat: bool) -> None:
        super()._taken(message, by, number, is_repeat)
        if not is_repeat:
            self.consumers.put(number, message)

    def judged_journal(self) -> Sequence[Entry]:
        """Return the journal.

        What a consumer's operator has discarded counts as handled there, as for the consumer.
        """
        return self.consumers.with_discarded()


class _Universe(universe.Universe):
    """The core's universe, with services that write, and consumers."""

    def __init__(self, world: World, chosen: Plan) -> None:
        services = _Services(world, chosen)
        super().__init__(world, chosen, services)
        self.consumers = services.consumers
        self.writers = Writers(world, services.journal, self._committed)
        self._events = 0

    def _begin(self) -> Callable[[Fault], None]:
        strike = super()._begin()

        def strike_any(fault: Fault) -> None:
            if not self.consumers.strike(fault) and not self.writers.strike(fault):
                strike(fault)

        return strike_any

    def _plan_commits(self) -> None:
        # The writers decide when they commit.
        self.world.outside.at(SPAN_S, self.writers.stop)

    def _is_quiet(self) -> bool:
        return super()._is_quiet() and self.consumers.are_done

    def _committed(self, key: str, documents: Sequence[Document]) -> None:
        stored = [dict(document) for document in documents]
        events = [document for document in stored if document["type"] == EVENT_TYPE]
        for document in events:
            if self.world.entropy.random() < _REFUSED:
                document["refused"] = self.world.entropy.choice(CONDITIONS)
        lsn = self.services.container.commit(key, stored, self.world.outside.wall())
        self._note(key, lsn, events, self.world.running.name)
        self._events += len(events)
        if self._events >= self.plan.events:
            self.writers.stop()
