"""What a rival is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from azure.functions import DocumentList


class CannotCarry(Exception):
    """This workload is beyond this rival; the message says why."""


class Rival(Protocol):
    """One way to publish a batch of changes. Its connections are opened once, and kept."""

    @property
    def name(self) -> str: ...

    async def open(self) -> None:
        """Open every connection it will use, so that no link is opened within the timing."""

    async def prepare(self, invocations: Sequence[DocumentList]) -> None:
        """Take what the next `run` is to publish; whatever is done here is not timed.

        Raises:
            CannotCarry: It cannot publish this.
        """

    async def run(self) -> int:
        """Publish all that was prepared, one invocation after another; returns the number of sends."""

    async def close(self) -> None:
        """Close what was opened."""
