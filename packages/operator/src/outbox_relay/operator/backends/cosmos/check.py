"""Checks the outbox in Cosmos DB against what the relay's guarantees require, and changes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from outbox_relay.operator.backends.cosmos.reader import stale_locks
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.leases import read_positions
from relay.backends.cosmos.overlaps import overlaps
from relay.backends.findings import Finding, Level
from relay.backends.outbox import NextPage
from relay.config.settings import Settings
from relay.core.errors import first_line
from relay.core.times import format_duration

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy, DatabaseProxy

T = TypeVar("T")

# Maximum seconds of all that `check` reads, including the SDK's retries.
_TIMEOUT_S = 20.0

_LATE_S = 300.0

_FAILURES = (AzureError, OSError, ValueError)


_CREATE_DATABASE = "Create the database, or correct COSMOS_DATABASE."
_SET_TTL_PER_ITEM = "Set it to on without a default (defaultTtl: -1)."
_TURN_TTL_OFF = "Turn time to live off."

# By the setting that names a container: what its time to live means if it is on without a default, if it is
# off, and if it has a default, in seconds. Leases have no `ttl`, but the lock under which a host creates them
# has one of 30 s (Azure/azure-cosmos-dotnet-v3,
# ChangeFeedProcessor/LeaseManagement/DocumentServiceLeaseStoreCosmos.cs; the trigger sets -1 when it creates the
# container).
_TIME_TO_LIVE = {
    "COSMOS_CONTAINER": (
        Finding.ok("has time to live on, without a default"),
        Finding.warning(
            "has time to live off: the ttl of events is ignored, so they are never deleted", _SET_TTL_PER_ITEM
        ),
        Finding.error(
            "has a default time to live of {} s, after which business documents are deleted", _SET_TTL_PER_ITEM
        ),
    ),
    "COSMOS_LEASE_CONTAINER": (
        Finding.ok("has time to live on, without a default: leases stay, locks expire"),
        Finding.error(
            "has time to live off: the lock of a host that is killed while it starts never expires, and every "
            "later host waits for it without logging anything",
            _SET_TTL_PER_ITEM,
        ),
        Finding.error(
            "has a default time to live of {} s: a lease that expires loses its checkpoint, and the whole change "
            "feed is relayed again",
            _SET_TTL_PER_ITEM,
        ),
    ),
    "COSMOS_QUARANTINE_CONTAINER": (
        Finding.warning(
            "has time to live on, without a default: nothing expires unless somebody adds a ttl", _TURN_TTL_OFF
        ),
        Finding.ok("has time to live off: nothing in it expires"),
        Finding.error(
            "has a default time to live of {} s, after which quarantined events are lost", _TURN_TTL_OFF
        ),
    ),
}


async def check(settings: Settings) -> list[Finding]:
    """Return the findings about the database, its containers and the relay's leases."""
    subject = f"COSMOS_DATABASE '{settings.in_cosmos.database}'"
    opened = Containers(settings.in_cosmos)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await _check(subject, await opened.database(), settings)
    except _FAILURES as error:
        return [_unread(subject, error, _CREATE_DATABASE)]
    finally:
        await opened.close()


async def _check(subject: str, database: DatabaseProxy, settings: Settings) -> list[Finding]:
    found = await _read(database.read(), subject, _CREATE_DATABASE)
    # An identity that may not read the database may still read its containers.
    if isinstance(found, Finding) and found.level is Level.ERROR:
        return [found]
    findings = [found if isinstance(found, Finding) else Finding.ok(f"{subject} exists")]
    outbox = settings.in_cosmos
    lease_name = outbox.lease_container
    leases = f"COSMOS_LEASE_CONTAINER '{lease_name}'"
    definitions = {}
    for setting, name, path in (
        ("COSMOS_CONTAINER", outbox.container, settings.selection.fields.of_document("key")[0].text),
        ("COSMOS_LEASE_CONTAINER", lease_name, "/id"),
        ("COSMOS_QUARANTINE_CONTAINER", outbox.quarantine_container, "/partitionKey"),
    ):
        subject = f"{setting} '{name}'"
        create = f"Create the container with the partition key {path}, or correct {setting}."
        definition = await _read(database.get_container_client(name).read(), subject, create)
        definitions[setting] = definition
        if isinstance(definition, Finding):
            findings.append(definition)
        else:
            findings.append(_partition_key(subject, definition, path))
            findings.append(_time_to_live(setting, subject, definition.get("defaultTtl")))
    stored = database.get_container_client(lease_name)
    locks = await _read(stale_locks(leases, stored), f"the locks in {leases}", "Create the container.")
    if not isinstance(locks, Finding):
        findings += locks
    elif not isinstance(definitions["COSMOS_LEASE_CONTAINER"], Finding):
        findings.append(locks)
    monitored = database.get_container_client(outbox.container)
    overlapping = await _read(
        _overlaps(leases, stored, monitored, outbox.lease_prefix), leases, "Create the container."
    )
    # If the leases cannot be read, the findings about the containers and the locks say why.
    if isinstance(overlapping, Finding):
        return findings
    elsewhere = await _read(
        _of_another_container(leases, stored, monitored, outbox.lease_prefix), leases, "Create the container."
    )
    return findings + overlapping + ([] if isinstance(elsewhere, Finding) else elsewhere)


