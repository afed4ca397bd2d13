"""Which way the messages of a link go."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What the client is on a link that carries messages of an entity."""

    SENDER = "sender"
    RECEIVER = "receiver"
