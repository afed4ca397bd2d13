"""Finds the documents that the relay has not passed and that will not be published.

The Functions host cannot deliver some, which therefore stop their physical partition. The host parses each page
of the change feed with Newtonsoft.Json before it calls the function. A page is an array, which counts as a level,
and 64 levels are the limit (`JsonSerializerSettings.MaxDepth`; azure-functions-dotnet-worker issue 1226). An
integer has at most 380 characters (`JsonTextReader`). A page that exceeds a limit is read again every 13 s, and no
invocation fails. Cosmos DB itself stores 128 levels.

Others are delivered, and the relay will find that they can never become messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from outbox_relay.operator.backends.scans import Places, Refused, Scan, refused_findings
from relay.backends.cosmos.containers import Containers, explaining
from relay.backends.cosmos.feed import behind, integers_of_any_length
from relay.backends.cosmos.leases import LeasePosition, read_positions
from relay.backends.cosmos.source import event_of
from relay.backends.findings import Finding
from relay.config.settings import Settings
from relay.core.documents import StoredDocument
from relay.core.errors import OperationError
from relay.core.events import Event, Rejected
from relay.core.remedy import Sentence
from relay.routes.mapping import Fields

MAX_DEPTH = 63
"""Maximum levels of a document, counting itself; the array of the page makes 64."""

MAX_INTEGER_CHARACTERS = 380

# Documents of a page.
_PAGE_ITEMS = 100


@dataclass(slots=True)
class _Found:
    """The state of a scan: documents read, documents that the host cannot deliver, and invalid events."""

    documents: int = 0
    obstacles: list[dict[str, Any]] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    ids: Places = field(default_factory=Places)


async def scan(settings: Settings) -> Scan:
    """Read the change feed from the positions of the relay's leases to its end, and examine each document."""
    found = _Found()
    containers = Containers(settings.in_cosmos)
    try:
        with explaining(settings.in_cosmos.lease_container), integers_of_any_length():
            container = await containers.open(settings.in_cosmos.container)
            leases = await containers.open(settings.in_cosmos.lease_container)
            positions = await read_positions(leases, container, prefix=settings.in_cosmos.lease_prefix)
            for lease in positions.leases:
                async for document in behind(container, lease, _PAGE_ITEMS):
                    if not lease.has_passed(document):
                        _examine(document, lease, settings, found)
    except OperationError as error:
        findings = [_not_scanned(error.sentence, settings)]
    else:
        findings = _findings(found, settings)
        if not positions.leases:
            name = settings.in_cosmos.lease_container
            said = f"COSMOS_LEASE_CONTAINER '{name}' has no leases for the outbox container"
            findings = [_not_scanned(said, settings)]
    finally:
        await containers.close()
    rejected = [each.data("lease") for each in found.refused]
    return Scan(findings, {"scanned": found.documents, "obstacles": found.obstacles, "rejected": rejected})


def _examine(document: StoredDocument, lease: LeasePosition, settings: Settings, found: _Found) -> None:
    found.documents += 1
    selection = settings.selection
    obstacles = list(_obstacles(document, lease, selection.fields))
    found.obstacles += obstacles
    # What is not delivered is not validated either.
    read = None if obstacles else selection.document_of(document)
    if read is not None:
        event = selection.judged(event_of(read))
        found.refused += [Refused(lease.id, event)] if isinstance(event, Rejected) else []
        if isinstance(event, Event):
            found.ids.see(event.id, event.partition_key)


def _findings(found: _Found, settings: Settings) -> list[Finding]:
    """Return the findings about what was read to its end."""
    container = settings.in_cosmos.container
    correct = (
        f"Replace it in the container '{container}' before the relay comes to it. It then moves behind the later "
        "events of its partition key."
    )
    said = (
        f"the Functions host can deliver all {found.documents} document(s) that its leases have not passed, and "
        "each event among them can become a message"
    )
    return [
        *(_finding(obstacle, container) for obstacle in found.obstacles),
        *refused_findings(found.refused, "lease", settings.policy.on_poison, correct),
        *found.ids.findings(_SAME_ID, _OWN_ID),
    ] or [Finding.ok(said)]


_SAME_ID = (
    "events of the partition keys {first} and {second} have the same message id, {name}: a topic that is not "
    "partitioned takes the second one for a duplicate of the first, and drops it"
)
_OWN_ID = (
    "If the topic is not partitioned, have the services write ids that are unique in the whole outbox, or have "
    '[fields] of relay.toml join the id with what makes it unique: id = ["/source", "/id"].'
)


def _not_scanned(said: str, settings: Settings) -> Finding:
    return Finding.unknown(
        Sentence(f"the change feed of '{settings.in_cosmos.container}' was not scanned: ", said),
        "Scan again when a host has created the leases, with an identity that can read both containers.",
    )


def _obstacles(document: StoredDocument, lease: LeasePosition, fields: Fields) -> Iterator[dict[str, Any]]:
    """Yield the document if the host cannot deliver it, so that `lease` stops there.

    It has the form of `--json` and its stored id.
    """
    depth, characters = measure(document)
    if depth > MAX_DEPTH or characters > MAX_INTEGER_CHARACTERS:
        read = fields.document(document).fields
        yield {
            "id": document["id"],
            "partitionKey": read.get("partitionKey"),
            "type": read.get("type"),
            "lsn": document.get("_lsn"),
            "lease": lease.id,
            "depth": depth,
            "integerCharacters": characters,
        }


def undeliverable(
    documents: Iterable[StoredDocument], lease: LeasePosition, container: str, fields: Fields
) -> list[Finding]:
    """Return the findings about documents behind a lease that the host cannot deliver."""
    return [_finding(obstacle, container) for each in documents for obstacle in _obstacles(each, lease, fields)]


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
    """Return the levels of a document, counting itself, and the characters of its longest integer."""
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
