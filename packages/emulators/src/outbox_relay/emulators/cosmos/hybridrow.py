"""Batches as the .NET SDK writes and reads them: HybridRow rows in RecordIO.

A body is a segment's header, then records: each a header with length and checksum, then one row. A row has its
schema, bits that say which columns are present, the columns of fixed and of variable length, and then sparse ones.

Source: HybridRowBatchSchemas.json (Microsoft.Azure.Cosmos.BatchApi, version 1), RecordIO and RowBuffer in
azure-cosmos-dotnet-v3.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

VERSION = 0x81

_SEGMENT, _RECORD = 2147473648, 2147473649
_OPERATION, _RESULT = 2145473648, 2145473649
_KINDS = {0: "Create", 1: "Patch", 2: "Read", 4: "Delete", 5: "Replace", 20: "Upsert"}
_VARIABLE = ("partitionKey", "effectivePartitionKey", "id", "binaryId", "resourceBody")
_TEXTS = ("partitionKey", "id", "resourceBody")
_SPARSE = {
    8: "indexingDirective",
    9: "ifMatch",
    10: "ifNoneMatch",
    11: "timeToLiveInSeconds",
    12: "minimalReturnPreference",
}
_PATHS_SPELT_OUT = 13
_FALSE, _TRUE, _INT32, _FLOAT64, _UTF8, _BINARY = 2, 3, 7, 16, 20, 21
_CHARGE = 6
_LONGEST_VARINT = 10
"""Bytes, of seven bits each, that an integer of 64 bits takes at most."""


class InvalidRow(ValueError):
    """The bytes are not a batch in HybridRow."""


@dataclass(frozen=True, slots=True)
class ResultRow:
    """The result of an operation; `body` is the item as JSON, or the reason of a refusal."""

    status: int
    substatus: int
    etag: str | None
    body: str | None
    charge: float


def is_rows(body: bytes) -> bool:
    """Return True if a batch is HybridRow rather than JSON."""
    return body[:1] == bytes([VERSION])


def operations(body: bytes) -> list[dict[str, Any]]:
    """Return the operations of a batch, by the names of their columns. Raises InvalidRow."""
    try:
        return [_operation(record) for record in _records(body)]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidRow(f"the batch ends too early, or is no HybridRow: {error}") from error


def results(rows: Iterable[ResultRow]) -> bytes:
    """Return the answer to a batch."""
    out = bytearray(struct.pack("<BiBi", VERSION, _SEGMENT, 1, 10))
    for row in rows:
        data = _result(row)
        out += struct.pack("<BiiI", VERSION, _RECORD, len(data), zlib.crc32(data)) + data
    return bytes(out)


def _records(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        version, schema = struct.unpack_from("<Bi", body, at)
        if version != VERSION or schema not in (_SEGMENT, _RECORD):
            raise InvalidRow(f"unknown version {version} or schema {schema}")
        if schema == _SEGMENT:
            (length,) = struct.unpack_from("<i", body, at + 6)
            if length <= 0:
                raise InvalidRow(f"a segment of length {length}")
            at += length
            continue
        length, checksum = struct.unpack_from("<iI", body, at + 5)
        record = body[at + 13 : at + 13 + length]
        if length <= 0 or zlib.crc32(record) != checksum:
            raise InvalidRow("the checksum of a record is wrong")
        yield record
        at += 13 + length


def _operation(row: bytes) -> dict[str, Any]:
    version, schema, present, kind, _ = struct.unpack_from("<BiBii", row)
    if version != VERSION or schema != _OPERATION:
        raise InvalidRow(f"unknown version {version} or schema {schema}")
    found: dict[str, Any] = {"operationType": _KINDS.get(kind, str(kind))}
    at = struct.calcsize("<BiBii")
    for bit, name in enumerate(_VARIABLE, start=2):
        if present >> bit & 1:
            value, at = _sized(row, at)
            found[name] = value.decode() if name in _TEXTS else value
    while at < len(row):
        name, value, at = _sparse(row, at)
        found[name] = value
    return found


def _sparse(row: bytes, at: int) -> tuple[str, Any, int]:
    code = row[at]
    token, at = _varint(row, at + 1)
    name = _SPARSE.get(token, str(token))
    if token >= _PATHS_SPELT_OUT:
        end = at + token - _PATHS_SPELT_OUT
        name, at = row[at:end].decode(), end
    if code in (_FALSE, _TRUE):
        return name, code == _TRUE, at
    if code == _INT32:
        return name, struct.unpack_from("<i", row, at)[0], at + 4
    if code in (_UTF8, _BINARY):
        value, at = _sized(row, at)
        return name, value.decode() if code == _UTF8 else value, at
    raise InvalidRow(f"the type {code} of '{name}' is unknown")


def _result(row: ResultRow) -> bytes:
    texts = (row.etag, row.body)
    present = 0b11 | sum(1 << bit for bit, text in enumerate(texts, start=2) if text is not None)
    out = bytearray(struct.pack("<BiBii", VERSION, _RESULT, present, row.status, row.substatus))
    for text in texts:
        if text is not None:
            data = text.encode()
            out += _varint_of(len(data)) + data
    return bytes(out) + struct.pack("<BBd", _FLOAT64, _CHARGE, row.charge)


def _sized(row: bytes, at: int) -> tuple[bytes, int]:
    size, at = _varint(row, at)
    if at + size > len(row):
        raise InvalidRow("a value is longer than its row")
    return row[at : at + size], at + size


def _varint(row: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST_VARINT):
        byte = row[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise InvalidRow("an integer has more than 64 bits")


def _varint_of(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
