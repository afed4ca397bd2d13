"""Injecting faults into a broker: most are pending until something matches them, some are applied at once."""

from __future__ import annotations

from outbox_relay.emulators.faults import Fault
from outbox_relay.emulators.servicebus.broker import Broker
from outbox_relay.emulators.servicebus.errors import ConnectionForced, DetachForced
from outbox_relay.emulators.servicebus.fault_plans import FaultKind, FaultPlan
from outbox_relay.emulators.servicebus.links import DETACHED

RESTART = "restart"


class FaultInjector:
    """Injects faults into one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def inject(self, plan: FaultPlan) -> Fault[FaultPlan]:
        """Inject a fault. Raises NotFound when there is no such entity, or the kind cannot be applied to it."""
        namespace = self._broker.namespace
        if plan.entity is not None:
            namespace.status(plan.entity)
        if plan.kind is FaultKind.DISABLE_ENTITY:
            return self._disable(plan)
        if plan.kind is FaultKind.CUT_RECEIVER:
            return self._at_once(plan, self._broker.connections.cut_receivers(plan.covers, reset=plan.reset))
        if plan.kind is FaultKind.DETACH_IDLE:
            error = None if plan.silent else DetachForced(DETACHED)
            return self._at_once(plan, self._broker.connections.detach_idle(plan.covers, plan.role, error))
        if plan.kind is FaultKind.CLOSE_IDLE:
            forced = None if plan.silent else ConnectionForced("The connection was closed by the broker.")
            return self._at_once(plan, self._broker.connections.close_idle(plan.covers, plan.role, forced))
        if plan.kind is FaultKind.BEGIN_SESSION:
            return self._at_once(plan, self._broker.connections.begin_sessions(plan.covers))
        if plan.kind is FaultKind.EXPIRE_LOCKS:
            queue = namespace.source(plan.entity or "").queue
            return self._at_once(plan, queue.expire_all_locks())
        return self._broker.faults.inject(plan)

    def restart(self, *, keep: bool, for_ms: int = 0) -> None:
        """Cut every connection and, for `for_ms` milliseconds, every new one.

        Without `keep`, messages, sessions with their state and the duplicate detection history are deleted;
        entities, their status, the counts of what was sent, and the faults stay.
        """
        self._broker.restart(keep=keep, for_ms=for_ms)
        self._broker.faults.applied[RESTART] += 1

    def _at_once(self, plan: FaultPlan, times: int) -> Fault[FaultPlan]:
        faults = self._broker.faults
        fault = faults.inject(plan)
        faults.record(fault, times)
        faults.end(fault)
        return fault

    def _disable(self, plan: FaultPlan) -> Fault[FaultPlan]:
        faults, path = self._broker.faults, plan.entity or ""
        others = [
            fault
            for fault in faults.pending()
            if fault.plan.kind is FaultKind.DISABLE_ENTITY and (fault.plan.entity or "").lower() == path.lower()
        ]
        # One fault at a time sets the status: a second one replaces the first, which is undone.
        for fault in others:
            faults.end(fault)
        before = self._broker.namespace.status(path)
        fault = faults.inject(plan)
        self._broker.set_status(path, plan.status)
        faults.record(fault)
        fault.undo = lambda: self._broker.restore_status(path, before, disabled_as=plan.status)
        return fault
