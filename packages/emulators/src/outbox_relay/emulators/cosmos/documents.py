"""An item as a client sends it, as it is stored, and as it is returned.

The text of the item is kept as it was sent; the system properties are spliced in when it is read.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outbox_relay.emulators.cosmos import jsontext
from outbox_relay.emulators.cosmos.errors import BadRequest, TooLarge

MAX_ID_BYTES = 1023  # https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-item-limits
MAX_ITEM_BYTES = 2 * 1024 * 1024
MAX_TTL_S = 2**31 - 1
NO_EXPIRY = -1
_TIMES_BEFORE = 1 << 53
"""The first second since 1970 that a number of JSON may not hold exactly."""
INDEX_BITS = 7
"""Enough for the place of an operation within a transaction."""
SYSTEM_PROPERTIES = frozenset({"_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"})


@dataclass(frozen=True, slots=True)
class Document:
    """A valid item to store, without system properties."""

    id: str
    text: str
    value: Mapping[str, Any]
    ttl: int | None
    """Seconds, NO_EXPIRY, or None for the container's default."""

    @classmethod
    def of(cls, part: jsontext.Part) -> Document:
        """Validate the body of a request. Raises BadRequest (id, ttl, not an object) or TooLarge."""
        value = part.value
        if not isinstance(value, dict):
            raise BadRequest("The request payload is invalid: an item has to be a JSON object.")
        item_id = check_id(value.get("id"))
        ttl = _check_ttl(value["ttl"]) if "ttl" in value else None
        text = part.text if SYSTEM_PROPERTIES.isdisjoint(value) else _without_system_properties(part.text)
        if len(text) > MAX_ITEM_BYTES or len(text.encode()) > MAX_ITEM_BYTES:
            raise TooLarge()
        return cls(item_id, text, value, ttl)


@dataclass(frozen=True, slots=True)
class Item:
    """A stored item: one version of a document, at its place in the change feed."""

    number: int
    """Unique in the account, never changed by an update, ascending with creation within a partition."""
    id: str
    lsn: int
    """The number of its commit: the last if the commit took several."""
    position: int
    """In the lowest bits the place within the commit; above them the count of numbers that it took, less one."""
    ts: int
    text: str

    @property
    def place(self) -> int:
        """The position of a reader of the change feed that has read this item."""
        return self.lsn - self._numbers_beyond_one + self._index if self._numbers_beyond_one else self.lsn

    @property
    def before(self) -> int:
        """The last number before those of its commit."""
        return self.lsn - self._numbers_beyond_one - 1

    @property
    def _index(self) -> int:
        return self.position & (1 << INDEX_BITS) - 1

    @property
    def _numbers_beyond_one(self) -> int:
        return self.position >> INDEX_BITS

    @property
    def etag(self) -> str:
        """The entity tag, its quotes included."""
        return f'"{self.lsn:08x}-{self.position:04x}-0000-0000-{self.ts:08x}0000"'

    def rendered(self, container_rid: bytes, container_self: str, *, with_lsn: bool = False) -> str:
        """Return the item as the service returns it: as sent, then the system properties."""
        rid = resource_id(container_rid + self.number.to_bytes(8, "little"))
        lsn = f',"_lsn":{self.lsn}' if with_lsn else ""
        return (
            f'{self.text[:-1].rstrip()},"_rid":"{rid}","_self":"{container_self}docs/{rid}/",'
            f'"_etag":"\\"{self.etag[1:-1]}\\"","_attachments":"attachments/","_ts":{self.ts}{lsn}}}'
        )


def resource_id(raw: bytes) -> str:
    """Return a resource's `_rid`: base64 with `-` for `/`."""
    return base64.b64encode(raw, b"+-").decode()


def raw_resource_id(rid: str) -> bytes:
    """Return the bytes of a `_rid`; empty if it is not one."""
    try:
        return base64.b64decode(rid, b"+-", validate=True)
    except ValueError:
        return b""


def check_id(value: object) -> str:
    """Check an item id. Raises BadRequest if it is not valid.

    It may have any characters, though an item with `/` or `\\` in its id cannot be addressed by its id
    (CosmosItemIdEncodingTestsBase.cs in azure-cosmos-dotnet-v3).
    """
    if not isinstance(value, str) or not value:
        raise BadRequest("The input content is invalid because the required properties - 'id; ' - are missing.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise BadRequest(f"The input 'id' is not valid Unicode: {error}.") from error
    if size > MAX_ID_BYTES:
        raise BadRequest(
            f"The input name '{value}' is invalid. Ensure to provide a unique non-empty string less than "
            f"'{MAX_ID_BYTES + 1}' characters."
        )
    return value


def expiry(ts: int, ttl: int | None, container_ttl: int | None) -> int | None:
    """Return the second (Unix time) at which an item expires, or None; `container_ttl` None means TTL is off."""
    if container_ttl is None:
        return None
    seconds = container_ttl if ttl is None else ttl
    return None if seconds == NO_EXPIRY else ts + seconds


def start_of_life(document: Mapping[str, Any], ts: int, path: tuple[str, ...] | None) -> int:
    """Return the second (Unix time) that an item's time to live counts from.

    It is the number at the container's `ttlPropertyPath` (ContainerProperties.cs in azure-cosmos-dotnet-v3), else
    `_ts`, though no source says so of an item without that number.
    """
    value: Any = document
    for step in path or ():
        value = value.get(step) if isinstance(value, Mapping) else None
    is_number = path is not None and isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value < _TIMES_BEFORE else ts


def _check_ttl(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and (value == NO_EXPIRY or 0 < value <= MAX_TTL_S):
        return value
    raise BadRequest(
        f"The input ttl '{value}' is invalid. Ensure to provide a nonzero positive integer (less than or equal "
        f"to '{MAX_TTL_S}'), or '{NO_EXPIRY}' which means never expire."
    )


def _without_system_properties(text: str) -> str:
    kept = (
        f"{jsontext.dump(key)}:{part.text}"
        for key, part in jsontext.members(text).items()
        if key not in SYSTEM_PROPERTIES
    )
    return "{" + ",".join(kept) + "}"
