"""The ids and resource ids of databases and containers."""

from __future__ import annotations

import secrets
from collections.abc import Collection

from outbox_emulators.cosmos.errors import BadRequest

_ILLEGAL_IN_NAME = frozenset("/\\?#")
_MAX_NAME_LENGTH = 255
_CONTAINER_BIT = 0x80


def new_raw_rid(parent: bytes, taken: Collection[bytes]) -> bytes:
    """Return a unique `_rid`: four bytes for a database, and four more with the first bit set for a container.

    Without that bit clients mistake a container for a user, and request the key ranges of a database
    (ResourceId.cs in azure-cosmos-dotnet-v3).
    """
    while True:
        tail = bytearray(secrets.token_bytes(4))
        if parent:
            tail[0] |= _CONTAINER_BIT
        raw_rid = parent + tail
        if raw_rid not in taken and any(tail):
            return raw_rid


def check_name(name: object) -> str:
    """Return an id that a database or container may have. Raises BadRequest."""
    if not isinstance(name, str) or not name.strip():
        raise BadRequest("The input content is invalid because the required properties - 'id; ' - are missing.")
    if len(name) > _MAX_NAME_LENGTH or not _is_unicode(name):
        raise BadRequest(
            f"The input name '{name}' is invalid. Ensure to provide a unique non-empty string less than "
            f"'{_MAX_NAME_LENGTH}' characters."
        )
    if not _ILLEGAL_IN_NAME.isdisjoint(name) or name.endswith(" "):
        raise BadRequest(f"The input name '{name}' is invalid: no '/', '\\', '?' or '#', and no blank at its end.")
    return name


def _is_unicode(name: str) -> bool:
    """Return True if the name has no half of a surrogate pair, which JSON can spell."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
