"""Links that carry messages to a queue or topic."""

from __future__ import annotations

import asyncio
from functools import partial

from proton import Delivery, Receiver, symbol, ulong

from outbox_emulators.servicebus import settlement
from outbox_emulators.servicebus.acknowledgements import Acknowledgements, Outcome
from outbox_emulators.servicebus.authorization import Right
from outbox_emulators.servicebus.connection import AmqpConnection
from outbox_emulators.servicebus.delayed_answers import DelayedAnswers
from outbox_emulators.servicebus.edges import Edge, Oversized
from outbox_emulators.servicebus.errors import (
    DetachForced,
    MessageTooLarge,
    NotFound,
    PropertiesTooLarge,
    RefusedWithLink,
    ServiceBusError,
    TransferLimitExceeded,
)
from outbox_emulators.servicebus.fault_plans import Direction
from outbox_emulators.servicebus.frames import DISPOSITION
from outbox_emulators.servicebus.link_faults import LinkFaults
from outbox_emulators.servicebus.links import DETACHED, LinkEndpoint
from outbox_emulators.servicebus.message import Message
from outbox_emulators.servicebus.parsing import parse
from outbox_emulators.servicebus.role import Role
from outbox_emulators.servicebus.sections import BATCH_FORMAT, split_batch
from outbox_emulators.servicebus.topic import Destination

_NO_CREDIT = "A transfer came for which the link had no credit."


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
        error = self._publish(delivery, message_format)
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

    def _acknowledge(self, delivery: Delivery, outcome: Outcome) -> None:
        self.touch()
        error = outcome.error
        if delivery.settled:
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
            self.faults.reject(messages)
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
