"""Where faults strike a link. Each question asked here uses up the fault it finds."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_emulators.servicebus.edges import Oversized
from outbox_emulators.servicebus.errors import UNABLE_TO_PROCESS, Refused, RefusedWithLink, ServerBusy
from outbox_emulators.servicebus.fault_plans import INTERNAL_ERROR, Direction, FaultKind, FaultPlan, Role
from outbox_emulators.servicebus.faults import Faults, partition_of
from outbox_emulators.servicebus.message import Message


class LinkFaults:
    """The faults that may strike one link of a client."""

    def __init__(self, faults: Faults, path: str, role: Role) -> None:
        self._faults = faults
        self._path = path
        self._role = role

    def cut_before_transfer(self) -> FaultPlan | None:
        """Return the fault that cuts the connection as a transfer to the broker begins."""
        return self._strike(FaultKind.CUT_BEFORE_TRANSFER)

    def cut_after_transfer(self) -> FaultPlan | None:
        """Return the fault that cuts the connection in place of a disposition."""
        return self._strike(FaultKind.CUT_AFTER_TRANSFER)

    def cut_mid_frame(self, direction: Direction) -> FaultPlan | None:
        """Return the fault that cuts the connection in the middle of a frame."""
        if not self._faults.pending:
            return None
        return self._faults.strike(
            FaultKind.CUT_MID_FRAME,
            self._path,
            lambda plan: plan.role is self._role and plan.direction is direction,
        )

    def detach(self) -> FaultPlan | None:
        """Return the fault that detaches the link in place of its next message."""
        if not self._faults.pending:
            return None
        return self._faults.strike(FaultKind.DETACH_LINK, self._path, lambda plan: plan.role is self._role)

    def oversized_answer(self) -> Oversized | None:
        """Return how a transfer that is too large is to be answered."""
        plan = self._strike(FaultKind.ANSWER_OVERSIZED)
        return None if plan is None else plan.answer

    def shrunk_limit(self) -> int | None:
        """Return the bytes to which the limit of a transfer has shrunk."""
        fault = self._faults.find(FaultKind.SHRINK_LIMIT, self._path) if self._faults.pending else None
        return None if fault is None else fault.plan.most_bytes

    def exceeds_shrunk_limit(self, size: int) -> bool:
        """Return whether a transfer of that size is within the link's limit, but not within the shrunk one."""
        if not self._faults.pending:
            return False
        plan = self._faults.strike(FaultKind.SHRINK_LIMIT, self._path, lambda plan: size > plan.most_bytes)
        return plan is not None

    def ack_delay_ms(self) -> int:
        """Return how late the disposition is to be."""
        plan = self._strike(FaultKind.DELAY_ACK)
        return 0 if plan is None else plan.delay_ms

    def reject(self, messages: Sequence[Message]) -> None:
        """Raise ServerBusy or Refused if these messages, sent together, are to be rejected.

        RefusedWithLink is raised where the link is to be detached with the same reason.
        """
        if not self._faults.pending:
            return
        if self._faults.strike(FaultKind.SERVER_BUSY, self._path):
            raise ServerBusy(
                "The request was terminated because the entity is being throttled. Error code: 50009. "
                f"Please wait 2 seconds and try again. Resource: '{self._path}'."
            )
        if self._faults.strike(FaultKind.INTERNAL_ERROR, self._path):
            raise Refused(INTERNAL_ERROR, UNABLE_TO_PROCESS)
        if plan := self._faults.strike(FaultKind.REJECT, self._path):
            raise Refused(plan.condition, f"Every transfer to '{self._path}' is refused by a test.")
        if plan := self._faults.strike(FaultKind.REJECT_THEN_DETACH, self._path):
            raise RefusedWithLink(plan.condition, f"The transfer to '{self._path}' is refused by a test.")
        keys = {message.routing_key for message in messages} - {None}

        def holds_one(plan: FaultPlan) -> bool:
            return any(partition_of(key or "", plan.of) == plan.partition for key in keys)

        plan = self._faults.strike(FaultKind.PARTITION_UNAVAILABLE, self._path, holds_one)
        if plan is not None:
            raise Refused(
                plan.condition,
                f"The partition {plan.partition} of '{self._path}' is temporarily unavailable. Please retry.",
            )

    def _strike(self, kind: FaultKind) -> FaultPlan | None:
        # Asked for every transfer: the common case, no faults at all, must cost nothing.
        return self._faults.strike(kind, self._path) if self._faults.pending else None
