"""The state that a recorded request requires, created before the request is sent again.

The recordings have some exchanges of a run, not all: there are containers that no line creates, documents that
only replies show, and commits that nothing shows. The emulator's clock and its random numbers are the recording's.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from typing import Any
from urllib.parse import unquote

import pytest

from outbox_relay.emulators.cosmos import catalog
from outbox_relay.emulators.cosmos.containers import Container
from outbox_relay.emulators.cosmos.documents import Document, raw_resource_id
from outbox_relay.emulators.cosmos.jsontext import Part
from outbox_relay.emulators.cosmos.physical_partitions import Partition
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.cosmos.sessions import demanded_lsn
from outbox_relay.emulators.testing import ManualClock
from packages.emulators.tests.cosmos.recordings import (
    SERIES,
    Exchange,
    Recorded,
    documents_in,
    json_object,
    numbers_in,
    of_series,
)

_CONTAINER_BIT = 0x80
_NEED_A_DOCUMENT = {
    "GET": (200, 304),
    "POST": (409, 412),
    "PUT": (200, 412),
    "PATCH": (200, 412),
    "DELETE": (204, 412),
}


class RecordedRandomness:
    """Returns what the recorded run drew, with the first bit cleared, which the emulator sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tails: deque[bytes] = deque()
        monkeypatch.setattr(catalog, "secrets", self)

    def expect(self, rid: str) -> None:
        """Have the next resource get this `_rid`."""
        raw = raw_resource_id(rid)
        tail = raw[-4:]
        self._tails.append(tail if len(raw) == 4 else bytes([tail[0] & ~_CONTAINER_BIT]) + tail[1:])

    def token_bytes(self, count: int) -> bytes:
        tail = self._tails.popleft()
        assert len(tail) == count
        return tail


