"""The consumers of a world: two subscriptions, the processes that receive from each, and their faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from relay.servicebus.messages import Message
from verification.journal.entries import Entry, Frozen, Handled, Killed, OfEvent, Resumed
from verification.simulation.channel import RpcChannel
from verification.simulation.faults import Fault, Kind
from verification.simulation.receiving.consumer import LOCK_S, REASON, Consumer, Name
from verification.simulation.receiving.ledgers import Ledger, MemoryLedger, SqliteLedger
from verification.simulation.receiving.operator import Operator
from verification.simulation.receiving.subscription import Subscription
from verification.simulation.receiving.watch import Watch
from verification.simulation.world import Process, World

KINDS = {
    "kill-consumer": Kind(4),
    "kill-consumer-within": Kind(8),
    "stop-consumer": Kind(2),
    "freeze-consumer": Kind(4),
    "suspend-consumer": Kind(2, longest_s=600.0),
    "cut-consumer": Kind(4),
    "skew-consumer": Kind(2),
    "busy-consumer": Kind(2),
    "broker-down": Kind(2),
    "broker-lossy": Kind(5),
    "broker-slow": Kind(2),
    "end-locks": Kind(3),
}
"""The faults of consumers."""

_PROCESSES = 2

# Maximum seconds by which the clock of a process is ahead or behind.
_SKEW_S = 5.0
# Until a lost lock is noticed: the broker frees a session whose connection broke, and a receiver that has not
# noticed that goes on until the time of its lock is over, by its own clock.
_OVERLAP_S = LOCK_S + _SKEW_S + 2.0
# After how many seconds a process is started in the place of one that has ended.
_RESTART_S = 5.0
_USUAL_S = 0.02
_MAX_DELIVERIES = 200
_SINCE = itemgetter(1)


@dataclass(slots=True)
class _Group:
    """A subscription, what its consumer keeps, and its processes."""

    subscription: Subscription
    ledger: Ledger
    may_end: bool
    poison: set[Name] = field(default_factory=set)
    working: list[Consumer] = field(default_factory=list)
    made: int = 0


class Consumers:
    """All consumers.

    Attributes:
        watch: What is seen of them.
        line: The way to the broker.
        operator: Of the one that parks keys.
    """

    def __init__(self, world: World, journal: list[Entry]) -> None:
        self.world = world
        self.watch = Watch(world, journal, lock_s=LOCK_S, overlap_s=_OVERLAP_S)
        self.line = RpcChannel(world, "broker")
        self._poison: dict[Name, str] = {}
        self._journal = journal
        self._groups = [
            _Group(self._subscription("billing"), SqliteLedger(), may_end=True),
            _Group(self._subscription("view"), MemoryLedger(), may_end=False),
        ]
        billing = self._groups[0]
        self.operator = Operator(world, billing.subscription.name, billing.ledger, self.watch, billing.poison)
        self.keep()

    def _subscription(self, name: str) -> Subscription:
        made = Subscription(self.world, name, lock_s=LOCK_S, max_deliveries=_MAX_DELIVERIES)
        made.expired = self.watch.expired
        self.watch.holder_of[name] = made.holder_of
        return made

    def put(self, number: int, message: Message) -> None:
        """Give each subscription a message that the topic has accepted."""
        for group in self._groups:
            group.subscription.put(number, message)

    def keep(self) -> None:
        """Start processes in the place of those that have ended."""
        for group in self._groups:
            group.working = [each for each in group.working if each.process.is_alive]
            while len(group.working) < (_PROCESSES if group.may_end else 1):
                group.made += 1
                name = f"{group.subscription.name}-{group.made}"
                group.working.append(
                    Consumer(
                        self.world, self.line, group.subscription, group.ledger, self.watch, name, group.poison
                    )
                )

    def spoil(self, name: Name, *, unreadable: bool) -> None:
        """Let nobody handle an event; only what can be read may be handled later."""
        self._poison[name] = "unreadable" if unreadable else REASON
        for group in self._groups:
            group.poison.add(name)

    @property
    def are_done(self) -> bool:
        """True if every message was settled, and no key is parked."""
        return all(group.subscription.is_empty and not group.ledger.has_parked_keys for group in self._groups)

    def journals(self) -> Iterator[list[Entry]]:
        """Yield, for each consumer, the journal of what it is to have an effect of."""
        for group in self._groups:
            name, parks = group.subscription.name, group is self._groups[0]
            left_out = self.operator.discarded.keys() if parks else self._poison.keys()
            yield [
                each
                for each in self._journal
                if not isinstance(each, OfEvent)
                or (
                    (each.key, each.id) not in left_out
                    and not (isinstance(each, Handled) and each.consumer != name)
                )
            ]

    def with_discarded(self) -> list[Entry]:
        """Return the journal, with an effect for each message that was discarded before it had one."""
        name = self._groups[0].subscription.name
        had = {
            (each.key, each.id) for each in self._journal if isinstance(each, Handled) and each.consumer == name
        }
        found = list(self._journal)
        for (key, identifier), since in sorted(self.operator.discarded.items(), key=_SINCE)[::-1]:
            if (key, identifier) not in had:
                at = self._journal[since - 1].at
                found.insert(since, Handled(at=at, key=key, id=identifier, consumer=name))
        return found

    def violations(self) -> list[str]:
        """Return the violations of the guarantees, once everything is over."""
        found = self.watch.wrong
        for group in self._groups:
            name = group.subscription.name
            self.watch.look(name, group.ledger)
            self.watch.compare_gaps(name, self._gaps(group))
            found += self._wrong_dead_letters(group)
        found += [
            f"{name} kept no place, though nobody could read it"
            for name, reason in self._poison.items()
            if reason == "unreadable" and name not in self.operator.discarded
        ]
        return [*found, *self.operator.violations(self._journal)]

    def _wrong_dead_letters(self, group: _Group) -> list[str]:
        """Return the violations among the dead letters.

        A dead letter is right if no consumer can handle it, or where it parks keys, read it.
        """
        parks = group is self._groups[0]
        dead = Counter(
            (stored.message.partition_key, stored.message.id, reason) for stored, reason in group.subscription.dead
        )
        expected = Counter(
            (*name, reason) for name, reason in self._poison.items() if reason == "unreadable" or not parks
        )
        return [
            f"{group.subscription.name} has {dead[each]} dead letters {each} instead of {expected[each]}"
            for each in sorted(dead.keys() | expected.keys())
            if dead[each] != expected[each]
        ]

    def _gaps(self, group: _Group) -> Any:
        process = self.world.process(f"{group.subscription.name}-reader")
        desk = group.ledger.open(process)
        return self.world.run_task(process, desk.store.gaps(), 10.0)

    # Faults.

    def strike(self, fault: Fault) -> bool:
        """Let a fault of consumers happen; return False if it is another one."""
        if fault.kind not in KINDS:
            return False
        all_ = [each for group in self._groups for each in group.working if each.process.is_alive]
        getattr(self, "_" + fault.kind.replace("-", "_"))(fault, all_[fault.target % len(all_)])
        return True

    def _may_end(self, consumer: Consumer) -> bool:
        return any(group.may_end and consumer in group.working for group in self._groups)

    def _kill(self, process: Process) -> None:
        if process.is_alive:
            self._journal.append(Killed(at=round(self.world.now, 6), by=process.name))
            process.kill()
            self.world.outside.after(_RESTART_S, self.keep)

    def _kill_consumer(self, fault: Fault, consumer: Consumer) -> None:
        if self._may_end(consumer):
            self._kill(consumer.process)

    def _kill_consumer_within(self, fault: Fault, consumer: Consumer) -> None:
        if self._may_end(consumer):
            consumer.process.interrupt_after(int(fault.size * 400), lambda: self._kill(consumer.process))

    def _stop_consumer(self, fault: Fault, consumer: Consumer) -> None:
        if self._may_end(consumer):
            consumer.process.loop.call_soon(consumer.stop)
            self.world.outside.after(fault.lasts_s + _RESTART_S, self.keep)

    def _freeze_consumer(self, fault: Fault, consumer: Consumer) -> None:
        process = consumer.process
        if process.is_frozen:
            return
        self.watch.disturb(process.name, fault.lasts_s, stops=True)
        process.freeze()
        self._journal.append(Frozen(at=round(self.world.now, 6), by=process.name))
        self.world.outside.after(fault.lasts_s, self._resume, process)

    def _suspend_consumer(self, fault: Fault, consumer: Consumer) -> None:
        self._freeze_consumer(fault, consumer)

    def _resume(self, process: Process) -> None:
        if process.is_alive:
            process.resume()
            self._journal.append(Resumed(at=round(self.world.now, 6), by=process.name))

    def _cut_consumer(self, fault: Fault, consumer: Consumer) -> None:
        name = consumer.process.name
        self.watch.disturb(name, fault.lasts_s)
        self.line.cut.add(name)
        self.world.outside.after(fault.lasts_s, self.line.cut.discard, name)

    def _skew_consumer(self, fault: Fault, consumer: Consumer) -> None:
        self.watch.disturb(consumer.process.name, LOCK_S)
        consumer.process.skew_s = _SKEW_S * (2 * fault.size - 1)

    def _busy_consumer(self, fault: Fault, consumer: Consumer) -> None:
        self.watch.disturb(consumer.process.name, fault.lasts_s, stops=True)
        self._during(fault, consumer.process, "pause_s", fault.size, 0.0)

    def _broker_down(self, fault: Fault, consumer: Consumer) -> None:
        self._on_line(fault, "is_down", True, False)

    def _broker_lossy(self, fault: Fault, consumer: Consumer) -> None:
        self._on_line(fault, "loses", 0.1 + fault.size / 2, 0.0)

    def _broker_slow(self, fault: Fault, consumer: Consumer) -> None:
        self._on_line(fault, "slowest_s", 0.1 + 6 * fault.size, _USUAL_S)

    def _on_line(self, fault: Fault, name: str, value: Any, usual: Any) -> None:
        self.watch.disturb(None, fault.lasts_s)
        self._during(fault, self.line, name, value, usual)

    def _end_locks(self, fault: Fault, consumer: Consumer) -> None:
        """End the locks: the broker moves to another machine, and takes no lock with it."""
        self.watch.disturb(None, 0.001)
        for group in self._groups:
            group.subscription.end_locks()

    def _during(self, fault: Fault, owner: Any, name: str, value: Any, usual: Any) -> None:
        setattr(owner, name, value)
        self.world.outside.after(fault.lasts_s, setattr, owner, name, usual)
