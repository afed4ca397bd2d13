"""Checks the database and its containers against what the relay's guarantees require."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from relay.cosmos.inspection import (
    ContainerFacts,
    CosmosFacts,
    LockFacts,
    OverlapFacts,
    container_settings,
    read_cosmos,
)
from relay.findings import Finding, Gap, Level, Why
from relay.settings import Settings

# The change feed processor holds its lock for 30 s at most. Clocks may differ, and expiry may be late.
_STALE_LOCK_S = 60.0

PARTITION_KEYS = {
    "COSMOS_CONTAINER": "/partitionKey",
    "COSMOS_LEASE_CONTAINER": "/id",
    "COSMOS_QUARANTINE_CONTAINER": "/partitionKey",
}

_SET_TTL_PER_ITEM = "Set it to on without a default (defaultTtl: -1)."
_TURN_TTL_OFF = "Turn time to live off."


async def check(settings: Settings) -> list[Finding]:
    """The findings about the outbox in Cosmos DB that the settings name."""
    facts = await read_cosmos(settings)
    return list(check_cosmos(facts, settings.cosmos_database, container_settings(settings)))


def check_cosmos(facts: CosmosFacts, database: str, containers: dict[str, str]) -> Iterator[Finding]:
    """The findings about the database and its containers.

    Args:
        facts: What was read.
        database: The name of the database.
        containers: The names of the containers, by setting.
    """
    subject = f"COSMOS_DATABASE '{database}'"
    if facts.database is not None:
        yield _gap(subject, facts.database, "Create the database, or correct COSMOS_DATABASE.")
    elif facts.containers:
        yield Finding(Level.OK, f"{subject} exists")
    for setting, found in facts.containers.items():
        subject = f"{setting} '{containers[setting]}'"
        path = PARTITION_KEYS[setting]
        if isinstance(found, Gap):
            yield _gap(
                subject, found, f"Create the container with the partition key {path}, or correct {setting}."
            )
        else:
            yield _partition_key(subject, found, path)
            yield _TTL_CHECKS[setting](subject, found.default_ttl)
    leases = f"COSMOS_LEASE_CONTAINER '{containers['COSMOS_LEASE_CONTAINER']}'"
    yield from _locks(leases, facts.locks)
    yield from _overlaps(leases, facts.overlaps)


def _gap(subject: str, gap: Gap, create: str) -> Finding:
    match gap.why:
        case Why.MISSING:
            return Finding(Level.ERROR, f"{subject} does not exist", create)
        case Why.FORBIDDEN:
            return Finding(
                Level.UNKNOWN,
                f"{subject} cannot be read with these rights: {gap.said}",
                "Run check with an identity that has the role 'Cosmos DB Built-in Data Contributor', which the "
                "app needs too, from a network that the account's firewall allows.",
            )
        case Why.REFUSED:
            return Finding(
                Level.ERROR,
                f"the Cosmos DB account refused the credentials: {gap.said}",
                "Check COSMOS, or COSMOS__credential and COSMOS__clientId.",
                unavailable=True,
            )
    return Finding(
        Level.ERROR,
        f"the Cosmos DB account cannot be reached: {gap.said}",
        "Check the address in COSMOS or COSMOS__accountEndpoint, and the network between here and there.",
        unavailable=True,
    )


def _partition_key(subject: str, facts: ContainerFacts, expected: str) -> Finding:
    found = ", ".join(facts.partition_key) or "none"
    if facts.partition_key == (expected,):
        return Finding(Level.OK, f"{subject} has the partition key {found}")
    return Finding(
        Level.ERROR,
        f"{subject} has the partition key {found}, not {expected}",
        "A container's partition key cannot be changed: create another container and copy the items to it.",
    )


def _data_ttl(subject: str, default_ttl: int | None) -> Finding:
    if default_ttl == -1:
        return Finding(Level.OK, f"{subject} has time to live on, without a default")
    if default_ttl is None:
        return Finding(
            Level.WARNING,
            f"{subject} has time to live off: the ttl of events is ignored, so they are never deleted",
            _SET_TTL_PER_ITEM,
        )
    return Finding(
        Level.ERROR,
        f"{subject} has a default time to live of {default_ttl} s, after which business documents are deleted",
        _SET_TTL_PER_ITEM,
    )


def _lease_ttl(subject: str, default_ttl: int | None) -> Finding:
    """Leases have no `ttl`, but the lock under which a host creates them has one of 30 s.

    Azure/azure-cosmos-dotnet-v3, ChangeFeedProcessor/LeaseManagement/DocumentServiceLeaseStoreCosmos.cs; the
    trigger sets -1 when it creates the container.
    """
    if default_ttl == -1:
        return Finding(Level.OK, f"{subject} has time to live on, without a default: leases stay, locks expire")
    if default_ttl is None:
        return Finding(
            Level.ERROR,
            f"{subject} has time to live off: the lock of a host that is killed while it starts never expires, "
            "and every later host waits for it without logging anything",
            _SET_TTL_PER_ITEM,
        )
    return Finding(
        Level.ERROR,
        f"{subject} has a default time to live of {default_ttl} s: a lease that expires loses its checkpoint, and "
        "the whole change feed is relayed again",
        _SET_TTL_PER_ITEM,
    )


def _quarantine_ttl(subject: str, default_ttl: int | None) -> Finding:
    if default_ttl is None:
        return Finding(Level.OK, f"{subject} has time to live off: nothing in it expires")
    if default_ttl == -1:
        return Finding(
            Level.WARNING,
            f"{subject} has time to live on, without a default: nothing expires unless somebody adds a ttl",
            _TURN_TTL_OFF,
        )
    return Finding(
        Level.ERROR,
        f"{subject} has a default time to live of {default_ttl} s, after which quarantined events are lost",
        _TURN_TTL_OFF,
    )


_TTL_CHECKS = {
    "COSMOS_CONTAINER": _data_ttl,
    "COSMOS_LEASE_CONTAINER": _lease_ttl,
    "COSMOS_QUARANTINE_CONTAINER": _quarantine_ttl,
}


def _locks(subject: str, locks: list[LockFacts] | Gap) -> Iterator[Finding]:
    if isinstance(locks, Gap):
        yield _gap(f"the locks in {subject}", locks, "Create the container.")
        return
    for lock in locks:
        if lock.age_s > _STALE_LOCK_S:
            yield Finding(
                Level.ERROR,
                f"{subject} has the lock {lock.id!r}, {lock.age_s:.0f} s old: its host was killed while starting, "
                "and every other host waits for the lock without logging anything",
                "Delete that document, then set time to live to on without a default (defaultTtl: -1).",
            )


def _overlaps(subject: str, overlaps: list[OverlapFacts]) -> Iterator[Finding]:
    """A host deletes the lease of a physical partition that was split, once it has created those of its children.

    Where that fails, the lease stays (azure-cosmos-dotnet-v3 issue 5604).
    """
    for wider, pairs in groupby(overlaps, lambda pair: pair.wider):
        within = ", ".join(repr(pair.within) for pair in pairs)
        yield Finding(
            Level.WARNING,
            f"{subject} has the lease {wider!r}, which overlaps {within}: a lease was left behind by a split or "
            "merge. Hosts take it again and again, and what a later split makes of its range may be read from its "
            "old position, so that old events are relayed again",
            "If check still reports it after some minutes, give the app's identity the right to delete items of "
            "this container (role 'Cosmos DB Built-in Data Contributor'): the next host that takes the old lease "
            "deletes it.",
        )
