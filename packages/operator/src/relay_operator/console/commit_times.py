"""When an event was committed, and how long it took from there.

Cosmos DB stores the second of a commit, `_ts`, without its fraction. A latency that counts from there is up to a
second too long, so it counts from the writer's own `createdAt` if that agrees with the second; otherwise there is
no figure.
"""

from __future__ import annotations

from datetime import datetime

# A writer makes an event shortly before its commit, which may be in the next second.
_BEFORE_COMMIT_S = 1.0

NO_START = "data.createdAt is missing, or not in the second of the commit"
"""Why `started_at` is None of an event that was committed."""


def started_at(committed_at: float | None, created_at: str | None) -> float | None:
    """Return the start of an event's latency in seconds since 1970, or None if it is not known well enough.

    Args:
        committed_at: When the database stored it; without a fraction, only the second is known.
        created_at: When its writer made it, as written.
    """
    if committed_at is None or not float(committed_at).is_integer():
        return committed_at
    made = written_moment(created_at)
    if made is None or not committed_at - _BEFORE_COMMIT_S <= made < committed_at + 1:
        return None
    return made


def took_s(committed_at: float | None, created_at: str | None, until: float | None) -> float | None:
    """Return the seconds from the commit of an event to a later moment, or None if either is not known."""
    start = started_at(committed_at, created_at)
    return None if start is None or until is None else max(0.0, until - start)


def estimated_at(committed_at: float, created_at: str | None, read_up_to: float | None, now: float) -> float:
    """Estimate when an event was committed, for the age of what waits.

    What was not there when all had been read (`read_up_to`, None if that is long ago) was committed later; within
    what is left of the second, the writer's own clock is believed.
    """
    if not float(committed_at).is_integer():
        return min(committed_at, now)
    latest = min(committed_at + 1, now)
    earliest = min(max(committed_at, read_up_to or committed_at), latest)
    made = written_moment(created_at)
    if made is not None and earliest <= made <= latest:
        return made
    return earliest if read_up_to is None else (earliest + latest) / 2


def written_moment(text: str | None) -> float | None:
    """Return the seconds since 1970 of a time in ISO 8601 with a zone, or None for anything else."""
    try:
        moment = datetime.fromisoformat(text or "")
        return None if moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None
