"""One history of rules: deployments follow one another, overlap and are rolled back, while events are committed.

The relay's own code (`relay.routes`, and the source of Cosmos DB) decides where each event goes; the store, the
outbox and the topics are models. There is no network and no time but a number, so that many histories can be run.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable

from relay.core.documents import SourceDocument, StoredDocument
from relay.routes.generations import Timeline
from relay.routes.rulebook import AHEAD_S, RETURN_S
from verification.journal import entries
from verification.journal.checker import Wrong
from verification.journal.entries import Entry, digest_of
from verification.simulation.faults import Fault, Kind
from verification.simulation.plan import Plan, Result
from verification.simulation.rules.process import DESTINATIONS, FILES, RULES, Process, selection
from verification.simulation.rules.store import State, Store

_EVENTS, _FAULTS = 60, 15

_SPAN_S = 1500
_MOST_STEPS = 60_000

# Seconds of a step, at most; and how far the clocks of the outbox's partitions are apart.
_STEP_S = 1.0
_SKEW_S = 3.0

# Deployed at a time; and seconds between two events of the end, in which the last rules have to win.
_PROCESSES = 2
_TRICKLE_S = 20.0

_PARTITIONS, _KEYS, _ACTIONS = 2, 4, 3

_KINDS = {
    "deploy": Kind(6, longest_s=200.0),
    "start-another": Kind(3),
    "stop-app": Kind(2, longest_s=1000.0),
    "freeze-process": Kind(4, longest_s=900.0),
    "kill-process": Kind(4, longest_s=60.0),
    "set-clock": Kind(3, longest_s=300.0),
    "save": Kind(2),
    "restore": Kind(1, longest_s=100.0),
    "lose-all": Kind(1, longest_s=100.0),
}


def plan(seed: int, events: int = _EVENTS, faults: int = _FAULTS) -> Plan:
    """The plan of a seed."""
    return Plan.of(seed, events, faults, kinds=_KINDS, services=("rules",), span_s=_SPAN_S)


def simulate(chosen: Plan) -> Result:
    """Run the history of a plan to its end."""
    history = History(chosen)
    history.run()
    return Result(history.journal, history.violations, history.now, 0)


class History:
    """The fate of each event, and the violations among them.

    Attributes:
        deployed: The number of the file that was deployed last.
        was_set_back: Whether the store was restored or lost: events may be at former destinations too.
    """

    def __init__(self, chosen: Plan) -> None:
        self._plan = chosen
        self._entropy = random.Random(f"{chosen.seed} rules")
        self.store = Store(self._entropy)
        self.partitions: list[list[StoredDocument]] = [[] for _ in range(_PARTITIONS)]
        self.topics: dict[str, list[StoredDocument]] = {each: [] for each in DESTINATIONS}
        self.processes: list[Process] = []
        self.deployed = 0
        self.was_set_back = False
        self.now = 0.0
        self.violations: list[str] = []
        self.journal: list[Entry] = []
        self._saved: State | None = None
        self._is_stopped = False
        self._started = 0
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._seen: dict[str, set[str]] = defaultdict(set)

    def run(self) -> None:
        """Let the faults strike, then wait until everything is delivered."""
        self._start_all()
        faults = list(reversed(self._plan.faults))
        commits = sorted((self._entropy.uniform(0, _SPAN_S) for _ in range(self._plan.events)), reverse=True)
        while self.now < _SPAN_S:
            self.now += self._entropy.uniform(0, _STEP_S)
            while faults and faults[-1].at <= self.now:
                self._strike(faults.pop())
            while commits and commits[-1] <= self.now:
                commits.pop()
                self._commit()
            self._run_later()
            self._step()
        self._end()
        self._judge()

    @property
    def changes(self) -> int:
        """Number of documents that were committed."""
        return sum(map(len, self.partitions))

    def _step(self) -> None:
        awake = [each for each in self.processes if each.frozen_until <= self.now]
        if awake:
            self._entropy.choice(awake).step()

    def _run_later(self) -> None:
        due = [action for at, action in self._later if at <= self.now]
        self._later = [each for each in self._later if each[0] > self.now]
        for action in due:
            action()

    def _end(self) -> None:
        """End all faults, replace what is not the last deployment, and go on until everything is delivered."""
        for _, action in self._later:
            action()
        self._later.clear()
        self.store.is_kind = True
        for each in self.processes:
            each.offset_s = each.frozen_until = 0.0
            if each.deployed != self.deployed:
                each.kill()
        self.processes = [each for each in self.processes if each.deployed == self.deployed]
        self._start_all()
        until = self.now + RETURN_S + 15 * AHEAD_S
        trickles = self.now
        for _ in range(_MOST_STEPS):
            self.now += self._entropy.uniform(0, _STEP_S)
            if trickles < self.now < until:
                trickles += _TRICKLE_S
                self._commit()
            self._step()
            if self.now > until and self._is_over():
                return
        self._wrong(Wrong.MISSING, "the streams have not come to rest")

    def _is_over(self) -> bool:
        positions = self.store.state.positions
        return all(
            positions.get((destination, number), 0) == len(changes)
            for destination in DESTINATIONS
            for number, changes in enumerate(self.partitions)
        )

    def _commit(self) -> None:
        number, key = self.changes, self._entropy.randrange(_KEYS)
        partition = key % _PARTITIONS
        # The clocks of replicas differ, so times need not grow.
        committed_at = int(1_000_000 + self.now + self._entropy.uniform(-_SKEW_S, _SKEW_S))
        action = f"action-{self._entropy.randrange(_ACTIONS)}"
        document = {
            "id": str(number),
            "partitionKey": str(key),
            "type": "domainEvent",
            "data": {"action": action},
            "_ts": committed_at,
            "_lsn": len(self.partitions[partition]) + 1,
        }
        self.partitions[partition].append(document)
        self.journal.append(
            entries.Committed(
                at=self.now,
                by="writer",
                key=str(key),
                id=str(number),
                position=(document["_lsn"], 0),  # type: ignore[arg-type]
                digest=_DIGEST,
                place=str(partition),
            )
        )

    def _publish(self, by: str, destination: str, document: StoredDocument) -> None:
        """Take an event, unless the topic has it already."""
        identifier = document["id"]
        if identifier in self._seen[destination]:
            return
        self._seen[destination].add(identifier)
        self.topics[destination].append(document)
        self.journal.append(
            entries.Accepted(
                at=self.now,
                by=f"{by} to {destination}",
                key=document["partitionKey"],
                id=identifier,
                digest=_DIGEST,
                number=len(self.journal),
            )
        )

    # How it is judged.

    def _judge(self) -> None:
        stored = self.store.state.timeline
        if stored is None:
            self._wrong(Wrong.MISSING, "there is no timeline")
            return
        timeline = stored.timeline.extend(1 << 40)
        if timeline.last.rules != RULES[self.deployed]:
            self._wrong(Wrong.MISSING, f"the rules of deployment {self.deployed} are not in force")
        for destination in DESTINATIONS:
            self._judge_destination(destination, timeline)

    def _judge_destination(self, destination: str, timeline: Timeline) -> None:
        wanted = [
            each
            for changes in self.partitions
            for each in changes
            if selection(timeline.at(each["_ts"]).rules, destination).takes(SourceDocument.plain(each))
        ]
        missing = [each["id"] for each in wanted if each["id"] not in self._seen[destination]]
        if missing:
            self._wrong(Wrong.MISSING, f"{destination} has not got {', '.join(missing)}")
        if self.was_set_back:
            return
        got = [each["id"] for each in self.topics[destination]]
        beyond = set(got) - {each["id"] for each in wanted}
        if beyond:
            self._wrong(Wrong.DUPLICATED, f"{destination} has got {', '.join(sorted(beyond))} of another's")
        for key in {each["partitionKey"] for each in wanted}:
            came = [each["_lsn"] for each in self.topics[destination] if each["partitionKey"] == key]
            if came != sorted(came):
                self._wrong(Wrong.OUT_OF_ORDER, f"{destination} has got the key {key} in the order {came}")

    def _wrong(self, kind: Wrong, what: str) -> None:
        self.violations.append(f"{kind}: {what}")

    # The processes.

    def _start_all(self) -> None:
        while len(self.processes) < _PROCESSES:
            self._start(self.deployed)

    def _start(self, deployed: int) -> None:
        self._started += 1
        name = f"process-{self._started}"
        made = Process(
            *(name, deployed, self.store, self._entropy, lambda: 1_000_000 + self.now),
            partitions=self.partitions,
            publish=self._publish,
        )
        self.processes.append(made)

    def _kill(self, process: Process) -> None:
        process.kill()
        self.processes.remove(process)

    def _stop(self, fault: Fault) -> None:
        """Stop the app, and start the last deployment after a while."""
        for each in list(self.processes):
            self._kill(each)
        self._is_stopped = True

        def start() -> None:
            self._is_stopped = False
            self._start_all()

        self._after(fault, start)

    # The faults, by their names.

    def _strike(self, fault: Fault) -> None:
        getattr(self, "_" + fault.kind.replace("-", "_"))(fault)

    def _deploy(self, fault: Fault) -> None:
        """Replace the processes one by one."""
        self.deployed = fault.target % len(FILES)
        deployed, old = self.deployed, list(self.processes)
        if self._is_stopped:
            return
        self._start(deployed)

        def end() -> None:
            for each in old:
                if each in self.processes:
                    self._kill(each)
            if not self._is_stopped:
                self._start_all()

        self._after(fault, end)

    def _start_another(self, fault: Fault) -> None:
        """Start a process of another deployment beside the others."""
        if not self._is_stopped:
            self._start(fault.target % len(FILES))

    def _stop_app(self, fault: Fault) -> None:
        self._stop(fault)

    def _freeze_process(self, fault: Fault) -> None:
        if self.processes:
            process = self.processes[fault.target % len(self.processes)]
            process.frozen_until = max(process.frozen_until, self.now + fault.lasts_s)

    def _kill_process(self, fault: Fault) -> None:
        """Kill a process; another one of its deployment starts after a while."""
        if not self.processes:
            return
        process = self.processes[fault.target % len(self.processes)]
        self._kill(process)

        def start() -> None:
            if not self._is_stopped:
                self._start(process.deployed)

        self._after(fault, start)

    def _set_clock(self, fault: Fault) -> None:
        if self.processes:
            process = self.processes[fault.target % len(self.processes)]
            process.offset_s = (fault.size - 0.5) * 2 * fault.lasts_s

    def _save(self, fault: Fault) -> None:
        self._saved = self.store.saved()

    def _restore(self, fault: Fault) -> None:
        """Restore the last copy, with the app stopped."""
        if self._saved is not None:
            self._set_back(fault, self._saved)

    def _lose_all(self, fault: Fault) -> None:
        self._set_back(fault, State())

    def _set_back(self, fault: Fault, state: State) -> None:
        self._stop(fault)
        self.store.restore(state)
        self.was_set_back = True

    def _after(self, fault: Fault, action: Callable[[], None]) -> None:
        self._later.append((self.now + fault.lasts_s, action))


_DIGEST = digest_of("{}", "")
