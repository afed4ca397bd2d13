"""Where the directory is kept: in a file of SQLite or in PostgreSQL."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from outbox_relay import inbox
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.receiving import handle_message


class Kept(Protocol):
    """A directory, wherever it is kept."""

    @abstractmethod
    async def handle(self, message: inbox.Message) -> object:
        """Apply the event in a message."""

    @abstractmethod
    async def contacts(self) -> Sequence[Mapping[str, Any]]:
        """All contacts."""

    @abstractmethod
    async def missing(self) -> Sequence[tuple[str, int]]:
        """Contact id and sequence number of each missing event, sorted."""


class InSqlite:
    """The directory in SQLite."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def handle(self, message: inbox.Message) -> bool:
        return handle_message(message, self._directory)

    async def contacts(self) -> Sequence[Mapping[str, Any]]:
        return list(self._directory.contacts())

    async def missing(self) -> Sequence[tuple[str, int]]:
        return list(self._directory.gaps)


@asynccontextmanager
async def open_directory(place: str | None) -> AsyncGenerator[Kept]:
    """Open a directory, and create it if there is none.

    Args:
        place: The URL of a PostgreSQL database, `postgresql://…`, or the path of a file; None is in memory.
    """
    if place is not None and place.startswith("postgresql://"):
        from samples.contacts.consumer.postgresql import PostgresDirectory

        async with PostgresDirectory.open(place) as kept:
            yield kept
    else:
        with Directory(None if place is None else Path(place)) as directory:
            yield InSqlite(directory)
