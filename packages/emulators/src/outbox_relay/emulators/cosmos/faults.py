"""Faults that are injected into requests: what becomes of which requests, how often and for how long.

{"kind": "throttle", "match": {"container": "data", "operation": "batch"}, "count": 3, "retry_after_ms": 50}
{"kind": "silent", "match": {"container": "leases"}, "for_ms": 10000}
{"kind": "timeout", "match": {"operation": "replace"}, "for_ms": 2000, "hang_ms": 500, "applies": true}
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outbox_relay.emulators import faults
from outbox_relay.emulators.cosmos import query_api
from outbox_relay.emulators.cosmos.messages import Reply, Request
from outbox_relay.emulators.faults import InvalidFault
from outbox_relay.emulators.properties import MAX_INTEGER, Problems, Reader

_LOOK_EVERY_MS = 500

DEFAULT_RETRY_AFTER_MS = 100


class FaultKind(StrEnum):
    """The fate of the request."""

    THROTTLE = "throttle"
    """429, not applied."""
    UNAVAILABLE = "unavailable"
    """503, not applied."""
    GONE = "gone"
    """410/1002, not applied: as while a physical partition splits."""
    TIMEOUT = "timeout"
    """408; applied or not, which a client cannot know."""
    DROP = "drop"
    """The connection is closed without an answer, the request is not applied."""
    DROP_AFTER = "drop-after"
    """The request is applied, then the connection closed without an answer."""
    SILENT = "silent"
    """The request is accepted and never answered, not even after the fault; applied or not."""
    SILENT_MIDWAY = "silent-midway"
    """The request is applied, the headers and half of the body are sent; the connection stays open."""


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


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """A fault as it is asked for: at least one of `count` and `for_ms` is set.

    `retry_after_ms` goes with a throttle. `hang_ms` (the answer's delay) goes with a timeout, and `applies`
    (whether the request is carried out all the same) with a timeout and with silence.
    """

    kind: FaultKind
    match: Match = EVERYTHING
    count: int | None = None
    for_ms: int | None = None
    retry_after_ms: int = DEFAULT_RETRY_AFTER_MS
    hang_ms: int = 0
    applies: bool = False

    @classmethod
    def from_json(cls, body: object) -> FaultPlan:
        """Read the body of `POST /admin/faults`. Raises InvalidFault."""
        problems: Problems = []
        reader = Reader(body, "", problems)
        kind = reader.choice("kind", FaultKind, None)
        if kind is None:
            raise InvalidFault("; ".join(problems))
        match = Match.read(reader.child("match"))
        count, for_ms = reader.limit("count"), reader.limit("for_ms")
        options = {name: read(reader) for name, read in _OPTIONS.get(kind, {}).items()}
        reader.done()
        if count is None and for_ms is None:
            problems.append("count or for_ms is missing: a fault must end")
        if problems:
            raise InvalidFault("; ".join(problems))
        return cls(kind, match, count, for_ms, **options)

    def as_json(self) -> Mapping[str, Any]:
        """Return what was asked for, defaults included."""
        options = {name: getattr(self, name) for name in _OPTIONS.get(self.kind, {})}
        known = {"kind": self.kind, "match": self.match.as_json(), "count": self.count, "for_ms": self.for_ms}
        return known | options


_OPTIONS: Mapping[FaultKind, Mapping[str, Callable[[Reader], Any]]] = {
    FaultKind.THROTTLE: {
        "retry_after_ms": lambda reader: reader.integer("retry_after_ms", DEFAULT_RETRY_AFTER_MS, 0, MAX_INTEGER)
    },
    FaultKind.TIMEOUT: {
        "hang_ms": lambda reader: reader.integer("hang_ms", 0, 0, MAX_INTEGER),
        "applies": lambda reader: reader.boolean("applies"),
    },
    FaultKind.SILENT: {"applies": lambda reader: reader.boolean("applies")},
}

Fault = faults.Fault[FaultPlan]


class ConnectionCut(Exception):
    """The request gets no answer, and its connection no further one."""


class AnswerStopped(Exception):
    """Half of `reply` is sent, and nothing more."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Faults(faults.Faults[FaultPlan]):
    """The faults of one server."""

    def __init__(self, now_ms: Callable[[], int] = _monotonic_ms) -> None:
        super().__init__(now_ms)
        self._stopping = asyncio.Event()

    def apply_to(self, target: Target) -> Fault | None:
        """Return the fault that is applied to this request, if any."""
        return self.apply(lambda plan: plan.match.covers(target))

    async def hang(self, milliseconds: int | None) -> None:
        """Wait that long, but never longer than the server runs; None: as long as it runs."""
        try:
            async with asyncio.timeout(None if milliseconds is None else milliseconds / 1_000):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def hang_while(self, is_connected: Callable[[], bool]) -> None:
        """Wait for as long as the client stays connected, but never longer than the server runs."""
        while is_connected() and not self._stopping.is_set():
            await self.hang(_LOOK_EVERY_MS)

    def stop(self) -> None:
        """Release the requests that hang."""
        self._stopping.set()
