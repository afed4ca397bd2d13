"""One universe of the core: the relay's pipeline and publisher in workers of several hosts, on ports in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relay.cosmos.source import event_of
from relay.holds import PARKED_TYPE, is_pending
from relay.quarantine.items import Item
from relay.quarantine.record import RECORD_TYPE
from relay.servicebus.messages import Message
from simulation import reality
from simulation.core.container import Container
from simulation.core.faults import KINDS
from simulation.core.host import Host
from simulation.core.leases import Leases
from simulation.core.verdict import Violation, judge
from simulation.core.worker import EVENT_TYPE
from simulation.faults import Fault
from simulation.line import Line
from simulation.operators import Operator
from simulation.plan import Plan
from simulation.store import NotedItems
from simulation.topic import Topic
from simulation.world import Process, World

WINDOW_S = 600.0
_KEYS = 12
# Commits and faults happen within this time, in seconds.
_SPAN_S = 240.0
# What is not published after all faults have ended, within this time, is stuck.
_PATIENCE_S = 7200.0
_CONDITIONS = ("com.microsoft:argument-out-of-range", "amqp:decode-error", "amqp:not-allowed")


def plan_of(seed: int, *, events: int = 200, faults: int = 20) -> Plan:
    """The plan of a seed."""
    return Plan.of(seed, KINDS, _SPAN_S, events=events, faults=faults)


class Services:
    """What the processes share: the services, and the ways to them."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.policy = plan.policy
        self.journal: list[dict[str, Any]] = []
        self.container = Container(world.entropy)
        self.leases = Leases(self.container)
        self.topic = Topic(WINDOW_S, self._noted)
        self.store = NotedItems(self._stored)
        self.to_topic = Line(world, "topic")
        self.to_container = Line(world, "container")
        self.to_leases = Line(world, "leases")
        self.to_store = Line(world, "store")

    @property
    def lines(self) -> dict[str, Line]:
        return {line.name: line for line in (self.to_topic, self.to_container, self.to_leases, self.to_store)}

    def note(self, what: str, by: str, **more: Any) -> None:
        """An entry in the journal."""
        self.journal.append({"at": round(self.world.now, 6), "what": what, "by": by, **more})

    def waiting(self) -> list[tuple[str, str]]:
        """The events that an operator sees waiting because of their content, by key and id."""
        settled = {(each["key"], each["id"]) for each in self.journal if each["what"] in ("accepted", "set_aside")}
        return [
            (each["key"], each["id"])
            for each in self.journal
            if each["what"] == "committed" and not each["sound"] and (each["key"], each["id"]) not in settled
        ]

    def _stored(self, change: str, key: str, identifier: str, item: Item) -> None:
        if item["type"] == RECORD_TYPE:
            what = {"created": "set_aside", "deleted": "removed"}[change]
            self.note(what, "store", key=key, id=item["document"].get("id"), reason=item["reason"])
        elif item["type"] == PARKED_TYPE:
            self.note({"created": "parked", "deleted": "unparked"}[change], "store", key=key)
        elif change == "created" and is_pending(item):
            self.note("ordered", "store", key=key, id=item["eventId"])

    def _noted(self, message: Message, is_repeat: bool) -> None:
        what = "duplicate" if is_repeat else "accepted"
        self.note(what, "topic", key=message.partition_key, id=message.id, body=message.body.decode())


@dataclass(slots=True)
class Result:
    """What a universe came to."""

    plan: Plan
    journal: list[dict[str, Any]]
    violations: list[Violation]
    virtual_s: float
    counts: dict[str, int] = field(default_factory=dict)


