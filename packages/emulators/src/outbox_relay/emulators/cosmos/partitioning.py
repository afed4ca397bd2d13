"""Partition keys: their place in a document, their hash, and the physical partition that holds them.

Source: https://learn.microsoft.com/azure/cosmos-db/partitioning-overview.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from outbox_relay.emulators.cosmos import jsontext
from outbox_relay.emulators.cosmos.effective_keys import Scheme, bounds, effective_key, middle
from outbox_relay.emulators.cosmos.errors import PARTITION_KEY_MISMATCH, BadRequest

MAX_KEY_BYTES = 2048  # https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-item-limits
UNDEFINED: Mapping[str, Any] = {}
"""A component the document does not have; `{}` on the wire."""

# Without quotes, "the partition key path accepts alphanumeric and underscore (_) characters":
# https://learn.microsoft.com/azure/cosmos-db/partitioning-overview#choose-a-partition-key
_PATH_STEP = re.compile(r"""/(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([A-Za-z0-9_]+))""")
_MISMATCH = (
    "Partition key provided either doesn't correspond to definition in the collection or doesn't match "
    "partition key field values specified in the document."
)


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A logical partition: its canonical text, and the effective partition key (hexadecimal) it hashes to."""

    text: str
    effective: str


@dataclass(frozen=True, slots=True)
class PartitionKeyDefinition:
    """A container's partition key: one path (`Hash`) or up to three (`MultiHash`)."""

    paths: tuple[tuple[str, ...], ...]
    scheme: Scheme

    @classmethod
    def from_json(cls, definition: object) -> PartitionKeyDefinition:
        """Read a container's `partitionKey`. Raises BadRequest if it is not served here."""
        if not isinstance(definition, dict):
            raise BadRequest("The partition key definition is required: a container needs a partitionKey.")
        kind, version, paths = (
            definition.get("kind", "Hash"),
            definition.get("version", 1),
            definition.get("paths"),
        )
        if kind not in ("Hash", "MultiHash"):
            raise BadRequest(f"The partition key kind {kind!r} is not supported; use Hash or MultiHash.")
        if version not in (1, 2) or (kind == "MultiHash" and version == 1):
            raise BadRequest(f"A partition key of kind {kind} cannot be of version {version!r}.")
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise BadRequest("The partition key definition needs a list of paths.")
        if not paths:
            raise BadRequest("The partition key definition needs at least one path.")
        if len(paths) > (3 if kind == "MultiHash" else 1):
            raise BadRequest(f"Too many partition key paths for the kind {kind}: {len(paths)}.")
        scheme = Scheme.HASH_V1 if version == 1 else Scheme.HASH_V2
        return cls(
            tuple(parse_path(path) for path in paths), Scheme.HIERARCHICAL if kind == "MultiHash" else scheme
        )

    def of_document(self, document: Mapping[str, Any]) -> PartitionKey:
        """Return the logical partition a document belongs to."""
        return self._key([_follow(document, path) for path in self.paths])

    def of_header(self, header: str | None) -> PartitionKey:
        """Return the logical partition named by `x-ms-documentdb-partitionkey`, a JSON array."""
        if header is None:
            raise BadRequest("PartitionKey value must be supplied for this operation.")
        components = jsontext.parse(header).value
        if not isinstance(components, list) or len(components) != len(self.paths):
            raise BadRequest(_MISMATCH, PARTITION_KEY_MISMATCH)
        return self._key([_component(component) for component in components])

    def of_values(self, components: Sequence[Any]) -> PartitionKey:
        """Return the logical partition of values, one for each path."""
        return self._key([_component(component) for component in components])

    def split(self, count: int) -> list[KeyRange]:
        """Cut the space of effective partition keys into `count` ranges."""
        return [KeyRange(low, high) for low, high in itertools.pairwise(bounds(count, self.scheme))]

    def middle(self, key_range: KeyRange) -> str:
        """Return the middle of a range, so that documents fill both halves evenly.

        Raises BadRequest if there is none.
        """
        cut = middle(key_range.minimum, key_range.maximum, self.scheme)
        if not key_range.minimum < cut < key_range.maximum:
            raise BadRequest(f"The partition from '{key_range.minimum}' to '{key_range.maximum}' cannot be split.")
        return cut

    def check(self, document: Mapping[str, Any], expected: PartitionKey) -> None:
        """Raise BadRequest unless the document belongs to the logical partition that the request names."""
        if self.of_document(document).text != expected.text:
            raise BadRequest(_MISMATCH, PARTITION_KEY_MISMATCH)

    def _key(self, components: list[Any]) -> PartitionKey:
        try:
            text = orjson.dumps(components)
        except TypeError as error:
            raise BadRequest(f"The partition key is not valid Unicode: {error}.") from error
        return _key_of_text(text, self.scheme)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of effective partition keys, from `minimum` up to, but excluding, `maximum`."""

    minimum: str
    maximum: str

    @classmethod
    def of_key(cls, key: PartitionKey) -> KeyRange:
        """Return the range that contains only one logical partition."""
        return cls(key.effective, key.effective + "00")

    @classmethod
    def below(cls, prefix: PartitionKey) -> KeyRange:
        """Return the range of all logical partitions whose hierarchical key begins with this one."""
        return cls(prefix.effective, prefix.effective + "FF")


def locate(ranges: Sequence[KeyRange], effective: str) -> int:
    """Return the number of the range that holds an effective partition key."""
    return bisect_right(ranges, effective, key=lambda each: each.minimum) - 1


@functools.lru_cache(maxsize=65536)
def _key_of_text(text: bytes, scheme: Scheme) -> PartitionKey:
    components = orjson.loads(text)
    for component in components:
        if isinstance(component, str) and len(component.encode()) > MAX_KEY_BYTES:
            raise BadRequest(f"The partition key value is larger than the allowed {MAX_KEY_BYTES} bytes.")
    return PartitionKey(text.decode(), effective_key(components, scheme))


def _component(value: Any) -> Any:
    """Return a component in its canonical form.

    Numbers are doubles, and a value that cannot be a key is undefined.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return _double(value)
    return UNDEFINED


def _double(value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadRequest("A number in the partition key is outside the range of IEEE 754 doubles.")
    return number


def _follow(document: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = document
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return UNDEFINED
        value = value[step]
    return _component(value)


def parse_path(path: str) -> tuple[str, ...]:
    """Return the steps of a path such as `/a/b` or `/a/"b c"`.

    Raises BadRequest, in the words that container.spec.ts of @azure/cosmos 4.3.0 expects.
    """
    steps, position = [], 0
    while position < len(path):
        match = _PATH_STEP.match(path, position)
        if match is None:
            break
        steps.append(match[1] or match[2] or match[3])
        position = match.end()
    if not steps or position != len(path):
        raise BadRequest(
            f"The partition key component definition path '{path}' could not be accepted, failed near position "
            f"'{position}'. Partition key paths must contain only valid characters and not contain a trailing "
            "slash or wildcard character."
        )
    return tuple(steps)
