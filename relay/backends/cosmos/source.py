"""The outbox container as the pipeline's source: change batches, and the leases as its checkpoint.

A batch is the text of a JSON array, parsed where a failure has a name. The Functions worker decodes a trigger's
value before the function runs, and azure-functions does so with orjson if that is installed. Integers of more
than 64 bits then become floats, and an integer of more than 308 digits is an error that no function can catch: its
lease would be stuck. So the worker is given a decoder that keeps the text, and the standard library parses it.
That costs less than to look for long integers and to leave the rest to orjson.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import azure.functions as func
from azure.functions import meta
from azure.functions.cosmosdb import CosmosDBTriggerConverter

from relay.backends.cosmos.containers import Containers
from relay.core.documents import SourceDocument, StoredDocument
from relay.core.errors import ChangesError
from relay.core.events import Event, Received, Rejected, read_event
from relay.core.remedy import SCAN
from relay.routes.selection import Selection

if TYPE_CHECKING:
    from relay.routes.history import StreamRules

# Number of items that are compared before other tasks run: some 3 ms, or 30 if the SDK hashes.
_AT_ONCE = 256

_UNUSABLE = object()

# The types of a batch's values: the place of a document may be empty.
_OBJECTS = {dict, type(None)}


class ChangeBatch(func.DocumentList):
    """One batch of changes, as text; a DocumentList like any other to whoever iterates over it."""

    def __init__(self, text: str) -> None:
        # UserList's own constructor would store a list, where `data` is worked out from the text.
        self.text = text

    @property
    def data(self) -> list[func.Document | None]:  # type: ignore[override]
        """The content of a DocumentList. Raises ChangesError."""
        return [None if each is None else func.Document.from_dict(dict(each)) for each in self.documents()]

    def documents(self) -> list[StoredDocument | None]:
        """Return the documents, value for value. Raises ChangesError if the text is no JSON array of objects."""
        text = self.text
        try:
            documents = _DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            raise ChangesError(
                f"the trigger delivered {len(text)} characters that are not JSON: {error}. The checkpoint is "
                "withheld. See which document it is with `",
                SCAN,
                "`.",
            ) from error
        if not isinstance(documents, list):
            documents = [documents]
        if not _OBJECTS.issuperset(map(type, documents)):
            raise ChangesError(f"the trigger delivered {len(documents)} values that are not all JSON objects")
        return documents


CosmosBatch = ChangeBatch | Iterable[StoredDocument | None]
"""The trigger's documents, as text or parsed."""


class CosmosSource:
    """Reads change batches; `ports.Source` says what each method does."""

    def __init__(self, selection: Selection, containers: Containers) -> None:
        """Create a source; `selection` says which documents are events of the stream."""
        self._selection = selection
        self._containers = containers

    async def read(self, batch: CosmosBatch, /) -> Received:
        return select(batch.documents() if isinstance(batch, ChangeBatch) else batch, self._selection)

    async def passed_positions(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        positions = await self._containers.positions()
        passed = []
        for number, item in enumerate(items, 1):
            lsn, value = item.document.lsn, _partition_key(item)
            if lsn is not None and value is not _UNUSABLE and await positions.has_passed(value, lsn):
                passed.append(item.position)
            if number % _AT_ONCE == 0:
                # Other invocations and renewals must continue meanwhile.
                await asyncio.sleep(0)
        return frozenset(passed)


class CosmosSourceInTime(CosmosSource):
    """Reads change batches where the rules have generations: each document by those of its commit time."""

    def __init__(self, selection: Selection, containers: Containers, rules: StreamRules) -> None:
        """`rules` say which documents are events of the stream; `selection` says it by the rules of today."""
        super().__init__(selection, containers)
        self._rules = rules

    async def read(self, batch: CosmosBatch, /) -> Received:
        documents = batch.documents() if isinstance(batch, ChangeBatch) else batch
        stored = list(map(_stored, documents))
        times = [commit_time(each) for each in stored if each is not None]
        selections = await self._rules.within(min(times, default=0), max(times, default=0))
        if selections.only is not None:
            return select(stored, selections.only)
        return select_each(stored, selections.at)


def _partition_key(item: Event | Rejected) -> Any:
    """Return the partition key value under which Cosmos DB has stored the document.

    Null and numbers are legal too.
    """
    if item.partition_key is not None:
        return item.partition_key
    if "partitionKey" not in item.document.fields:
        from azure.cosmos.partition_key import NonePartitionKeyValue

        return NonePartitionKeyValue
    value = item.document.fields["partitionKey"]
    return value if value is None or isinstance(value, str | int | float) else _UNUSABLE


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"a number of {len(digits)} characters is beyond the range of a double")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)


def install_decoder() -> None:
    """Make the worker hand the trigger's text to the function, in this process.

    azure-functions (1.26.0 and 2.3.0) has no public way to have a Cosmos DB trigger's value undecoded: the binding
    accepts a DocumentList alone. Its converter's method is replaced, for the trigger only.
    """

    def decode(data: meta.Datum | None, *, trigger_metadata: Any) -> ChangeBatch | None:
        if data is None or data.type is None:
            return None
        if data.type in ("string", "json"):
            return ChangeBatch(data.value)
        if data.type == "bytes":
            return ChangeBatch(data.value.decode())
        raise NotImplementedError(f"the trigger's value is of the type {data.type!r}; a text was expected")

    CosmosDBTriggerConverter.decode = staticmethod(decode)  # type: ignore[method-assign]


