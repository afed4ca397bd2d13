"""Links that carry messages to a queue or topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from proton import Delivery, Receiver, symbol, ulong

from outbox_relay.emulators.servicebus import settlement
from outbox_relay.emulators.servicebus.acknowledgements import Acknowledgements, Outcome
from outbox_relay.emulators.servicebus.authorization import Right
from outbox_relay.emulators.servicebus.connection import AmqpConnection
from outbox_relay.emulators.servicebus.delayed_answers import DelayedAnswers
from outbox_relay.emulators.servicebus.edges import Edge, Oversized
from outbox_relay.emulators.servicebus.errors import (
    DetachForced,
    MessageTooLarge,
    NotFound,
    PropertiesTooLarge,
    RefusedWithLink,
    ServiceBusError,
    TransferLimitExceeded,
)
from outbox_relay.emulators.servicebus.fault_plans import Direction, FaultPlan
from outbox_relay.emulators.servicebus.frames import DISPOSITION
from outbox_relay.emulators.servicebus.link_faults import LinkFaults
from outbox_relay.emulators.servicebus.links import DETACHED, LinkEndpoint
from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.role import Role
from outbox_relay.emulators.servicebus.sections import BATCH_FORMAT, split_batch
from outbox_relay.emulators.servicebus.topic import Destination

_NO_CREDIT = "A transfer came for which the link had no credit."


class _Ends(Exception):
    """A transfer after which the link, its session or its connection ends, without an answer."""

    def __init__(self, plan: FaultPlan) -> None:
        super().__init__(plan)
        self.plan = plan


class PublishEndpoint(LinkEndpoint):
    """Takes messages and batches for a queue or topic."""

    role = Role.SENDER
    needed = Right.SEND
    path: str
    faults: LinkFaults

    def __init__(self, connection: AmqpConnection, link: Receiver, destination: Destination, path: str) -> None:
        super().__init__(link)
        self.connection = connection
        self.path = path
        self.destination = destination
        self._receiver = link
        self._limits = connection.broker.limits(destination.inlet.settings)
        self._oversized: dict[Delivery, int] = {}
        self._credit = connection.broker.edges.send_credit()
        self._to_grant = 0
        self._is_under_way = False
        self._is_ending = False
        self._timers: set[asyncio.TimerHandle] = set()
        self.faults = LinkFaults(connection.broker.faults, path, Role.SENDER)
        self._delayed = DelayedAnswers(connection.broker.edges, connection.schedule_flush)
        self._acknowledgements = Acknowledgements(self._acknowledge, connection.schedule_flush)

    @property
    def is_busy(self) -> bool:
        return self._acknowledgements.pending or self._delayed.pending

    def check(self) -> None:
        if self.destination.inlet.deleted:
            raise NotFound.entity(self.connection.broker.namespace.address(self.path))
        self.destination.inlet.check(())

    def open(self) -> None:
        self.check()
        if shrunk := self.faults.shrunk_limit():
            self._limits = self._limits.at_most(shrunk)
        self.link.max_message_size = self._limits.message
        self.link.properties = {
            symbol("com.microsoft:max-message-batch-size"): ulong(self._limits.batch),
        }
        super().open()
        self._receiver.flow(self._credit)

    def on_delivery(self, delivery: Delivery, message_format: int | None) -> None:
        if self._is_ending:
            return
        if not self._is_under_way:
            self._credit -= 1
            if self._credit < 0:
                self.connection.links.detach(self.link, TransferLimitExceeded(_NO_CREDIT))
                return
        self._is_under_way = delivery.partial and not delivery.aborted
        if delivery.aborted:
            self._oversized.pop(delivery, None)
            delivery.settle()
            self._grant()
            return
        if delivery.pending > self._limits.message or delivery in self._oversized:
            self._discard(delivery)
        if delivery.partial or not (delivery.readable or delivery in self._oversized):
            return
        if plan := self.faults.detach():
            self.connection.links.detach(self.link, None if plan.silent else DetachForced(DETACHED))
            return
        try:
            error = self._publish(delivery, message_format)
        except _Ends as ends:
            self._is_ending = True
            self._later(ends.plan.delay_ms, partial(self.connection.end, self.link, ends.plan))
            return
        if error is None and (plan := self.faults.cut_after_transfer()):
            self.connection.abort(reset=plan.reset)
            return
        if isinstance(error, PropertiesTooLarge):
            self.connection.broker.edges.meet(Edge.PROPERTIES_TOO_LARGE)
        if isinstance(error, MessageTooLarge):
            self._refuse_oversized(delivery, error)
        else:
            self._answer(delivery, Outcome(error, detaches=isinstance(error, RefusedWithLink)))

    def _refuse_oversized(self, delivery: Delivery, error: MessageTooLarge) -> None:
        edges = self.connection.broker.edges
        how = self.faults.oversized_answer() or edges.oversized()
        edges.meet(Edge(how))
        if how is Oversized.DETACHED_WITHOUT_DISPOSITION:
            self.connection.links.detach(self.link, error)
        else:
            self._answer(delivery, Outcome(error, detaches=how is Oversized.REJECTED_THEN_DETACHED))

    def _answer(self, delivery: Delivery, outcome: Outcome) -> None:
        """Grant credit for another transfer, and answer this one when its answer is due."""
        self._grant()
        broker = self.connection.broker
        delay_ms = broker.ack_delay_ms + self.faults.ack_delay_ms()
        if late_ms := broker.edges.settlement_delay_ms():
            self._delayed.give_later(partial(self._acknowledge, delivery, outcome), delay_ms + late_ms)
        else:
            self._delayed.note_overtaking()
            self._acknowledgements.send(delivery, outcome, delay_ms)

    def _grant(self) -> None:
        """Grant credit for another transfer, once everything that has come by now was looked at."""
        self._to_grant += 1
        if self._to_grant == 1:
            asyncio.get_running_loop().call_soon(self._grant_now)

    def _grant_now(self) -> None:
        granted, self._to_grant = self._to_grant, 0
        if granted:
            self._credit += granted
            self._receiver.flow(granted)
            self.connection.schedule_flush()

    def _later(self, ms: int, act: Callable[[], None]) -> None:
        def on_time() -> None:
            self._timers.discard(timer)
            act()

        timer = asyncio.get_running_loop().call_later(ms / 1000, on_time)
        self._timers.add(timer)

    def _acknowledge(self, delivery: Delivery, outcome: Outcome) -> None:
        if self._is_ending:
            return
        self.touch()
        error = outcome.error
        if not delivery.settled and (plan := self.faults.settle_in_two()):
            settlement.note(delivery, error)
            self._later(plan.delay_ms, partial(self.connection.settle_without_state, delivery))
        elif delivery.settled:
            delivery.settle()
        else:
            settlement.answer(delivery, error)
        if error is None and (plan := self.faults.cut_mid_frame(Direction.OUT)):
            self.connection.cut_mid_frame(DISPOSITION, reset=plan.reset)
        if error is not None and outcome.detaches:
            self.connection.links.detach(self.link, error)

    def _publish(self, delivery: Delivery, message_format: int | None) -> ServiceBusError | None:
        """Publish a complete delivery; return the error if it is refused."""
        size = self._oversized.pop(delivery, 0)
        data = bytes(self._receiver.recv(delivery.pending) or b"")
        self._receiver.advance()
        try:
            if size:
                raise MessageTooLarge(
                    f"The received message (size:{size} bytes) exceeds the limit ({self._limits.message} bytes) "
                    "currently allowed on the link."
                )
            if self.faults.exceeds_shrunk_limit(len(data)):
                raise MessageTooLarge(
                    f"The received message (size:{len(data)} bytes) exceeds the present limit of the entity."
                )
            messages = self._messages(data, message_format)
            is_repeat = self.destination.inlet.is_repeat
            if plan := self.faults.end_on_transfer(messages):
                if plan.taken and not self.faults.would_reject(messages, is_repeat):
                    self.destination.publish(messages)
                raise _Ends(plan)
            self.faults.reject(messages, is_repeat)
            self.destination.publish(messages)
            self.destination.inlet.accessed_ms = self.connection.broker.namespace.timers.now()
        except ServiceBusError as refusal:
            self.destination.inlet.counts.refused += 1
            return refusal
        return None

    def _discard(self, delivery: Delivery) -> None:
        """Discard the bytes of an oversized message and count them: it is refused once it is complete."""
        pending = delivery.pending
        if pending:
            self._receiver.recv(pending)
        self._oversized[delivery] = self._oversized.get(delivery, 0) + pending

    def _messages(self, data: bytes, message_format: int | None) -> list[Message]:
        if message_format != BATCH_FORMAT:
            return [parse(data).identified()]
        if len(data) > self._limits.batch:
            raise MessageTooLarge(
                f"The batch takes {len(data)} bytes, which exceeds the limit of {self._limits.batch} bytes."
            )
        return [parse(each).identified() for each in split_batch(data)]

    def closed(self) -> None:
        self._to_grant = 0
        self._acknowledgements.cancel()
        self._delayed.cancel()
        self._oversized.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
