"""The faults that are applied to one link. Unless it says otherwise, each method counts the fault as applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outbox_relay.emulators.faults import Faults
from outbox_relay.emulators.servicebus.edges import Oversized
from outbox_relay.emulators.servicebus.errors import UNABLE_TO_PROCESS, Refused, RefusedWithLink, ServerBusy
from outbox_relay.emulators.servicebus.fault_plans import INTERNAL_ERROR, Direction, FaultKind, FaultPlan
from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.partitions import partition_of
from outbox_relay.emulators.servicebus.role import Role


class LinkFaults:
    """The faults that may be applied to one link of a client."""

    def __init__(self, faults: Faults[FaultPlan], path: str, role: Role) -> None:
        self._faults = faults
        self._path = path
        self._role = role

    def cut_before_transfer(self) -> FaultPlan | None:
        """Return the fault that cuts the connection as a transfer to the broker begins."""
        return self._apply(FaultKind.CUT_BEFORE_TRANSFER)

    def cut_after_transfer(self) -> FaultPlan | None:
        """Return the fault that cuts the connection instead of a disposition."""
        return self._apply(FaultKind.CUT_AFTER_TRANSFER)

    def cut_mid_frame(self, direction: Direction) -> FaultPlan | None:
        """Return the fault that cuts the connection in the middle of a frame."""
        return self._apply(
            FaultKind.CUT_MID_FRAME, lambda plan: plan.role is self._role and plan.direction is direction
        )

    def detach(self) -> FaultPlan | None:
        """Return the fault that detaches the link instead of its next message."""
        return self._apply(FaultKind.DETACH_LINK, lambda plan: plan.role is self._role)

    def oversized_answer(self) -> Oversized | None:
        """Return how a transfer that is too large is to be answered."""
        plan = self._apply(FaultKind.ANSWER_OVERSIZED)
        return None if plan is None else plan.answer

    def shrunk_limit(self) -> int | None:
        """Return the bytes to which the limit of a transfer has shrunk. This does not count as applied."""
        fault = self._faults.find(lambda plan: plan.matches(FaultKind.SHRINK_LIMIT, self._path))
        return None if fault is None else fault.plan.most_bytes

    def exceeds_shrunk_limit(self, size: int) -> bool:
        """Return whether a transfer of that size is within the link's limit, but not within the shrunk one."""
        return self._apply(FaultKind.SHRINK_LIMIT, lambda plan: size > plan.most_bytes) is not None

    def ack_delay_ms(self) -> int:
        """Return how late the disposition is to be."""
        plan = self._apply(FaultKind.DELAY_ACK)
        return 0 if plan is None else plan.delay_ms

    def end_on_transfer(self, messages: Sequence[Message]) -> FaultPlan | None:
        """Return the fault that ends the link or more instead of an answer to these messages, sent together."""
        return self._apply(FaultKind.END_ON_TRANSFER, lambda plan: plan.selects(messages))

    def settle_in_two(self) -> FaultPlan | None:
        """Return the fault that answers a transfer in two dispositions."""
        return self._apply(FaultKind.SETTLE_IN_TWO)

    def stall_transfer(self) -> FaultPlan | None:
        """Return the fault that reads a transfer no further after its first frame."""
        return self._apply(FaultKind.STALL_TRANSFER)

    def would_reject(self, messages: Sequence[Message], is_repeat: Callable[[Message], bool]) -> bool:
        """Return whether these messages, sent together, are to be rejected; nothing is applied."""
        fault = self._faults.find(
            lambda plan: plan.matches(FaultKind.REJECT, self._path) and _rejects(plan, messages, is_repeat)
        )
        return fault is not None

    def reject(self, messages: Sequence[Message], is_repeat: Callable[[Message], bool]) -> None:
        """Raise ServerBusy or Refused if these messages, sent together, are to be rejected.

        RefusedWithLink is raised where the link is to be detached with the same reason.
        """
        if not self._faults.any_pending:
            return
        if self._apply(FaultKind.SERVER_BUSY):
            raise ServerBusy(
                "The request was terminated because the entity is being throttled. Error code: 50009. "
                f"Please wait 2 seconds and try again. Resource: '{self._path}'."
            )
        if self._apply(FaultKind.INTERNAL_ERROR):
            raise Refused(INTERNAL_ERROR, UNABLE_TO_PROCESS)
        if plan := self._apply(FaultKind.REJECT, lambda plan: _rejects(plan, messages, is_repeat)):
            raise Refused(
                plan.condition,
                f"An injected fault rejects transfers to '{self._path}'.",
                described_info=plan.described_info,
            )
        if plan := self._apply(FaultKind.REJECT_THEN_DETACH):
            raise RefusedWithLink(
                plan.condition,
                f"An injected fault rejects the transfer to '{self._path}'.",
                described_info=plan.described_info,
            )
        keys = {message.routing_key for message in messages} - {None}
        plan = self._apply(
            FaultKind.PARTITION_UNAVAILABLE,
            lambda plan: any(partition_of(key or "", plan.of) == plan.partition for key in keys),
        )
        if plan is not None:
            raise Refused(
                plan.condition,
                f"The partition {plan.partition} of '{self._path}' is temporarily unavailable. Please retry.",
            )

    def _apply(self, kind: FaultKind, where: Callable[[FaultPlan], bool] | None = None) -> FaultPlan | None:
        if not self._faults.any_pending:
            return None
        fault = self._faults.apply(lambda plan: plan.matches(kind, self._path) and (where is None or where(plan)))
        return None if fault is None else fault.plan


def _rejects(plan: FaultPlan, messages: Sequence[Message], is_repeat: Callable[[Message], bool]) -> bool:
    return plan.selects(messages) and not (plan.accepts_repeats and all(map(is_repeat, messages)))
