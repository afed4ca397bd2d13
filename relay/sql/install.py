"""Installs what the relay keeps in an SQL database: the store of its quarantine."""

from __future__ import annotations

from pathlib import Path

from changefeed.statements import AsyncSession, Statement

_MIGRATIONS = Path(__file__).parent / "migrations"


async def install(session: AsyncSession) -> None:
    """Create what is missing; harmless where nothing is.

    Args:
        session: A session of a role that may create schemas and tables.

    Raises:
        changefeed.ChangefeedError: The session lacks a right, or the database cannot be reached.
    """
    for file in migrations(session.dialect.name):
        await session.execute(Statement(file.read_text(encoding="utf-8")))


def migrations(dialect: str) -> list[Path]:
    """The files for `postgresql` or `sqlserver`, in order; each is one batch."""
    return sorted((_MIGRATIONS / dialect).glob("*.sql"))
