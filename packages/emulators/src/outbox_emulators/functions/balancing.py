"""The leases that a host takes, so that all hosts end up with about as many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from outbox_emulators.functions.leases import Lease


def leases_to_take(leases: Sequence[Lease], *, host: str, now: datetime, expiration_s: float) -> Sequence[Lease]:
    """Return the leases that this host should try to acquire now.

    As EqualPartitionsBalancingStrategy in Azure/azure-cosmos-dotnet-v3: up to an equal share of those that have no
    owner or have expired; if there are none, one from the host with the most, if it has too many.
    """
    free = [lease for lease in leases if _is_free(lease, now, expiration_s)]
    owned = _count_by_owner(leases, free, host)
    share = math.ceil(len(leases) / len(owned))
    needed = share - owned[host]
    if needed <= 0:
        return ()
    if free:
        return free[:needed]
    richest = max(reversed(owned), key=lambda owner: owned[owner])
    if owned[richest] <= share - (1 if needed > 1 else 0):
        return ()
    return [next(lease for lease in leases if lease.owner == richest)]


def _is_free(lease: Lease, now: datetime, expiration_s: float) -> bool:
    return not (lease.owner or "").strip() or lease.timestamp + timedelta(seconds=expiration_s) < now


def _count_by_owner(leases: Sequence[Lease], free: Sequence[Lease], host: str) -> dict[str, int]:
    free_ids = {lease.id for lease in free}
    owned: dict[str, int] = {}
    for lease in leases:
        if lease.id not in free_ids:
            owned[str(lease.owner)] = owned.get(str(lease.owner), 0) + 1
    owned.setdefault(host, 0)
    return owned