class Universe:
    """The processes, the writer and the faults of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(f"{plan.seed} world")
        self.services = Services(self.world, plan)
        self.hosts: list[Host] = []
        self.committed = 0
        self._hosts_made = 0
        self._events: dict[str, list[str]] = {}

    def run(self) -> Result:
        """Run it to its end."""
        with reality.of(self.world):
            try:
                self._prepare()
                self._live()
            finally:
                self.world.close()
        services = self.services
        violations = judge(services.journal, self.plan.policy, WINDOW_S)
        return Result(self.plan, services.journal, violations, self.world.now)

    def _prepare(self) -> None:
        self.services.leases.begin()
        for _ in range(2):
            self._new_host()
        Operator(self.services, 1, event_of, EVENT_TYPE)
        self._plan_commits()
        for fault in self.plan.faults:
            self.world.outside.at(fault.at, self._strike, fault)

    def _live(self) -> None:
        last = max((fault.at + fault.lasts_s for fault in self.plan.faults), default=0.0)
        self.world.run(lambda: False, max(last, _SPAN_S) + 1)
        self._heal()
        if not self.world.run(self._is_quiet, _PATIENCE_S):
            self.services.note("stuck", "world")

    def _is_quiet(self) -> bool:
        """Whether every lease has passed everything."""
        if self.world.rounds % 64:
            return False
        services = self.services
        leases = services.leases.all
        return leases.keys() == services.container.partitions.keys() and all(
            (leases[number].position or 0) >= each.last for number, each in services.container.partitions.items()
        )

    # The writer.

    def _plan_commits(self) -> None:
        entropy = self.world.entropy
        left, number = self.plan.events, 0
        while left > 0:
            size = min(left, entropy.choice((1, 1, 1, 2, 3, 4)))
            left -= size
            number += 1
            self.world.outside.at(entropy.uniform(0, _SPAN_S), self._commit, number, size)

    def _commit(self, number: int, size: int) -> None:
        entropy = self.world.entropy
        key = f"key-{entropy.randrange(_KEYS)}"
        documents = []
        for order in range(size):
            document: dict[str, Any] = {
                "id": f"e{number}-{order}",
                "partitionKey": key,
                "type": "domainEvent",
                "order": order,
                "data": {"action": "Changed", "number": number},
            }
            if entropy.random() < 0.02:
                document["refused"] = entropy.choice(_CONDITIONS)
            elif entropy.random() < 0.01:
                document["data"] = "no object"
            documents.append(document)
        lsn = self.services.container.commit(key, documents, self.world.outside.wall())
        for document in documents:
            is_sound = "refused" not in document and isinstance(document["data"], dict)
            self.services.note(
                "committed",
                "writer",
                key=key,
                id=document["id"],
                position=[lsn, document["order"]],
                sound=is_sound,
                data=document["data"],
                effective=self.services.container.effective(key),
            )

    # Hosts and faults.

    def _new_host(self) -> None:
        self._hosts_made += 1
        self.hosts.append(Host(self.services, f"host-{self._hosts_made}"))

    def _keep_hosts(self) -> None:
        self.hosts = [host for host in self.hosts if host.process.is_alive]
        self.world.bury()
        for _ in range(2 - sum(host.works for host in self.hosts)):
            self._new_host()

    def _strike(self, fault: Fault) -> None:
        self.services.note("fault", "world", **{**fault.data(), "at": round(self.world.now, 6)})
        act = getattr(self, "_" + fault.kind.replace("-", "_"))
        working = [host for host in self.hosts if host.works]
        act(fault, working[fault.target % len(working)])

    def _later(self, fault: Fault, act: Any, *args: Any) -> None:
        self.world.outside.after(fault.lasts_s, act, *args)

    def _kill(self, process: Process) -> None:
        if process.is_alive:
            self.services.note("killed", process.name)
            process.kill()

    def _kill_worker(self, fault: Fault, host: Host) -> None:
        self._kill(host.worker.process)

    def _kill_worker_within(self, fault: Fault, host: Host) -> None:
        process = host.worker.process
        process.interrupt_after(int(fault.size * 400), lambda: self._kill(process))

    def _kill_host(self, fault: Fault, host: Host) -> None:
        self._kill(host.process)
        if fault.size < 0.5:
            # Else it lives on, and publishes what it has.
            self._kill(host.worker.process)
        self.world.outside.after(fault.lasts_s / 10, self._keep_hosts)

    def _freeze_worker(self, fault: Fault, host: Host) -> None:
        self._freeze(host.worker.process, fault)

    def _suspend(self, fault: Fault, host: Host) -> None:
        self._freeze(host.process, fault)
        self._freeze(host.worker.process, fault)
        self._keep_hosts()

    def _freeze(self, process: Process, fault: Fault) -> None:
        process.is_frozen = True
        self.services.note("frozen", process.name)
        self._later(fault, self._resume, process)

    def _resume(self, process: Process) -> None:
        process.is_frozen = False
        self.services.note("resumed", process.name)

    def _cut(self, fault: Fault, host: Host) -> None:
        line = self.services.lines[fault.service]
        names = {host.process.name, host.worker.process.name}
        line.cut |= names
        self._later(fault, line.cut.difference_update, names)

    def _down(self, fault: Fault, host: Host) -> None:
        self._during(fault, self.services.lines[fault.service], "is_down", True, False)

    def _lossy(self, fault: Fault, host: Host) -> None:
        self._during(fault, self.services.lines[fault.service], "loses", 0.1 + fault.size / 2, 0.0)

    def _slow(self, fault: Fault, host: Host) -> None:
        self._during(fault, self.services.lines[fault.service], "slowest_s", 0.1 + 6 * fault.size, 0.02)

    def _refuse_all(self, fault: Fault, host: Host) -> None:
        self._during(fault, self.services.topic, "refuses", _CONDITIONS[fault.target % len(_CONDITIONS)], None)

    def _busy(self, fault: Fault, host: Host) -> None:
        self._during(fault, self.services.topic, "is_busy", True, False)

    def _during(self, fault: Fault, owner: Any, name: str, value: Any, usual: Any) -> None:
        setattr(owner, name, value)
        self._later(fault, setattr, owner, name, usual)

    def _skew(self, fault: Fault, host: Host) -> None:
        for process in (host.process, host.worker.process):
            process.skew_s = 40 * fault.size - 20

    def _split(self, fault: Fault, host: Host) -> None:
        partitions = list(self.services.container.partitions)
        if len(partitions) < 4:
            self.services.container.split(partitions[fault.target % len(partitions)])

    def _steal(self, fault: Fault, host: Host) -> None:
        leases = list(self.services.leases.all.values())
        lease = leases[fault.target % len(leases)]
        self.services.leases.change(lease, owner=None)

    def _busy_worker(self, fault: Fault, host: Host) -> None:
        self._during(fault, host.worker.process, "pause_s", fault.size, 0.0)

    def _heal(self) -> None:
        """End what is left of the faults."""
        for line in self.services.lines.values():
            line.cut.clear()
        self._keep_hosts()
