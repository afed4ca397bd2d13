"""Replays what the .NET SDK sent once, and compares each reply with the one that the SDK accepted then.

The recordings hold some exchanges of a run, not all (tests/captures/cosmos_dotnet/README.md). What is missing is
put in place: containers that no line creates, documents that only replies show, and commits that nothing shows.
The emulator's clock and its source of randomness are the recording's, so that most of what it makes up (ETags,
LSNs, `_rid`s of databases and containers) has to come out as recorded; the rest is mapped.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from local.cosmos import catalog
from local.cosmos.catalog import Container, Partition
from local.cosmos.documents import Document, raw_resource_id
from local.cosmos.jsontext import Part
from local.cosmos.server import CosmosServer
from local.cosmos.sessions import demanded_lsn
from tests.unit.local.cosmos.support import Answer, RawClient, TurnableClock

CAPTURES = Path(__file__).parents[3] / "captures" / "cosmos_dotnet"

_SYSTEM = ("_rid", "_self", "_etag", "_attachments", "_ts", "_lsn")
_IDENTITIES = ("_rid", "_self", "_etag")
_UNCOMPARED_HEADERS = ("x-ms-request-charge", "x-ms-documentdb-query-metrics")
# What the recorded emulator said of a missing container. The service's gateway says 0; 1003 is of direct mode.
_CORRECTED = ("x-ms-substatus", "1003", "0")
_CONTAINER_BIT = 0x80
_NEED_A_DOCUMENT = {
    "GET": (200, 304),
    "POST": (409, 412),
    "PUT": (200, 412),
    "PATCH": (200, 412),
    "DELETE": (204, 412),
}
_ROOT_KEYS_OF_THE_ADDRESS = ("writableLocations", "readableLocations")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One line of a recording. `body` is None where the request had none, or it was not kept whole."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None
    is_whole: bool
    status: int
    reply_headers: Mapping[str, str]
    reply_text: str | None
    """None where there was none, or it was not kept whole."""

    @classmethod
    def of_line(cls, number: int, line: str) -> Exchange:
        value = json.loads(line)
        request, reply = value["request"], value["reply"]
        body, is_whole = _body(request["body"])
        text = reply["body"] if isinstance(reply["body"], str) else None
        return cls(
            number,
            request["method"],
            request["path"],
            request["headers"],
            body,
            is_whole,
            reply["status"],
            {name.lower(): header for name, header in reply["headers"].items()},
            text,
        )

    @property
    def segments(self) -> list[str]:
        return self.path.strip("/").split("/")

    @property
    def container(self) -> str | None:
        """The container's name, or its rid, as the path has it."""
        return self.segments[3] if len(self.segments) > 3 else None

    @property
    def is_about_documents(self) -> bool:
        return len(self.segments) > 4 and self.segments[4] == "docs"

    @property
    def creates_container(self) -> bool:
        return self.method == "POST" and self.path.endswith("/colls") and self.status == 201

    @property
    def is_row_batch(self) -> bool:
        """Whether the body is HybridRow, which .NET writes batches in."""
        return (self.body or b"")[:1] == b"\x81"

    @property
    def is_change_feed(self) -> bool:
        return self.is_about_documents and "A-IM" in self.headers

    @property
    def reply(self) -> Any:
        if self.reply_text is None or self.reply_text.startswith("\ufffd"):
            return None
        return json.loads(self.reply_text)

    @property
    def lsn(self) -> int | None:
        """The partition's LSN when it answered."""
        text = self.reply_headers.get("lsn")
        return None if text is None else int(text)

    @property
    def wrote(self) -> bool:
        """Whether the reply says that something was written."""
        if self.method == "POST":
            return self.is_about_documents and self.status in (200, 201) and "x-ms-item-lsn" in self.reply_headers
        return self.method in ("PUT", "PATCH", "DELETE") and self.status in (200, 204)

    @property
    def ts(self) -> int | None:
        """The second in which something was made, where the reply tells it."""
        if self.path.endswith("/pkranges") and self.reply:
            return int(self.reply["PartitionKeyRanges"][0]["_ts"])
        etag = self.reply_headers.get("etag", "")
        return int(etag.rstrip('"').rpartition("-")[2][:8], 16) if etag.count("-") == 4 else None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A document as a reply shows it: the commit it belongs to, its place there, and what a client had sent."""

    lsn: int
    position: int
    ts: int
    value: dict[str, Any]

    @classmethod
    def of_etag(cls, etag: str, value: dict[str, Any]) -> Recorded:
        """The ETag tells when something was committed."""
        parts = etag.strip('"').split("-")
        return cls(int(parts[0], 16), int(parts[1], 16), int(parts[4][:8], 16), value)


def load(name: str) -> list[Exchange]:
    """The exchanges of one file, in the order in which they were answered."""
    lines = (CAPTURES / f"{name}.jsonl").read_text().splitlines()
    return [Exchange.of_line(number, line) for number, line in enumerate(lines)]


def physical_partitions(exchanges: list[Exchange]) -> int:
    """How many each container of the recording has."""
    counts = {
        len(exchange.reply["PartitionKeyRanges"])
        for exchange in exchanges
        if exchange.path.endswith("/pkranges") and exchange.status == 200
    }
    assert len(counts) <= 1, counts
    return counts.pop() if counts else 4


class RecordedRandomness:
    """Gives out what the recorded run drew, but with the first bit cleared: setting it is the emulator's task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tails: deque[bytes] = deque()
        monkeypatch.setattr(catalog, "secrets", self)

    def expect(self, rid: str) -> None:
        """What is created next had this `_rid`."""
        raw = raw_resource_id(rid)
        tail = raw[-4:]
        self._tails.append(tail if len(raw) == 4 else bytes([tail[0] & ~_CONTAINER_BIT]) + tail[1:])

    def token_bytes(self, count: int) -> bytes:
        tail = self._tails.popleft()
        assert len(tail) == count
        return tail


