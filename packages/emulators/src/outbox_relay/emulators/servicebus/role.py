"""Which way the messages of a link go."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The client's role on a link that carries messages of an entity."""

    SENDER = "sender"
    RECEIVER = "receiver"
