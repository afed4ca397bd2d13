"""The operations on an item, alone or in a transactional batch: preconditions, outcomes, charges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outbox_relay.emulators.cosmos import charges
from outbox_relay.emulators.cosmos.documents import Document, Item
from outbox_relay.emulators.cosmos.errors import BadRequest, Conflict, CosmosError, NotFound, PreconditionFailed
from outbox_relay.emulators.cosmos.items import Commit
from outbox_relay.emulators.cosmos.patching import apply_patch

_ID_TAKEN = "Entity with the specified id already exists in the system."


class NotModified(CosmosError):
    """An answer without a body, not an error: the client has the version with this ETag already."""

    status = 304
    code = "NotModified"

    def __init__(self, etag: str) -> None:
        super().__init__("")
        self.etag = etag


@dataclass(frozen=True, slots=True)
class Precondition:
    """`If-Match` and `If-None-Match`: an ETag, `*` for any version, None for no condition."""

    if_match: str | None = None
    if_none_match: str | None = None

    def check_write(self, existing: Item | None) -> None:
        """Raise PreconditionFailed if the item exists in another version."""
        if existing is None:
            return
        if self.if_match is not None and not _matches(self.if_match, existing):
            raise PreconditionFailed()
        if self.if_none_match is not None and _matches(self.if_none_match, existing):
            raise PreconditionFailed()

    def check_read(self, existing: Item) -> None:
        """Raise NotModified if the client has this version. `If-Match` has no effect on a read."""
        if self.if_none_match is not None and _matches(self.if_none_match, existing):
            raise NotModified(existing.etag)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an operation; `item` is the item to return, None after a delete."""

    status: int
    charge: float
    item: Item | None = None
    wrote: bool = True


def create(commit: Commit, document: Document) -> Outcome:
    """Create an item. Raises Conflict if the id is in use, BadRequest for another logical partition."""
    commit.container.partition_key.check(document.value, commit.key)
    if commit.find(document.id) is not None:
        raise Conflict(_ID_TAKEN)
    return Outcome(201, charges.write(document.text), commit.insert(document))


def upsert(commit: Commit, document: Document, precondition: Precondition) -> Outcome:
    """Replace the item, or create it: a precondition applies only to an existing item.

    Source: https://github.com/Azure/azure-cosmos-dotnet-v3/issues/1698.
    """
    commit.container.partition_key.check(document.value, commit.key)
    existing = commit.find(document.id)
    if existing is None:
        return Outcome(201, charges.write(document.text), commit.insert(document))
    precondition.check_write(existing)
    return Outcome(200, charges.write(document.text), commit.update(existing, document))


def read(commit: Commit, item_id: str, precondition: Precondition) -> Outcome:
    """Read within a batch, which a client that has the version already does not fail.

    `If-Match` with that version is answered in the same way as `If-None-Match`
    (BatchSinglePartitionKeyTests.cs in azure-cosmos-dotnet-v3).
    """
    existing = _existing(commit, item_id)
    try:
        precondition.check_read(existing)
        Precondition(if_none_match=precondition.if_match).check_read(existing)
    except NotModified as unchanged:
        return Outcome(unchanged.status, charges.LEAST, wrote=False)
    return Outcome(200, charges.read(existing.text), existing, wrote=False)


def replace(commit: Commit, item_id: str, document: Document, precondition: Precondition) -> Outcome:
    """Store a new version, under a new id if the document has another. Raises Conflict if that id is in use."""
    existing = _existing(commit, item_id)
    commit.container.partition_key.check(document.value, commit.key)
    precondition.check_write(existing)
    if document.id != item_id and commit.find(document.id) is not None:
        raise Conflict(_ID_TAKEN)
    return Outcome(200, charges.write(document.text), commit.update(existing, document))


def patch(
    commit: Commit,
    item_id: str,
    specification: Any,
    precondition: Precondition,
    holds: Callable[[object, Item], bool],
) -> Outcome:
    """Apply a partial update; `holds` says whether the stored item meets the patch's condition.

    The specification is `{"operations": […], "condition": …}`, or the operations alone, as the JavaScript SDK
    sends them (4.9.3, PatchRequestBody).
    """
    existing = _existing(commit, item_id)
    precondition.check_write(existing)
    if isinstance(specification, list):
        specification = {"operations": specification}
    if not isinstance(specification, dict):
        raise BadRequest("A patch has to be a JSON object with 'operations', or a list of them.")
    condition = specification.get("condition")
    if condition is not None and not holds(condition, existing):
        raise PreconditionFailed()
    document = apply_patch(existing, specification.get("operations"), commit.container.partition_key)
    return Outcome(200, charges.write(document.text), commit.update(existing, document))


def delete(commit: Commit, item_id: str, precondition: Precondition) -> Outcome:
    existing = _existing(commit, item_id)
    precondition.check_write(existing)
    commit.delete(existing)
    return Outcome(204, charges.write(existing.text))


def _existing(commit: Commit, item_id: str) -> Item:
    existing = commit.find(item_id)
    if existing is None:
        raise NotFound()
    return existing


def _matches(etag: str, item: Item) -> bool:
    return etag == "*" or etag.strip('"') == item.etag.strip('"')
