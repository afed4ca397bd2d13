"""Requests of the .NET SDK and the replies it accepted, read from tests/captures/cosmos_dotnet."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outbox_relay.emulators.cosmos.documents import INDEX_BITS, raw_resource_id
from outbox_relay.emulators.cosmos.hybridrow import operations
from packages.emulators.tests.cosmos.rows import results_in

CAPTURES = Path(__file__).parents[1] / "captures" / "cosmos_dotnet"

SERIES = 200

_SYSTEM = ("_rid", "_self", "_etag", "_attachments", "_ts", "_lsn")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One line of a recording. `body` is None if there was none, or it was truncated."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None
    is_whole: bool
    status: int
    reply_headers: Mapping[str, str]
    reply_text: str | None
    """None if there was none, it was truncated, or it is HybridRow."""
    reply_rows: bytes | None

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
            _body(reply["body"])[0] if isinstance(reply["body"], dict) else None,
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
        """True if the body is HybridRow, which .NET writes batches in."""
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
    def commits(self) -> int:
        """The number of commits that the reply shows."""
        if not self.is_row_batch or self.body is None:
            return int(self._wrote)
        kinds = [str(operation["operationType"]) for operation in operations(self.body)]
        # Where the reply was not kept, it says by its status that all was done.
        statuses = [self.status] * len(kinds)
        if self.reply_rows is not None:
            statuses = [int(result["status"]) for result in results_in(self.reply_rows)]
        written = sum(kind != "Read" and status < 300 for kind, status in zip(kinds, statuses, strict=True))
        return min(written, 1) if self.headers["x-ms-cosmos-batch-atomic"] == "True" else written

    @property
    def _wrote(self) -> bool:
        if self.method == "POST":
            return self.is_about_documents and self.status in (200, 201) and "x-ms-item-lsn" in self.reply_headers
        return self.method in ("PUT", "PATCH", "DELETE") and self.status in (200, 204)

    @property
    def ts(self) -> int | None:
        """The second of a creation, if the reply shows it."""
        if self.path.endswith("/pkranges") and self.reply:
            return int(self.reply["PartitionKeyRanges"][0]["_ts"])
        etag = self.reply_headers.get("etag", "")
        if self.reply_rows is not None and self.commits:
            etag = max(str(result.get("_etag", "")) for result in results_in(self.reply_rows))
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
        """The time of a commit, from its ETag."""
        parts = etag.strip('"').split("-")
        return cls(int(parts[0], 16), int(parts[1], 16), int(parts[4][:8], 16), value)


def load(name: str) -> list[Exchange]:
    """The exchanges of one file, in the order in which they were answered."""
    lines = (CAPTURES / f"{name}.jsonl").read_text().splitlines()
    return [Exchange.of_line(number, line) for number, line in enumerate(lines)]


def physical_partitions(exchanges: list[Exchange]) -> int:
    """The number of physical partitions of each container of the recording."""
    counts = {
        len(exchange.reply["PartitionKeyRanges"])
        for exchange in exchanges
        if exchange.path.endswith("/pkranges") and exchange.status == 200
    }
    assert len(counts) <= 1, counts
    return counts.pop() if counts else 4


def documents_in(reply: Any) -> Iterator[Recorded]:
    """The documents that a reply shows."""
    if not isinstance(reply, dict):
        return
    for found in reply.get("Documents", [reply]):
        value = found.get("payload", found) if isinstance(found, dict) else found
        if isinstance(value, dict) and {"id", "_etag", "_ts"} <= value.keys():
            sent = {key: each for key, each in value.items() if key not in _SYSTEM}
            yield Recorded.of_etag(value["_etag"], sent)


def of_series(number: int) -> dict[str, Any]:
    """A document that was queried: some are shown whole, others by their number alone."""
    kind = "b" if number % 3 else "a"
    return {"id": f"n{number}", "partitionKey": f"p{number % 40}", "kind": kind, "number": number}


def numbers_in(reply: Any) -> Iterator[tuple[int, int]]:
    """The numbers that a sorted query shows, each with the LSN of its `_rid`."""
    found = reply.get("Documents", []) if isinstance(reply, dict) else []
    for each in found:
        if isinstance(each, dict) and isinstance(each.get("payload"), int):
            number = int.from_bytes(raw_resource_id(each["_rid"])[8:], "little")
            yield each["payload"], number >> INDEX_BITS & (1 << 37) - 1


def json_object(body: bytes | None) -> dict[str, Any]:
    """A request's body; empty if it is no JSON object."""
    try:
        value = json.loads(body or b"null")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _body(recorded: Any) -> tuple[bytes | None, bool]:
    if recorded is None:
        return None, True
    if isinstance(recorded, str):
        return recorded.encode(), True
    if "base64" in recorded:
        return base64.b64decode(recorded["base64"]), True
    return None, False
