"""The lock in the lease container under which a host creates the leases."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from relay.backends.findings import Finding

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

# The change feed processor holds its lock for 30 s at most. Clocks may differ, and expiry may be late.
_STALE_LOCK_S = 60.0


async def stale_locks(subject: str, leases: ContainerProxy) -> list[Finding]:
    """Find the lease locks that nobody can hold any more.

    They are documents `<prefix>.lock`, as the change feed processor names them.

    `subject` names the lease container. Raises AzureError or OSError.
    """
    rows = leases.query_items("SELECT c.id, c._ts FROM c WHERE ENDSWITH(c.id, '.lock')")
    now = time.time()
    return [
        Finding.error(
            f"{subject} has the lock {row['id']!r}, {now - row['_ts']:.0f} s old: its host was killed while "
            "starting, and every other host waits for the lock without logging anything",
            "Delete that document, then set time to live to on without a default (defaultTtl: -1).",
        )
        async for row in rows
        if now - row["_ts"] > _STALE_LOCK_S
    ]
