"""The status of an entity: it decides if the entity accepts and delivers messages."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """The values of EntityStatus in the management API that users can set."""

    ACTIVE = "Active"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    DISABLED = "Disabled"

    @property
    def sends(self) -> bool:
        return self in (Status.ACTIVE, Status.RECEIVE_DISABLED)

    @property
    def receives(self) -> bool:
        return self in (Status.ACTIVE, Status.SEND_DISABLED)
