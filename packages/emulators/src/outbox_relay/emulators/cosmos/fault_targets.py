"""Which requests a fault matches: those to a container, those that do one kind of operation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from outbox_relay.emulators.cosmos import query_api
from outbox_relay.emulators.cosmos.messages import Request
from outbox_relay.emulators.properties import Reader


class Operation(StrEnum):
    """The operation of a request; `write` and `any` match several."""

    ANY = "any"
    """Every signed request, those that look up accounts, containers and partition key ranges included."""
    METADATA = "metadata"
    """A request about anything but items: accounts, databases, containers, partition key ranges, offers."""
    READ_FEED = "read-feed"
    """Items in bulk without a query: the change feed, and all items of a container."""
    QUERY = "query"
    READ = "read"
    WRITE = "write"
    """Whatever changes items: all of the following."""
    BATCH = "batch"
    CREATE = "create"
    UPSERT = "upsert"
    REPLACE = "replace"
    PATCH = "patch"
    DELETE = "delete"


_WRITES = frozenset(
    {
        Operation.BATCH,
        Operation.CREATE,
        Operation.UPSERT,
        Operation.REPLACE,
        Operation.PATCH,
        Operation.DELETE,
    }
)
_BY_METHOD = {
    "GET": Operation.READ,
    "PUT": Operation.REPLACE,
    "PATCH": Operation.PATCH,
    "DELETE": Operation.DELETE,
}


@dataclass(frozen=True, slots=True)
class Target:
    """The values that a fault matches; `container` as in the path of the request, None outside of any."""

    container: str | None
    operation: Operation

    @classmethod
    def of(cls, request: Request) -> Target:
        kinds = tuple(segment.lower() for segment in request.segments[::2])
        inside = kinds[:2] == ("dbs", "colls") and len(request.segments) > 3
        return cls(request.segments[3] if inside else None, _operation_of(request, kinds))


@dataclass(frozen=True, slots=True)
class Match:
    """The requests to `container` (None: to any, and outside of any) that do `operation`."""

    container: str | None = None
    operation: Operation = Operation.ANY

    @classmethod
    def read(cls, reader: Reader) -> Match:
        """Read the `match` of a fault; without one it matches everything."""
        container = reader.string("container") or None
        operation = reader.choice("operation", Operation, Operation.ANY)
        reader.done()
        return cls(container, operation)

    def as_json(self) -> dict[str, str | None]:
        return {"container": self.container, "operation": self.operation}

    def covers(self, target: Target) -> bool:
        if self.container not in (None, target.container):
            return False
        if self.operation is Operation.WRITE:
            return target.operation in _WRITES
        return self.operation in (Operation.ANY, target.operation)


EVERYTHING = Match()


def _operation_of(request: Request, kinds: tuple[str, ...]) -> Operation:
    if kinds == ("dbs", "colls", "operations"):
        return Operation.DELETE
    if kinds != ("dbs", "colls", "docs"):
        return Operation.METADATA
    if len(request.segments) == 6:
        return _BY_METHOD.get(request.method, Operation.METADATA)
    if request.method == "GET":
        return Operation.READ_FEED
    if request.flag("x-ms-cosmos-is-batch-request"):
        return Operation.BATCH
    if request.flag("x-ms-cosmos-is-query-plan-request") or query_api.is_query(request):
        return Operation.QUERY
    return Operation.UPSERT if request.flag("x-ms-documentdb-is-upsert") else Operation.CREATE
