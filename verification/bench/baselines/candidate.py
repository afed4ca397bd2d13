"""The interface of everything that is measured: the relay and its baselines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from azure.functions import DocumentList


class Candidate(Protocol):
    """One way to publish batches of changes. Its connections are opened once and stay open."""

    @property
    def name(self) -> str: ...

    async def open(self) -> None:
        """Open every connection it will use, so that no link is opened within the timing."""

    async def prepare(self, invocations: Sequence[DocumentList]) -> None:
        """Take what the next `run` publishes. This is not timed."""

    async def run(self) -> int:
        """Publish everything prepared, one invocation after another; returns the number of sends."""

    async def close(self) -> None:
        """Close what was opened."""
