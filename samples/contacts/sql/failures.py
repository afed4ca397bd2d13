"""The database's errors as those of the outbox, which the API turns into responses."""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnection

from outbox_relay.outbox import CommitUncertain, OutboxError, Unavailable

LOST = (OperationalError, InterfaceError, NoConnection, OSError)
"""The connection was lost or refused, or none was free in time."""

E = TypeVar("E", Unavailable, CommitUncertain)


def failure(error: Exception, what: str, kind: type[E]) -> OutboxError:
    """Return the error for the caller; the driver's text is left out, as it may have parameters."""
    return kind(f"PostgreSQL did not answer to {what} ({type(error).__name__}).")
