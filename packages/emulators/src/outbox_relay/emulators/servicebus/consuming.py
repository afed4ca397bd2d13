"""Links that carry messages out of a queue or subscription."""

from __future__ import annotations

import asyncio
from functools import partial

from proton import Delivery, Link, Sender

from outbox_relay.emulators.servicebus import outgoing, settlement
from outbox_relay.emulators.servicebus.authorization import Right
from outbox_relay.emulators.servicebus.connection import AmqpConnection
from outbox_relay.emulators.servicebus.delayed_answers import DelayedAnswers
from outbox_relay.emulators.servicebus.edges import Edge
from outbox_relay.emulators.servicebus.entry import Entry, Lock
from outbox_relay.emulators.servicebus.errors import DetachForced, ServiceBusError
from outbox_relay.emulators.servicebus.fault_plans import Direction
from outbox_relay.emulators.servicebus.frames import TRANSFER
from outbox_relay.emulators.servicebus.link_faults import LinkFaults
from outbox_relay.emulators.servicebus.links import DETACHED, LinkEndpoint
from outbox_relay.emulators.servicebus.namespace import Source
from outbox_relay.emulators.servicebus.outgoing import CDelivery
from outbox_relay.emulators.servicebus.queue import MessageQueue
from outbox_relay.emulators.servicebus.role import Role


class ConsumeEndpoint(LinkEndpoint):
    """Delivers the messages of a queue to one receiver."""

    role = Role.RECEIVER
    needed = Right.LISTEN
    faults: LinkFaults

    def __init__(self, connection: AmqpConnection, link: Sender, source: Source) -> None:
        super().__init__(link)
        self.connection = connection
        self.path = source.path
        self.source = source
        self.queue: MessageQueue = source.queue
        self.faults = LinkFaults(connection.broker.faults, source.path, Role.RECEIVER)
        self._sender = link
        self._deletes = link.remote_snd_settle_mode == Link.SND_SETTLED
        self._delayed = DelayedAnswers(connection.broker.edges, connection.schedule_flush)
        self._unsettled: dict[CDelivery, bytes] = {}
        self._pump_scheduled = False
        self._is_open = False

    def check(self) -> None:
        self.source.check()

    def open(self) -> None:
        self.check()
        self._is_open = True
        super().open()

    def wake(self) -> None:
        """Look for a message at the end of this turn of the loop."""
        if not self._pump_scheduled:
            self._pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._woken)

    def _woken(self) -> None:
        self._pump_scheduled = False
        self.pump()
        self.connection.schedule_flush()

    def pump(self) -> None:
        if not self._is_open:
            return
        self.source.outlet.accessed_ms = self.connection.broker.namespace.timers.now()
        faulty = self.connection.broker.faults.any_pending
        credit = self._sender.credit
        while credit > 0 and self.connection.writable and not self.connection.is_cutting:
            if faulty and self._has_next() and (plan := self.faults.detach()):
                self.connection.links.detach(self.link, None if plan.silent else DetachForced(DETACHED))
                return
            taken = self._take()
            if taken is None:
                break
            self._deliver(*taken)
            credit -= 1
            if faulty and (plan := self.faults.cut_mid_frame(Direction.OUT)):
                self.connection.cut_mid_frame(TRANSFER, reset=plan.reset)
        else:
            self._pass_on()
        if self._sender.drain_mode:
            self._sender.drained()

    def _take(self) -> tuple[Entry, Lock | None] | None:
        return self.queue.take(self, delete=self._deletes)

    def _has_next(self) -> bool:
        return self.queue.has_next

    def _pass_on(self) -> None:
        """Leave what waits to another receiver: there is no credit for more."""
        self.queue.wake_waiting()

    def _deliver(self, entry: Entry, lock: Lock | None) -> None:
        self.touch()
        if lock is None:
            outgoing.settle(outgoing.send(self._sender, b"%d" % entry.sequence_number, entry.encode()))
            return
        delivery = outgoing.send(self._sender, lock.token, entry.delivered(lock))
        self._unsettled[delivery] = lock.token

    def on_update(self, delivery: CDelivery) -> None:
        token = self._unsettled.get(delivery)
        if token is None or not outgoing.is_updated(delivery):
            return
        outcome = settlement.read(delivery)
        if outcome is None:
            if outgoing.is_settled(delivery):
                del self._unsettled[delivery]
                outgoing.settle(delivery)
            return
        del self._unsettled[delivery]
        if outcome.state == Delivery.ACCEPTED and self._is_too_late(token):
            settlement.answer(outgoing.with_fields(delivery), self.queue.lock_lost())
            self.queue.expire_lock(token)
        else:
            self._settle(delivery, outcome, token)

    def _is_too_late(self, token: bytes) -> bool:
        edges, queue = self.connection.broker.edges, self.queue
        if not edges.varies or not queue.has_slow_lock(token, edges.odds.slow_ms) or not edges.redelivers():
            return False
        if not queue.may_expire(token):
            return False
        edges.meet(Edge.REDELIVERED)
        return True

    def _settle(self, delivery: CDelivery, outcome: settlement.Outcome, token: bytes) -> None:
        try:
            outcome.apply(self.queue, token)
        except ServiceBusError as error:
            self._delayed.give(partial(settlement.answer, outgoing.with_fields(delivery), error))
        else:
            self._delayed.give(partial(outgoing.settle, delivery, outcome.state))

    @property
    def is_busy(self) -> bool:
        return self._delayed.pending

    def closed(self) -> None:
        self._is_open = False
        self._unsettled.clear()
        self._delayed.cancel()
        self.queue.leave(self)
