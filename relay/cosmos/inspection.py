"""Reads what `check` needs to know of the database and its containers, and changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from relay.cosmos.containers import Containers
from relay.cosmos.leases import read_positions
from relay.errors import first_line
from relay.findings import Gap, Why
from relay.settings import Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

T = TypeVar("T")

# Everything that is read, including the SDK's retries.
_TIMEOUT_S = 20.0

_FAILURES = (AzureError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """A container's definition.

    Attributes:
        partition_key: Its paths in order; several for a hierarchical key.
        default_ttl: Seconds; -1 for on without a default, None for off.
    """

    partition_key: tuple[str, ...]
    default_ttl: int | None


@dataclass(frozen=True, slots=True)
class LockFacts:
    """The lock that a host holds while it creates its leases: its document id, and its age in seconds."""

    id: str
    age_s: float


@dataclass(frozen=True, slots=True)
class OverlapFacts:
    """Two leases of the relay that cover some of the same partition keys: their document ids.

    Attributes:
        wider: The lease that begins first, such as that of a physical partition that was split.
        within: The lease that begins within its range.
    """

    wider: str
    within: str


@dataclass(frozen=True, slots=True)
class CosmosFacts:
    """The database, and its containers by the setting that names each; none if the database cannot be read.

    Attributes:
        locks: The locks in the lease container; none if the container does not exist.
        overlaps: The relay's leases that overlap; none if the leases cannot be read.
    """

    database: Gap | None
    containers: Mapping[str, ContainerFacts | Gap]
    locks: list[LockFacts] | Gap = field(default_factory=list)
    overlaps: list[OverlapFacts] = field(default_factory=list)


async def read_cosmos(settings: Settings) -> CosmosFacts:
    """The database and the three containers, as the account describes them."""
    opened = Containers(settings)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            database = await opened.database()
            found = await _request(database.read)
            if isinstance(found, Gap) and found.why is not Why.FORBIDDEN:
                return CosmosFacts(found, {})
            containers = {
                setting: await _request(database.get_container_client(name).read)
                for setting, name in container_settings(settings).items()
            }
            leases = database.get_container_client(settings.cosmos_lease_container)
            locks = await _request(lambda: _read_locks(leases))
            data = database.get_container_client(settings.cosmos_container)
            overlaps = await _request(lambda: _read_overlaps(leases, data))
    except _FAILURES as error:
        return CosmosFacts(_gap(error), {})
    finally:
        await opened.close()
    return CosmosFacts(
        found if isinstance(found, Gap) else None,
        {
            setting: properties if isinstance(properties, Gap) else _container_facts(properties)
            for setting, properties in containers.items()
        },
        [] if isinstance(locks, Gap) and isinstance(containers["COSMOS_LEASE_CONTAINER"], Gap) else locks,
        # The findings about the containers and the locks say why leases cannot be read.
        [] if isinstance(overlaps, Gap) else overlaps,
    )


async def _read_locks(leases: ContainerProxy) -> list[LockFacts]:
    """The documents `<prefix>.lock`, as the change feed processor names them: one per trigger."""
    rows = leases.query_items("SELECT c.id, c._ts FROM c WHERE ENDSWITH(c.id, '.lock')")
    now = time.time()
    return [LockFacts(row["id"], now - row["_ts"]) async for row in rows]


async def _read_overlaps(leases: ContainerProxy, data: ContainerProxy) -> list[OverlapFacts]:
    positions = await read_positions(leases, data, own_only=True)
    return [OverlapFacts(wider.id, within.id) for wider, within in positions.overlapping()]


def container_settings(settings: Settings) -> dict[str, str]:
    """The containers by the setting that names each."""
    return {
        "COSMOS_CONTAINER": settings.cosmos_container,
        "COSMOS_LEASE_CONTAINER": settings.cosmos_lease_container,
        "COSMOS_QUARANTINE_CONTAINER": settings.cosmos_quarantine_container,
    }


def _container_facts(properties: dict[str, Any]) -> ContainerFacts:
    return ContainerFacts(
        partition_key=tuple(properties.get("partitionKey", {}).get("paths", ())),
        default_ttl=properties.get("defaultTtl"),
    )


async def _request(request: Callable[[], Awaitable[T]]) -> T | Gap:
    try:
        return await request()
    except _FAILURES as error:
        return _gap(error)


def _gap(error: Exception) -> Gap:
    """401 is a key or a token that the account does not accept; 403 an identity that lacks a role, or a firewall.

    https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb
    """
    status = error.status_code if isinstance(error, HttpResponseError) else None
    whys = {404: Why.MISSING, 403: Why.FORBIDDEN, 401: Why.REFUSED}
    why = whys.get(status or 0, Why.UNREACHABLE)
    if isinstance(error, ClientAuthenticationError):
        why = Why.REFUSED
    return Gap(why, first_line(error))
