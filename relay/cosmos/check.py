"""Checks the outbox in Cosmos DB against what the relay's guarantees require, and changes nothing.

`scan` finds the documents that the Functions host cannot deliver, and that therefore stop their physical
partition. The host parses each page of the change feed with Newtonsoft.Json before it calls the function. A page
is an array, which counts as a level, and 64 levels are the limit (`JsonSerializerSettings.MaxDepth`;
azure-functions-dotnet-worker issue 1226). An integer has at most 380 characters (`JsonTextReader`). A page that
exceeds a limit is read again every 13 s, and no invocation fails. Cosmos DB itself stores 128 levels.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from relay.cosmos.containers import Containers, explaining
from relay.cosmos.leases import LeasePosition, read_positions
from relay.cosmos.locks import stale_locks
from relay.errors import OperationError, first_line
from relay.findings import Finding, Level, Scan
from relay.settings import Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy, DatabaseProxy

T = TypeVar("T")

# Maximum seconds of all that `check` reads, including the SDK's retries.
_TIMEOUT_S = 20.0

_FAILURES = (AzureError, OSError, ValueError)

MAX_DEPTH = 63
"""Maximum levels of a document, counting itself; the array of the page makes 64."""

MAX_INTEGER_CHARACTERS = 380

_PAGE_ITEMS = 100
_RANGE_ID = "x-ms-documentdb-partitionkeyrangeid"

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
    """The findings about the database, its containers and the relay's leases."""
    subject = f"COSMOS_DATABASE '{settings.cosmos_database}'"
    opened = Containers(settings)
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
    lease_name = settings.cosmos_lease_container
    leases = f"COSMOS_LEASE_CONTAINER '{lease_name}'"
    definitions = {}
    for setting, name, path in (
        ("COSMOS_CONTAINER", settings.cosmos_container, "/partitionKey"),
        ("COSMOS_LEASE_CONTAINER", lease_name, "/id"),
        ("COSMOS_QUARANTINE_CONTAINER", settings.cosmos_quarantine_container, "/partitionKey"),
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
    monitored = database.get_container_client(settings.cosmos_container)
    overlaps = await _read(_overlaps(leases, stored, monitored), leases, "Create the container.")
    # If the leases cannot be read, the findings about the containers and the locks say why.
    return findings if isinstance(overlaps, Finding) else findings + overlaps


async def _read(request: Awaitable[T], subject: str, create: str) -> T | Finding:
    """The account's answer, or the finding that says why there is none."""
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
    return Finding.error(
        f"{subject} has the partition key {found}, not {expected}",
        "A container's partition key cannot be changed: create another container and copy the items to it.",
    )


def _time_to_live(setting: str, subject: str, default_s: int | None) -> Finding:
    """`default_s`: -1 for on without a default, None for off."""
    per_item, off, limited = _TIME_TO_LIVE[setting]
    found = per_item if default_s == -1 else off if default_s is None else limited
    return replace(found, what=f"{subject} {found.what.format(default_s)}")


async def _overlaps(subject: str, leases: ContainerProxy, monitored: ContainerProxy) -> list[Finding]:
    """A host deletes the lease of a physical partition that was split, once it has created those of its children.

    If that fails, the lease stays (azure-cosmos-dotnet-v3 issue 5604).
    """
    positions = await read_positions(leases, monitored, own_only=True)
    overlapping = groupby(positions.overlapping(), lambda pair: pair[0].id)
    return [
        Finding.warning(
            f"{subject} has the lease {wider!r}, which overlaps {', '.join(repr(each.id) for _, each in pairs)}: "
            "a lease was left behind by a split or merge. Hosts take it again and again, and what a later split "
            "makes of its range may be read from its old position, so that old events are relayed again",
            "If check still reports it after some minutes, give the app's identity the right to delete items of "
            "this container (role 'Cosmos DB Built-in Data Contributor'): the next host that takes the old lease "
            "deletes it.",
        )
        for wider, pairs in overlapping
    ]


async def scan(settings: Settings) -> Scan:
    """Read the change feed from the positions of the relay's leases to its end, and measure each document."""
    documents = 0
    obstacles: list[dict[str, Any]] = []
    containers = Containers(settings)
    try:
        with explaining(settings.cosmos_lease_container), _integers_of_any_length():
            container = await containers.open(settings.cosmos_container)
            positions = await read_positions(await containers.open(settings.cosmos_lease_container), container)
            for lease in positions.leases:
                async for document in _behind(container, lease):
                    documents += 1
                    obstacles += _obstacles(document, lease)
    except OperationError as error:
        findings = [_not_scanned(str(error), settings)]
    else:
        findings = [_finding(obstacle, settings.cosmos_container) for obstacle in obstacles]
        if not positions.leases:
            name = settings.cosmos_lease_container
            said = f"COSMOS_LEASE_CONTAINER '{name}' has no leases for the outbox container"
            findings = [_not_scanned(said, settings)]
        elif not obstacles:
            said = f"the Functions host can deliver all {documents} document(s) that its leases have not passed"
            findings = [Finding.ok(said)]
    finally:
        await containers.close()
    return Scan(findings, {"scanned": documents, "obstacles": obstacles})


def _not_scanned(said: str, settings: Settings) -> Finding:
    return Finding.unknown(
        f"the change feed of '{settings.cosmos_container}' was not scanned: {said}",
        "Scan again when a host has created the leases, with an identity that can read both containers.",
    )


async def _behind(container: ContainerProxy, lease: LeasePosition) -> AsyncIterator[Mapping[str, Any]]:
    """The documents that the lease has not passed."""
    options: dict[str, Any]
    if lease.continuation is not None and lease.token.isdecimal():
        # A bare ETag goes with the range that it belongs to (azure-cosmos 4.17.1).
        options = {"continuation": lease.continuation, "headers": {_RANGE_ID: lease.token}}
    else:
        bounds = {"min": lease.minimum, "max": lease.maximum, "isMinInclusive": True, "isMaxInclusive": False}
        options = {"feed_range": {"Range": bounds}, "start_time": "Beginning"}
    async for document in container.query_items_change_feed(max_item_count=_PAGE_ITEMS, **options):
        lsn = document.get("_lsn")
        if not isinstance(lsn, int) or lsn > lease.done:
            yield document


def _obstacles(document: Mapping[str, Any], lease: LeasePosition) -> Iterator[dict[str, Any]]:
    """The document as `--json` has it, if the host cannot deliver it: `lease` stops there."""
    depth, characters = measure(document)
    if depth > MAX_DEPTH or characters > MAX_INTEGER_CHARACTERS:
        yield {
            "id": document["id"],
            "partitionKey": document.get("partitionKey"),
            "type": document.get("type"),
            "lsn": document.get("_lsn"),
            "lease": lease.id,
            "depth": depth,
            "integerCharacters": characters,
        }


def _finding(obstacle: Mapping[str, Any], container: str) -> Finding:
    why = f"is nested {obstacle['depth']} levels deep, and the Functions host reads {MAX_DEPTH}"
    if obstacle["depth"] <= MAX_DEPTH:
        why = (
            f"has an integer of {obstacle['integerCharacters']} characters, and the Functions host reads "
            f"{MAX_INTEGER_CHARACTERS}"
        )
    return Finding.error(
        f"document {obstacle['id']!r} with the partition key {obstacle['partitionKey']!r} (type "
        f"{obstacle['type']!r}, _lsn {obstacle['lsn']}) {why}: the lease {obstacle['lease']!r} stops there, and "
        "nothing behind it is relayed",
        f"Delete it from the container '{container}', or replace it with a flatter document with smaller numbers. "
        "The documents behind it are then relayed without further action. If it is an event, its subscribers "
        "never receive it: publish its content in another form.",
    )


def measure(document: Mapping[str, Any]) -> tuple[int, int]:
    """The levels of a document, counting itself, and the characters of its longest integer."""
    depth = characters = 0
    layer: list[Any] = [document]
    while layer:
        # Fewer than 19 characters are within any limit, and comparing is cheaper than counting them.
        large = [value for value in layer if type(value) is int and abs(value) >= 10**18]
        characters = max([characters, *(len(str(value)) for value in large)])
        containers = [value for value in layer if isinstance(value, dict | list)]
        depth += 1 if containers else 0
        layer = [child for value in containers for child in (value.values() if isinstance(value, dict) else value)]
    return depth, characters


@contextmanager
def _integers_of_any_length() -> Iterator[None]:
    """By default Python refuses to parse more than 4 300 digits."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(limit)
