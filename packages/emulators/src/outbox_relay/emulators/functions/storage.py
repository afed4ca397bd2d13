"""A folder instead of the storage account that AzureWebJobsStorage names: locks, and the status of timers.

Hosts of one app that share it share its timers.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """The stored status of a timer: when it was last invoked, its next occurrence, and when that was computed.

    `last` is None before the first invocation, and after a change of the schedule.
    """

    last: datetime | None
    next: datetime | None
    updated: datetime | None


class Storage:
    """The locks and statuses of the app in `app_directory`, as files in `folder`."""

    def __init__(self, folder: Path, app_directory: Path) -> None:
        # The real host's id comes from the app's name or, on a developer's machine, from its path.
        host_id = hashlib.sha256(str(app_directory.resolve()).encode()).hexdigest()[:32]
        self._locks = folder / "locks" / host_id
        self._timers = folder / "timers" / host_id
        for path in (self._locks, self._timers):
            path.mkdir(parents=True, exist_ok=True)

    def try_lock(self, name: str, owner: str, period_s: float) -> bool:
        """Acquire the lock for that time, or renew it; returns False while another owner has it."""
        with self._opened(name) as file:
            held = _read(file)
            now = time.time()
            if held.get("owner", owner) != owner and held["expires"] > now:
                return False
            _write(file, {"owner": owner, "expires": now + period_s})
            return True

    def unlock(self, name: str, owner: str) -> None:
        """Release the lock if `owner` has it."""
        with self._opened(name) as file:
            if _read(file).get("owner") == owner:
                _write(file, {})

    def read_status(self, function: str) -> ScheduleStatus | None:
        """Return the stored status of a timer, or None if there is none."""
        try:
            stored = json.loads(self._status_of(function).read_text())
        except FileNotFoundError:
            return None
        return ScheduleStatus(
            **{
                name: datetime.fromisoformat(stored[key]) if stored[key] else None
                for name, key in (("last", "Last"), ("next", "Next"), ("updated", "LastUpdated"))
            }
        )

    def write_status(self, function: str, status: ScheduleStatus) -> None:
        """Store the status of a timer."""
        path = self._status_of(function)
        written = path.with_suffix(".new")
        written.write_text(
            json.dumps(
                {"Last": _text(status.last), "Next": _text(status.next), "LastUpdated": _text(status.updated)}
            )
        )
        # A host that is killed meanwhile leaves the former status.
        written.replace(path)

    def _status_of(self, function: str) -> Path:
        return self._timers / f"{function}.status"

    @contextmanager
    def _opened(self, name: str) -> Iterator[TextIOWrapper]:
        """The file of a lock, which no other process reads or writes meanwhile."""
        with (self._locks / name).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def _read(file: TextIOWrapper) -> dict[str, Any]:
    file.seek(0)
    try:
        content = json.loads(file.read() or "{}")
    except ValueError:
        # Its owner was killed while it wrote.
        return {}
    return content if isinstance(content, dict) else {}


def _write(file: TextIOWrapper, content: dict[str, Any]) -> None:
    file.seek(0)
    file.truncate()
    file.write(json.dumps(content))
    file.flush()


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