class Replay:
    """One recording against one emulator."""

    def __init__(
        self,
        exchanges: list[Exchange],
        server: CosmosServer,
        client: RawClient,
        clock: TurnableClock,
        randomness: RecordedRandomness,
    ) -> None:
        self._exchanges = exchanges
        self._account = server.account
        self._client = client
        self._clock = clock
        self._randomness = randomness
        self._live: dict[str, str] = {}
        self._made = 0

    async def send(self, exchange: Exchange) -> Answer:
        """Put in place what the exchange takes for granted, then send its request."""
        self._prepare(exchange)
        body = None if exchange.body is None else self._translate(exchange.body.decode()).encode()
        headers = {name: self._translate(value) for name, value in exchange.headers.items()}
        return await self._client.send(
            exchange.method, self._translate(exchange.path), headers=headers, body=body, encoded=True
        )

    def differences(self, exchange: Exchange, answer: Answer) -> list[str]:
        """What the live reply has that the recorded one has not, and the other way round."""
        if answer.status != exchange.status:
            return [f"status {answer.status} instead of {exchange.status}: {answer.text[:300]}"]
        found = list(self._header_differences(exchange, answer))
        if exchange.reply is not None:
            found += self._body_differences(exchange.reply, answer.body, exchange)
        return found

    def _translate(self, text: str) -> str:
        for recorded, live in self._live.items():
            text = text.replace(recorded, live)
        return text

    def _header_differences(self, exchange: Exchange, answer: Answer) -> Iterator[str]:
        for name, recorded in exchange.reply_headers.items():
            live = answer.headers.get(name)
            if name in _UNCOMPARED_HEADERS or live == recorded or (name, recorded, live) == _CORRECTED:
                continue
            is_identity = name == "x-ms-continuation" or (name == "etag" and not exchange.is_change_feed)
            if live is None or not (is_identity and self._is_same(recorded, live)):
                yield f"header {name}: {live!r} instead of {recorded!r}"

    def _body_differences(self, recorded: Any, live: Any, exchange: Exchange) -> Iterator[str]:
        if exchange.status >= 400:
            if live["code"] != recorded["code"]:
                yield f"code {live['code']} instead of {recorded['code']}"
        elif exchange.path == "/":
            yield from self._account_differences(recorded, live)
        else:
            yield from self._compare(recorded, live, "")

    def _account_differences(self, recorded: dict[str, Any], live: dict[str, Any]) -> Iterator[str]:
        engine = "queryEngineConfiguration"
        yield from self._compare(json.loads(recorded.pop(engine)), json.loads(live.pop(engine)), engine)
        for key in _ROOT_KEYS_OF_THE_ADDRESS:
            recorded.pop(key), live.pop(key)
        yield from self._compare(recorded, live, "")

    def _compare(self, recorded: Any, live: Any, where: str) -> Iterator[str]:
        if isinstance(recorded, dict) and isinstance(live, dict):
            if recorded.keys() != live.keys():
                yield f"{where}: {sorted(live)} instead of {sorted(recorded)}"
                return
            for key, value in recorded.items():
                if key in _IDENTITIES and self._is_same(value, live[key]):
                    continue
                yield from self._compare(value, live[key], f"{where}/{key}")
        elif isinstance(recorded, list) and isinstance(live, list):
            if len(recorded) != len(live):
                yield f"{where}: {len(live)} instead of {len(recorded)} elements"
                return
            for index, (one, other) in enumerate(zip(recorded, live, strict=True)):
                yield from self._compare(one, other, f"{where}/{index}")
        elif recorded != live or type(recorded) is not type(live):
            yield f"{where}: {live!r} instead of {recorded!r}"

    def _is_same(self, recorded: str, live: str) -> bool:
        """Whether two made-up names can stand for one thing: the same live one for each recorded one."""
        return self._live.setdefault(recorded, live) == live

    # What the recording takes for granted

    def _prepare(self, exchange: Exchange) -> None:
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
        """The physical partition that answered, as far as request or reply tell."""
        name = "x-ms-documentdb-partitionkeyrangeid"
        range_id = exchange.reply_headers.get(name) or exchange.headers.get(name)
        key = exchange.headers.get("x-ms-documentdb-partitionkey")
        if range_id is None and key is not None and len(json.loads(key)) == len(container.partition_key.paths):
            return container.partition_of(container.partition_key.of_header(key).effective)
        return next((each for each in container.partitions if each.id == range_id), None)

    def _container(self, exchange: Exchange) -> Container:
        """The container that a request names, made now where no recorded request made it."""
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
        """Name, `_rid` and definition of a container, as far as any exchange tells."""
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
                and [_json_object(exchange.body).get("id")] == json.loads(header)
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
        """Commit what was not recorded: documents that later replies show, and else numbers without documents."""
        seen = demanded_lsn(exchange.headers, partition) or 0
        answered = exchange.lsn or 0
        before = max(seen, answered - 1 if exchange.wrote else answered)
        if partition.lsn >= before:
            return
        shown = self._shown(exchange.number, container, partition)
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
            for document in _documents_in(exchange.reply):
                key = container.partition_key.of_document(document.value)
                if container.partition_of(key.effective) is partition:
                    shown.setdefault(document.lsn, {}).setdefault(document.value["id"], document)
        return shown

    def _fill(self, exchange: Exchange, container: Container, partition: Partition) -> None:
        """Documents that only a count tells of, or a list of ids: some document at each LSN that has none."""
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
        """The LSNs at which no document is."""
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
        body = _json_object(exchange.body)
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
        """What `SELECT VALUE c.id` gave."""
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
        """Commit what shares an LSN, at that LSN and not at the next one."""
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


def _body(recorded: Any) -> tuple[bytes | None, bool]:
    if recorded is None:
        return None, True
    if isinstance(recorded, str):
        return recorded.encode(), True
    if "base64" in recorded:
        return base64.b64decode(recorded["base64"]), True
    return None, False


def _documents_in(reply: Any) -> Iterator[Recorded]:
    if not isinstance(reply, dict):
        return
    for value in reply.get("Documents", [reply]):
        if isinstance(value, dict) and {"id", "_etag", "_ts"} <= value.keys():
            sent = {key: each for key, each in value.items() if key not in _SYSTEM}
            yield Recorded.of_etag(value["_etag"], sent)


def _json_object(body: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(body or b"null")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _at(container: Container, values: list[Any]) -> dict[str, Any]:
    """A document that has these values at the paths of the partition key."""
    document: dict[str, Any] = {}
    for path, value in zip(container.partition_key.paths, values, strict=True):
        inner = document
        for step in path[:-1]:
            inner = inner.setdefault(step, {})
        inner[path[-1]] = value
    return document
