"""One history of leases: partitions split and merge, noticed or not, while hosts come, go, freeze and take over.

The fence's own code (`relay.backends.cosmos.leases`) judges events that are all older than the duplicate
detection window, so that whatever it lets pass comes again, and whatever it stops is gone. There is no network and
no time but the number of a step, so that a million histories can be run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

from verification.journal import entries
from verification.journal.checker import Wrong
from verification.journal.entries import Entry, digest_of
from verification.simulation.faults import Fault, Kind
from verification.simulation.leases.container import SLOTS, Change, Container
from verification.simulation.leases.hosts import Hosts
from verification.simulation.leases.processor import Keys, Lease, Leases, bound
from verification.simulation.plan import Plan, Result

# Small histories find more in the same time than large ones.
_EVENTS, _FAULTS = 24, 12

# Steps before the faults end, and after which a history that has not come to its end is stuck.
_SPAN = 200
_MOST_STEPS = 20_000

# More splits and merges than these only repeat what fewer show.
_CHANGES = 6

_KINDS = {
    "split": Kind(6),
    "merge": Kind(6),
    "stop-app": Kind(3, longest_s=100.0),
    "freeze-host": Kind(2, longest_s=100.0),
    "hold-invocation": Kind(4, longest_s=200.0),
    "kill-host": Kind(2),
    "start-host": Kind(2),
    "steal-lease": Kind(2),
    "lose-marker": Kind(1),
}

# The share of attempts that fail at an event, after which the page is attempted again.
_FAILING = 0.1


def plan(seed: int, events: int = _EVENTS, faults: int = _FAULTS) -> Plan:
    """Return the plan of a seed."""
    return Plan.of(seed, events, faults, kinds=_KINDS, services=("leases",), span_s=_SPAN)


def simulate(chosen: Plan) -> Result:
    """Run the history of a plan to its end."""
    history = History(chosen)
    history.run()
    return Result(history.journal, history.violations, history.step, history.repeats)


class History:
    """The fate of each event of a container, and the violations among them."""

    def __init__(self, chosen: Plan) -> None:
        self._plan = chosen
        self._entropy = random.Random(f"{chosen.seed} leases")
        self.container = Container(self._entropy)
        self.leases = Leases(self.container)
        self.hosts = Hosts(self.container, self.leases, self._entropy, self._deliver)
        self.published: set[int] = set()
        self.repeats = 0
        self.violations: list[str] = []
        self.journal: list[Entry] = []
        self.step = 0
        self._changes = 0
        self._has_marker = False
        self._later: list[tuple[int, Callable[[], None]]] = []

    @property
    def lost_by_processor(self) -> set[int]:
        """The numbers of the events that no lease delivers any more, and that nobody has published."""
        return self.leases.skipped - self.published

    def run(self) -> None:
        """Let the faults strike, then wait until everything is delivered."""
        self._start_host()
        faults = list(reversed(self._plan.faults))
        commits = sorted(self._entropy.uniform(0, _SPAN) for _ in range(self._plan.events))
        for self.step in range(_SPAN):
            while faults and faults[-1].at <= self.step:
                self._strike(faults.pop())
            while len(self.container.changes) < len(commits) and commits[len(self.container.changes)] <= self.step:
                self._commit()
            self._run_later()
            self._act()
        while len(self.container.changes) < len(commits):
            self._commit()
        self._end()

    def _act(self) -> None:
        """Let a host that works do something."""
        working = [host for host in self.hosts.all if host.works]
        if working:
            host = self._entropy.choice(working)
            if self._entropy.random() < 0.2:
                self.hosts.take(host)
            else:
                self.hosts.step(host)

    def _run_later(self) -> None:
        if not self._later:
            return
        due = [action for at, action in self._later if at <= self.step]
        self._later = [each for each in self._later if each[0] > self.step]
        for action in due:
            action()

    def _end(self) -> None:
        """End all faults, and go on until every event is delivered by every lease that covers it."""
        for _, action in self._later:
            action()
        self.hosts.are_kind = True
        if not any(host.works for host in self.hosts.all):
            self._start_host()
        for self.step in range(_SPAN, _MOST_STEPS):
            self._act()
            if self.step % 16 == 0 and self._is_over():
                break
        else:
            self._wrong(Wrong.MISSING, "the leases have not come to rest")
        for change in self.container.changes:
            if change.number not in self.published and change.number not in self.leases.skipped:
                self._wrong(Wrong.MISSING, f"{_name(change)} was never published")

    def _is_over(self) -> bool:
        owners = {host.name for host in self.hosts.all if host.works}
        are_taken = all(each.owner in owners for each in self.leases.all.values())
        return are_taken and all(self.hosts.is_idle(host) for host in self.hosts.all if host.works)

    def _commit(self) -> None:
        change = self.container.commit(self._entropy.randrange(SLOTS))
        self.journal.append(
            entries.Committed(
                at=self.step,
                by="writer",
                key=bound(change.slot),
                id=str(change.number),
                position=(change.lsn, 0),
                digest=_DIGEST,
                place=bound(change.slot) + "8",
            )
        )

    # The function.

    def _deliver(self, host: str, lease: Lease, page: list[Change]) -> bool:
        """Attempt to deliver a page, as a process that remembers nothing."""
        positions = self.leases.positions(_KEYS)
        for change in page:
            if _result(positions.has_passed(change.slot, change.lsn)):
                self._stop(change)
                continue
            if self._entropy.random() < _FAILING and not self.hosts.are_kind:
                return False
            self._publish(host, lease, change)
        return True

    def _stop(self, change: Change) -> None:
        """Judge that an event is not sent, by an attempt that succeeds."""
        if change.number not in self.published and change.number not in self.leases.skipped:
            self._wrong(Wrong.MISSING, f"{_name(change)} was dropped, and nobody has published it")

    def _publish(self, host: str, lease: Lease, change: Change) -> None:
        """Judge that an event is accepted."""
        self.journal.append(
            entries.Accepted(
                at=self.step,
                by=host,
                key=bound(change.slot),
                id=str(change.number),
                digest=_DIGEST,
                number=len(self.journal),
            )
        )
        if change.number in self.published:
            self.repeats += 1
            if self.leases.has_settled(change):
                self._wrong(Wrong.DUPLICATED, f"{_name(change)} was sent again, though every lease had passed it")
            return
        # Of what lies before the lease's beginning another lease is in charge.
        before = {
            each.number
            for each in self.container.changes[: change.number]
            if each.slot == change.slot and each.lsn > lease.began
        }
        if before - self.published - self.leases.skipped:
            self._wrong(Wrong.OUT_OF_ORDER, f"{_name(change)} came before an earlier one of its key")
        self.published.add(change.number)

    def _wrong(self, kind: Wrong, what: str) -> None:
        self.violations.append(f"{kind}: step {self.step}: {what}")

    # The faults, by their names.

    def _strike(self, fault: Fault) -> None:
        getattr(self, "_" + fault.kind.replace("-", "_"))(fault)

    def _split(self, fault: Fault) -> None:
        if self._changes < _CHANGES:
            self._changes += 1
            self.container.split(fault.target)

    def _merge(self, fault: Fault) -> None:
        if self._changes < _CHANGES:
            self._changes += 1
            self.container.merge(fault.target)

    def _stop_app(self, fault: Fault) -> None:
        for host in self.hosts.all:
            host.is_alive = False
        self._after(fault, self._start_host)

    def _freeze_host(self, fault: Fault) -> None:
        host = self.hosts.all[fault.target % len(self.hosts.all)]
        host.is_frozen = True

        def thaw() -> None:
            host.is_frozen = False

        self._after(fault, thaw)

    def _hold_invocation(self, fault: Fault) -> None:
        """Let the next invocations take long; their hosts go on, and keep their leases."""
        host = self.hosts.all[fault.target % len(self.hosts.all)]
        readers = [each for each in host.readers.values() if each.page]
        if readers:
            reader = readers[fault.target % len(readers)]
            reader.is_held = True

            def go_on() -> None:
                reader.is_held = False

            self._after(fault, go_on)

    def _kill_host(self, fault: Fault) -> None:
        self.hosts.all[fault.target % len(self.hosts.all)].is_alive = False
        if not any(host.is_alive for host in self.hosts.all):
            self._after(fault, self._start_host)

    def _start_host(self, fault: Fault | None = None) -> None:
        if not self._has_marker:
            self.leases.create_missing()
            self._has_marker = True
        self.hosts.start()

    def _steal_lease(self, fault: Fault) -> None:
        host = self.hosts.all[-1]
        leases = list(self.leases.all.values())
        if host.works and leases:
            self.hosts.acquire(host, leases[fault.target % len(leases)])

    def _lose_marker(self, fault: Fault) -> None:
        self._has_marker = False

    def _after(self, fault: Fault, action: Callable[[], None]) -> None:
        self._later.append((self.step + int(fault.lasts_s), action))


_DIGEST = digest_of("{}", "")
_KEYS = Keys()


def _name(change: Change) -> str:
    return f"event {change.number} of key {bound(change.slot) or '00'} at {change.lsn}"


def _result(answer: Coroutine[Any, Any, bool]) -> bool:
    """Return the result of a coroutine that waits for nothing."""
    try:
        answer.send(None)
    except StopIteration as end:
        return bool(end.value)
    raise RuntimeError("it waits")