async def _read(request: Awaitable[T], subject: str, create: str) -> T | Finding:
    """Return the account's answer, or the finding that says why there is none."""
    try:
        return await request
    except _FAILURES as error:
        return _unread(subject, error, create)


def _unread(subject: str, error: Exception, create: str) -> Finding:
    """401 is a key or a token that the account does not accept; 403 an identity that lacks a role, or a firewall.

    https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb
    """
    status = error.status_code if isinstance(error, HttpResponseError) else None
    said = first_line(error)
    if status == 401 or isinstance(error, ClientAuthenticationError):
        return Finding.error(
            f"the Cosmos DB account refused the credentials: {said}",
            "Check COSMOS, or COSMOS__credential and COSMOS__clientId.",
            unavailable=True,
        )
    if status == 403:
        return Finding.unknown(
            f"{subject} cannot be read with these rights: {said}",
            "Run check with an identity that has the role 'Cosmos DB Built-in Data Contributor', which the app "
            "needs too, from a network that the account's firewall allows.",
        )
    if status == 404:
        return Finding.error(f"{subject} does not exist", create)
    return Finding.error(
        f"the Cosmos DB account cannot be reached: {said}",
        "Check the address in COSMOS or COSMOS__accountEndpoint, and the network between here and there.",
        unavailable=True,
    )


def _partition_key(subject: str, definition: Mapping[str, Any], expected: str) -> Finding:
    paths = definition.get("partitionKey", {}).get("paths", [])
    found = ", ".join(paths) or "none"
    if paths == [expected]:
        return Finding.ok(f"{subject} has the partition key {found}")
    remedy = "A container's partition key cannot be changed: create another container and copy the items to it."
    if subject.startswith("COSMOS_CONTAINER") and len(paths) == 1:
        remedy += f' Or, if {found} is the key of its events, set key = "{found}" in [fields] of relay.toml.'
    return Finding.error(f"{subject} has the partition key {found}, not {expected}", remedy)


def _time_to_live(setting: str, subject: str, default_s: int | None) -> Finding:
    """Return the finding about the time to live; `default_s`: -1 for on without a default, None for off."""
    per_item, off, limited = _TIME_TO_LIVE[setting]
    found = per_item if default_s == -1 else off if default_s is None else limited
    return replace(found, what=f"{subject} {found.what.format(default_s)}")


async def _overlaps(subject: str, leases: ContainerProxy, monitored: ContainerProxy, prefix: str) -> list[Finding]:
    positions = await read_positions(leases, monitored, prefix=prefix, own_only=True)
    return overlaps(subject, positions, [each async for each in monitored.read_feed_ranges()])


async def _of_another_container(
    subject: str, leases: ContainerProxy, monitored: ContainerProxy, prefix: str
) -> list[Finding]:
    """Return an error if the relay has leases of other containers, and none of this one.

    The id of a lease is that of its account, its database and its container (`leases.py`). A container that
    is deleted and created again has another id, and running hosts still read the one that is gone.
    """
    host = urlsplit(monitored.client_connection.url_connection).hostname
    own = f"{prefix}{host}_"
    ids = leases.query_items(
        "SELECT c.id FROM c WHERE STARTSWITH(c.id, @own)", parameters=[{"name": "@own", "value": own}]
    )
    named = [each["id"].removeprefix(own).partition("..") async for each in ids]
    containers = {container.partition("_")[2] for container, is_lease, _ in named if is_lease}
    present = (await monitored.read())["_rid"]
    if not containers or present in containers:
        return []
    return [
        Finding.error(
            f"{subject} has leases of {', '.join(map(repr, sorted(containers)))} and none of {present!r}, which "
            "is the outbox container: nothing of it is relayed",
            "If the container was deleted and created again, restart the app: its hosts still read the one that "
            "is gone. If the app was never started, start it.",
        )
    ]


def check_pages(pages: Sequence[NextPage], container: str) -> list[Finding]:
    """Return the findings about events of the relay's next pages that wait for too long."""
    now = time.time()
    subject = f"COSMOS_CONTAINER '{container}'"
    found = []
    for page in pages:
        first = next((each for each in page.received.events if each.committed_at is not None), None)
        age_s = 0.0 if first is None else now - (first.committed_at or 0)
        if first is not None and age_s > _LATE_S:
            waits = format_duration(timedelta(seconds=round(age_s)))
            found.append(
                Finding.warning(
                    f"{subject} has events that wait for longer than PT5M to be published: the first of partition "
                    f"{page.partition!r}, {first.id!r} of the partition key {first.partition_key!r}, for {waits}",
                    "Look at what the relay logged last (relay_failed): it names the event that fails, and the "
                    "command that sets it aside. If the relay is working through a backlog, wait.",
                )
            )
    if not found and pages:
        found.append(Finding.ok(f"no event of {subject} waits for longer than PT5M to be published"))
    return found