class Groundwork:
    """The state that one recording requires, on one emulator."""

    def __init__(
        self,
        exchanges: list[Exchange],
        server: CosmosServer,
        clock: ManualClock,
        randomness: RecordedRandomness,
    ) -> None:
        self._exchanges = exchanges
        self._account = server.account
        self._clock = clock
        self._randomness = randomness
        self._made = 0

    def prepare(self, exchange: Exchange) -> None:
        """Create the state that an exchange requires: clock, container, documents."""
        if exchange.ts is not None:
            self._clock.now = max(self._clock.now, exchange.ts)
        if (exchange.path == "/dbs" and exchange.status == 201) or exchange.creates_container:
            self._randomness.expect(exchange.reply["_rid"])
        if exchange.container is None or exchange.reply_headers.get("x-ms-substatus") == "1003":
            return
        container = self._container(exchange)
        if not exchange.is_about_documents:
            return
        partition = self._partition(exchange, container)
        if partition is not None:
            self._catch_up(exchange, container, partition)
            self._fill(exchange, container, partition)
        self._meet(exchange, container)

    @staticmethod
    def _partition(exchange: Exchange, container: Container) -> Partition | None:
        """The physical partition that answered, if request or reply name it."""
        name = "x-ms-documentdb-partitionkeyrangeid"
        range_id = exchange.reply_headers.get(name) or exchange.headers.get(name)
        key = exchange.headers.get("x-ms-documentdb-partitionkey")
        if range_id is None and key is not None and len(json.loads(key)) == len(container.partition_key.paths):
            return container.partition_of(container.partition_key.of_header(key).effective)
        return next((each for each in container.partitions if each.id == range_id), None)

    def _container(self, exchange: Exchange) -> Container:
        """The container that a request names, created now if no recorded request created it."""
        (database,) = self._account.catalog.databases.values()
        assert exchange.container is not None
        for container in database.containers.values():
            if exchange.container in (container.id, container.rid):
                return container
        name, rid, definition = self._description(exchange.container)
        self._randomness.expect(rid or self._made_up_rid(database.rid))
        made = self._account.catalog.create_container(database, definition | {"id": name})
        made.ts = next((each.ts for each in self._exchanges if self._lists_ranges(each, made)), None) or made.ts
        return made

    @staticmethod
    def _lists_ranges(exchange: Exchange, container: Container) -> bool:
        return exchange.path.endswith("/pkranges") and exchange.container == container.rid

    def _description(self, wanted: str) -> tuple[str, str | None, dict[str, Any]]:
        """Name, `_rid` and definition of a container, as far as any exchange shows them."""
        name, rid = (None, wanted) if wanted.endswith("=") else (wanted, None)
        definition: dict[str, Any] = {"partitionKey": {"paths": ["/partitionKey"], "kind": "Hash"}}
        for exchange in self._exchanges:
            if rid is None and exchange.container == name and "x-ms-content-path" in exchange.reply_headers:
                rid = exchange.reply_headers["x-ms-content-path"]
            if name is None and exchange.reply_headers.get("x-ms-content-path") == rid:
                name = exchange.container
            header = exchange.headers.get("x-ms-documentdb-partitionkey")
            if (
                exchange.container == name
                and header
                and [json_object(exchange.body).get("id")] == json.loads(header)
            ):
                definition["partitionKey"]["paths"] = ["/id"]
        for exchange in self._exchanges:
            if exchange.container in (name, rid) and exchange.path.endswith("/pkranges") and exchange.reply:
                bounds = exchange.reply["PartitionKeyRanges"][0]["maxExclusive"]
                if len(bounds) == 32:
                    definition["partitionKey"]["version"] = 2
            if exchange.container == name and len(exchange.segments) == 4 and exchange.reply_text:
                definition = {key: value for key, value in exchange.reply.items() if not key.startswith("_")}
                rid = exchange.reply["_rid"]
        return name or f"unnamed-{wanted}".replace("/", "-"), rid, definition

    def _made_up_rid(self, database: str) -> str:
        self._made += 1
        raw = raw_resource_id(database) + bytes([_CONTAINER_BIT, 0, 0, self._made])
        return base64.b64encode(raw, b"+-").decode()

    def _catch_up(self, exchange: Exchange, container: Container, partition: Partition) -> None:
        """Commit what was not recorded: documents that later replies show, otherwise numbers without documents."""
        seen = demanded_lsn(exchange.headers, partition) or 0
        answered = exchange.lsn or 0
        before = max(seen, answered - exchange.commits)
        if partition.lsn >= before:
            return
        shown = self._shown(exchange.number, container, partition)
        self._add_series(shown, container, partition, before)
        for lsn in range(partition.lsn + 1, before + 1):
            found = shown.get(lsn, {}).values()
            self._store(container, partition, sorted(found, key=lambda each: each.position))
            partition.lsn = lsn

    def _shown(self, start: int, container: Container, partition: Partition) -> dict[int, dict[str, Recorded]]:
        """The documents of a partition, by LSN and id, that replies show from this exchange on."""
        shown: dict[int, dict[str, Recorded]] = {}
        for exchange in self._exchanges[start:]:
            if exchange.container not in (container.id, container.rid) or not exchange.is_about_documents:
                continue
            for document in documents_in(exchange.reply):
                key = container.partition_key.of_document(document.value)
                if container.partition_of(key.effective) is partition:
                    shown.setdefault(document.lsn, {}).setdefault(document.value["id"], document)
        return shown

    def _add_series(
        self, shown: dict[int, dict[str, Recorded]], container: Container, partition: Partition, end: int
    ) -> None:
        """The documents that queries show only by number; those that none shows get the LSNs that are left."""
        lsns = {
            number: lsn
            for exchange in self._exchanges
            if exchange.container == container.id
            for number, lsn in numbers_in(exchange.reply)
        }
        here = [
            number
            for number in range(SERIES if lsns else 0)
            if container.partition_of(container.partition_key.of_document(of_series(number)).effective)
            is partition
        ]
        left = iter(
            sorted(set(self._free(partition, 0, end)) - {lsns.get(number) for number in here} - set(shown))
        )
        for number in here:
            value = of_series(number)
            if not self._exists(container, value["id"]) and not any(
                value["id"] in each for each in shown.values()
            ):
                lsn = lsns.get(number) or next(left)
                shown.setdefault(lsn, {})[value["id"]] = Recorded(lsn, 0, int(self._clock.now), value)

    def _fill(self, exchange: Exchange, container: Container, partition: Partition) -> None:
        """Documents that are known only from a count or a list of ids: one at each LSN that has none."""
        count = int(exchange.reply_headers.get("x-ms-item-count", 0))
        if exchange.status != 200 or not count:
            return
        ids = self._ids_listed(exchange)
        if ids is not None:
            names = [each for each in ids if not self._exists(container, each)]
            self._make_up(container, partition, self._free(partition, 0, partition.lsn), names)
        elif exchange.is_change_feed:
            key = exchange.headers.get("x-ms-documentdb-partitionkey")
            position = exchange.headers.get("If-None-Match", "").strip('"')
            end = int(exchange.reply_headers["etag"].strip('"'))
            free = self._free(partition, int(position) if position.isdecimal() else 0, end)
            taken = end - (int(position) if position.isdecimal() else 0) - len(free)
            if count <= taken + len(free):
                self._make_up(container, partition, free[: count - taken], key=key)
            if end < partition.lsn == len(self._free(partition, end, partition.lsn)) + end:
                self._make_up(container, partition, [end + 1], key=key)

    def _free(self, partition: Partition, after: int, end: int) -> list[int]:
        """The LSNs without a document."""
        taken = self._account.storage.execute("SELECT lsn FROM items WHERE partition=?", (partition.number,))
        return sorted(set(range(after + 1, end + 1)) - {row[0] for row in taken})

    def _make_up(
        self,
        container: Container,
        partition: Partition,
        lsns: list[int],
        names: list[str] | None = None,
        key: str | None = None,
    ) -> None:
        names = [f"unrecorded-{lsn}" for lsn in lsns] if names is None else names
        belongs = self._key_in(container, partition) if key is None else _at(container, json.loads(key))
        for lsn, name in zip(lsns, names, strict=False):
            value = {"id": name} | belongs
            self._store(container, partition, [Recorded(lsn, 0, int(self._clock.now), value)])

    def _meet(self, exchange: Exchange, container: Container) -> None:
        """The document that a request has to have found for its recorded reply, or whose time must have passed."""
        body = json_object(exchange.body)
        item_id = unquote(exchange.segments[5]) if len(exchange.segments) > 5 else body.get("id")
        header = exchange.headers.get("x-ms-documentdb-partitionkey")
        if item_id is None or header is None or exchange.status == 400:
            return
        key = container.partition_key.of_header(header)
        partition = container.partition_of(key.effective)
        found = self._account.items.find(partition, key, item_id)
        if exchange.status == 404 and found is not None:
            row = self._account.storage.execute(
                "SELECT expires FROM items WHERE number=?", (found.number,)
            ).fetchone()
            self._clock.now = max(self._clock.now, row[0] or 0)
        replaced = exchange.status == 200 and exchange.headers.get("x-ms-documentdb-is-upsert") == "True"
        if found is None and (replaced or exchange.status in _NEED_A_DOCUMENT.get(exchange.method, ())):
            etag = exchange.headers.get("If-Match") or exchange.headers.get("If-None-Match")
            value = {"id": item_id} | _at(container, json.loads(header))
            if etag is not None and etag.count("-") == 4 and exchange.status != 412:
                recorded = Recorded.of_etag(etag, value)
            else:
                free = self._free(partition, 0, max(partition.lsn, 1))
                recorded = Recorded(free[-1], 0, int(self._clock.now), value)
            self._store(container, partition, [recorded])
            found = self._account.items.find(partition, key, item_id)
        if exchange.status == 412 and found is not None and found.etag == exchange.headers.get("If-Match"):
            changed = Recorded(partition.lsn + 1, 0, found.ts, json.loads(found.text))
            self._store(container, partition, [changed])

    def _exists(self, container: Container, item_id: str) -> bool:
        first, last = container.partitions[0].number, container.partitions[-1].number
        found = self._account.storage.execute(
            "SELECT 1 FROM items WHERE id=? AND partition BETWEEN ? AND ?", (item_id, first, last)
        ).fetchone()
        return found is not None

    @staticmethod
    def _ids_listed(exchange: Exchange) -> list[str] | None:
        """The results of `SELECT VALUE c.id`."""
        if exchange.reply is None:
            return None
        found = exchange.reply["Documents"]
        return found if all(isinstance(each, str) for each in found) else None

    @staticmethod
    def _key_in(container: Container, partition: Partition) -> dict[str, Any]:
        """The properties that put a document into this physical partition."""
        for number in range(10_000):
            value = _at(container, [f"unrecorded-{number}"] * len(container.partition_key.paths))
            if container.partition_of(container.partition_key.of_document(value).effective) is partition:
                return value
        raise AssertionError(f"no key found for {partition}")

    def _store(self, container: Container, partition: Partition, documents: list[Recorded]) -> None:
        """Commit documents that share an LSN at that LSN, not at the next one."""
        if not documents:
            return
        last, partition.lsn = partition.lsn, documents[0].lsn - 1
        key = container.partition_key.of_document(documents[0].value)
        with self._account.items.commit(container, key) as commit:
            for recorded in documents:
                text = json.dumps(recorded.value, ensure_ascii=False, separators=(",", ":"))
                document = Document.of(Part(recorded.value, text))
                existing = commit.find(document.id)
                commit.changes = recorded.position
                if existing is None:
                    commit.insert(document)
                else:
                    commit.update(existing, document)
        partition.lsn = max(last, documents[0].lsn)
        # The account's clock never runs backwards, and what is put in place now was written earlier.
        self._account.storage.execute(
            "UPDATE items SET ts=? WHERE partition=? AND lsn=?",
            (documents[0].ts, partition.number, documents[0].lsn),
        )


def _at(container: Container, values: list[Any]) -> dict[str, Any]:
    """A document that has these values at the paths of the partition key."""
    document: dict[str, Any] = {}
    for path, value in zip(container.partition_key.paths, values, strict=True):
        inner = document
        for step in path[:-1]:
            inner = inner.setdefault(step, {})
        inner[path[-1]] = value
    return document
