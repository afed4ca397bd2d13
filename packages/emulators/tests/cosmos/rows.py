"""HybridRow as a client of batches meets it, written apart from what the emulator reads and writes it with."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

_HEADER = bytes.fromhex("81f0d8ff7f010a000000")
_KINDS = {"Create": 0, "Patch": 1, "Read": 2, "Delete": 4, "Replace": 5, "Upsert": 20}


def results_in(body: bytes) -> list[dict[str, Any]]:
    """Each operation's status, substatus and charge, and, where the answer has them, ETag and body."""
    assert body[: len(_HEADER)] == _HEADER
    found, at = [], len(_HEADER)
    while at < len(body):
        assert body[at : at + 5] == bytes.fromhex("81f1d8ff7f")
        size, checksum = struct.unpack_from("<iI", body, at + 5)
        row = body[at + 13 : at + 13 + size]
        assert zlib.crc32(row) == checksum
        found.append(_result(row))
        at += 13 + size
    return found


def batch_of(*operations: dict[str, Any]) -> bytes:
    """A batch: `operationType`, and maybe `partitionKey`, `id`, `resourceBody` as text, `ifMatch`, `minimal`."""
    body = bytearray(_HEADER)
    for operation in operations:
        row = _operation(operation)
        body += bytes.fromhex("81f1d8ff7f") + struct.pack("<iI", len(row), zlib.crc32(row)) + row
    return bytes(body)


def _result(row: bytes) -> dict[str, Any]:
    assert row[:5] == bytes.fromhex("817154e17f")
    present, status, substatus = struct.unpack_from("<Bii", row, 5)
    found: dict[str, Any] = {"status": status, "substatus": substatus}
    at = 14
    for bit, name in ((2, "_etag"), (3, "body")):
        if present >> bit & 1:
            size, at = _varint(row, at)
            text = row[at : at + size].decode()
            at += size
            found[name] = json.loads(text) if name == "body" and text.startswith("{") else text
    # A field that is not of the schema: type float64, the token of its name, and the value.
    [found["charge"]] = struct.unpack_from("<d", row, at + 2)
    return found


def _operation(operation: dict[str, Any]) -> bytes:
    names = {2: "partitionKey", 4: "id", 6: "resourceBody"}
    present = 3 | sum(1 << bit for bit, name in names.items() if name in operation)
    row = bytearray(struct.pack("<BiBii", 0x81, 2145473648, present, _KINDS[operation["operationType"]], 3))
    for name in names.values():
        if name in operation:
            data = operation[name].encode()
            row += _varint_of(len(data)) + data
    if "ifMatch" in operation:
        data = operation["ifMatch"].encode()
        row += bytes([20, 9]) + _varint_of(len(data)) + data
    if operation.get("minimal"):
        row += bytes([3, 12])
    return bytes(row)


def _varint(row: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while row[at] >= 0x80:
        value |= (row[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | row[at] << shift, at + 1


def _varint_of(value: int) -> bytes:
    head = b""
    while value >= 0x80:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])
