"""Finds the documents that the Functions host cannot deliver, and that therefore stop their physical partition.

The host parses each page of the change feed with Newtonsoft.Json before it calls the function. A page is an array,
which counts as a level, and 64 levels are the limit (`JsonSerializerSettings.MaxDepth`;
azure-functions-dotnet-worker issue 1226). An integer has at most 380 characters (`JsonTextReader`). A page that
exceeds a limit is read again every 13 s, and no invocation fails. Cosmos DB itself stores 128 levels.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.cosmos.containers import Containers, explaining
from relay.cosmos.leases import LeasePosition, read_positions
from relay.errors import OperationError
from relay.findings import Finding, Level
from relay.settings import Settings

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

# The levels of a document, counting itself; the array of the page makes 64.
MAX_DEPTH = 63
MAX_INTEGER_CHARACTERS = 380

_PAGE_ITEMS = 100
_RANGE_ID = "x-ms-documentdb-partitionkeyrangeid"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A document that the host cannot deliver.

    Attributes:
        id: The document's id.
        partition_key: Its partition key.
        type: Its type; it need not be an event.
        lsn: Its place in the change feed; None if the feed does not report it.
        lease: The lease that stops at it.
        depth: Its levels, counting itself.
        integer_characters: The length of its longest integer.
    """

    id: str
    partition_key: Any
    type: Any
    lsn: int | None
    lease: str
    depth: int
    integer_characters: int

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "id": self.id,
            "partitionKey": self.partition_key,
            "type": self.type,
            "lsn": self.lsn,
            "lease": self.lease,
            "depth": self.depth,
            "integerCharacters": self.integer_characters,
        }

    def finding(self, container: str) -> Finding:
        """The finding that names it."""
        why = (
            f"is nested {self.depth} levels deep, and the Functions host reads {MAX_DEPTH}"
            if self.depth > MAX_DEPTH
            else f"has an integer of {self.integer_characters} characters, and the Functions host reads "
            f"{MAX_INTEGER_CHARACTERS}"
        )
        return Finding(
            Level.ERROR,
            f"document {self.id!r} with the partition key {self.partition_key!r} (type {self.type!r}, _lsn "
            f"{self.lsn}) {why}: the lease {self.lease!r} stops there, and nothing behind it is relayed",
            f"Delete it from the container '{container}', or replace it with a flatter document with smaller "
            "numbers. The documents behind it are then relayed without further action. If it is an event, its "
            "subscribers never receive it: publish its content in another form.",
        )


@dataclass(frozen=True, slots=True)
class Scan:
    """What the scan found.

    Attributes:
        documents: How many documents are behind the positions of the leases.
        obstacles: Those that cannot be delivered, by lease, then in the order of the feed.
        findings: What `check` reports.
    """

    documents: int
    obstacles: list[Obstacle]
    findings: list[Finding]

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        return {"scanned": self.documents, "obstacles": [each.data() for each in self.obstacles]}


async def scan(settings: Settings) -> Scan:
    """Read the change feed from the positions of the relay's leases to its end, and measure each document."""
    obstacles: list[Obstacle] = []
    documents = 0
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
        return Scan(documents, obstacles, [_unread(str(error), settings)])
    finally:
        await containers.close()
    if not positions.leases:
        nothing = (
            f"COSMOS_LEASE_CONTAINER '{settings.cosmos_lease_container}' has no leases for the outbox container"
        )
        return Scan(0, [], [_unread(nothing, settings)])
    if obstacles:
        return Scan(documents, obstacles, [each.finding(settings.cosmos_container) for each in obstacles])
    said = f"the Functions host can deliver all {documents} document(s) that its leases have not passed"
    return Scan(documents, [], [Finding(Level.OK, said)])


def _unread(said: str, settings: Settings) -> Finding:
    return Finding(
        Level.UNKNOWN,
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
        if not isinstance(lsn, int) or lease.passed(lsn) is not True:
            yield document


def _obstacles(document: Mapping[str, Any], lease: LeasePosition) -> Iterator[Obstacle]:
    depth, characters = measure(document)
    if depth > MAX_DEPTH or characters > MAX_INTEGER_CHARACTERS:
        yield Obstacle(
            id=document["id"],
            partition_key=document.get("partitionKey"),
            type=document.get("type"),
            lsn=document.get("_lsn"),
            lease=lease.id,
            depth=depth,
            integer_characters=characters,
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