def select(documents: Iterable[StoredDocument | None], selection: Selection) -> Received:
    """Pick the events of a stream, put them into commit order, and check each."""
    received = Received()
    chosen: list[SourceDocument] = []
    document_of, may_be_unrouted = selection.document_of, selection.may_be_unrouted
    # The type alone decides nearly always, and nothing has to be made of a document that has another one.
    types = () if selection.fields.is_mapped else selection.types
    is_by_type = bool(types) and selection.is_by_type
    for wrapped in documents:
        # The trigger's Document is a UserDict, every look into which is two calls: look into its dict instead.
        stored = getattr(wrapped, "data", wrapped)
        if stored is None or (types and stored.get("type") not in types):
            received.ignored += 1
            continue
        document = SourceDocument(stored, stored) if is_by_type else document_of(stored)
        if document is None:
            received.ignored += 1
        else:
            chosen.append(document)
    for position, document in enumerate(in_commit_order(chosen)):
        event = event_of(document, position)
        if may_be_unrouted:
            event = selection.judged(event)
        if isinstance(event, Event):
            received.events.append(event)
        else:
            received.rejected.append(event)
    return received


def select_each(documents: Iterable[StoredDocument | None], at: Callable[[int], Selection]) -> Received:
    """Pick the events of a stream as `select` does, each by the selection that counts for its commit time."""
    received = Received()
    chosen: list[SourceDocument] = []
    selections: dict[int, Selection] = {}
    for wrapped in documents:
        stored = _stored(wrapped)
        if stored is None:
            received.ignored += 1
            continue
        selection = at(commit_time(stored))
        document = selection.document_of(stored)
        if document is None:
            received.ignored += 1
        else:
            chosen.append(document)
            selections[id(document)] = selection
    for position, document in enumerate(in_commit_order(chosen)):
        event = selections[id(document)].judged(event_of(document, position))
        if isinstance(event, Event):
            received.events.append(event)
        else:
            received.rejected.append(event)
    return received


def _stored(wrapped: StoredDocument | None) -> StoredDocument | None:
    """The document that the trigger's Document has."""
    return getattr(wrapped, "data", wrapped)


def commit_time(stored: StoredDocument) -> int:
    """Return the service's time of a commit, in seconds since 1970; 0 of a document without, as no feed gives."""
    committed_at = stored.get("_ts")
    return committed_at if type(committed_at) is int else 0


def event_of(document: SourceDocument, position: int = 0) -> Event | Rejected:
    """Return the event of a document that is to be one; `position` is its place among those it came with."""
    committed_at = document.stored.get("_ts")
    if type(committed_at) is not int:
        return read_event(document, position)
    ttl = document.stored.get("ttl")
    # Without a `ttl` of its own, or with -1, a document stays, as the container is provisioned.
    # https://learn.microsoft.com/azure/cosmos-db/nosql/time-to-live
    expires_at = committed_at + ttl if type(ttl) is int and ttl > 0 else None
    return read_event(document, position, committed_at=committed_at, expires_at=expires_at)


def in_commit_order(documents: Sequence[SourceDocument]) -> Sequence[SourceDocument]:
    """Return the documents of each transaction in the order in which their events happened.

    All documents of one transaction have the same `_lsn`, and the change feed does not specify their order
    (https://learn.microsoft.com/azure/cosmos-db/change-feed). An event's own `order`, its place within the
    commit, does. If a document of its partition key in the transaction has none, those that have a `sequence` are
    in its order, and the others keep the places that the feed gave them. Transactions of other keys may have the
    same `_lsn`: in a partition that was merged, it is of one of the partitions before.
    """
    lsns = [document.stored.get("_lsn") for document in documents]
    if all(one != other or one is None for one, other in pairwise(lsns)):
        return documents
    ordered: list[SourceDocument] = []
    for lsn, members in groupby(documents, lambda document: document.stored.get("_lsn")):
        transaction = list(members)
        if lsn is not None and len(transaction) > 1:
            for of_key in _places_by_key(transaction):
                places = _numbered(transaction, of_key, "order")
                if len(places) < len(of_key):
                    places = _numbered(transaction, of_key, "sequence")
                for place, document in zip(sorted(places), [transaction[each] for each in places], strict=True):
                    transaction[place] = document
        ordered += transaction
    return ordered


def _places_by_key(documents: Sequence[SourceDocument]) -> Iterable[list[int]]:
    """Return the places of the documents of each partition key; of those without one, together."""
    places: dict[str | None, list[int]] = {}
    for place, document in enumerate(documents):
        key = document.fields.get("partitionKey")
        places.setdefault(key if isinstance(key, str) else None, []).append(place)
    return places.values()


def _numbered(documents: Sequence[SourceDocument], places: Iterable[int], name: str) -> list[int]:
    """Return those of the places whose document has a whole number in this field, by that number."""
    numbers = ((documents[place].fields.get(name), place) for place in places)
    return [place for _, place in sorted((number, place) for number, place in numbers if type(number) is int)]
