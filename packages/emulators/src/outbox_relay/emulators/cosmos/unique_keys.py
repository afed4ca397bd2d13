"""Unique keys: within a logical partition, no two items with the same values at certain paths.

Source: https://learn.microsoft.com/azure/cosmos-db/unique-keys; a missing value counts as null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outbox_relay.emulators.cosmos import jsontext
from outbox_relay.emulators.cosmos.errors import BadRequest, Conflict
from outbox_relay.emulators.cosmos.partitioning import parse_path
from outbox_relay.emulators.cosmos.storage import NOT_EXPIRED, Storage

_MAX_KEYS = 10
_MAX_PATHS = 16

UniqueKey = tuple[tuple[str, ...], ...]


def unique_keys_of(definition: Mapping[str, Any]) -> list[UniqueKey]:
    """Read a container's definition. Raises BadRequest if its policy is malformed."""
    policy = definition.get("uniqueKeyPolicy") or {}
    try:
        keys = [tuple(parse_path(path) for path in key["paths"]) for key in policy.get("uniqueKeys", [])]
    except (AttributeError, KeyError, TypeError) as error:
        raise BadRequest("The unique key policy has to hold a list of uniqueKeys with paths.") from error
    if len(keys) > _MAX_KEYS or any(not 1 <= len(key) <= _MAX_PATHS for key in keys):
        raise BadRequest(f"A container can have {_MAX_KEYS} unique keys, each of 1 to {_MAX_PATHS} paths.")
    return keys


def claim(
    storage: Storage,
    keys: list[UniqueKey],
    place: tuple[int, str],
    number: int,
    document: Mapping[str, Any],
    now: int,
) -> None:
    """Store the item's values in its logical partition (`place`). Raises Conflict if another item has them."""
    storage.execute("DELETE FROM unique_values WHERE number=?", (number,))
    partition, pk = place
    for index, key in enumerate(keys):
        values = {
            "partition": partition,
            "pk": pk,
            "key": index,
            "value": jsontext.dump([_value_at(document, path) for path in key]),
            "number": number,
            "now": now,
        }
        taken = storage.execute(
            "SELECT 1 FROM unique_values JOIN items USING(number) WHERE unique_values.partition=:partition "
            f"AND unique_values.pk=:pk AND key=:key AND value=:value AND {NOT_EXPIRED}",
            values,
        ).fetchone()
        if taken:
            raise Conflict("Unique index constraint violation.")
        storage.execute(
            "INSERT INTO unique_values(partition, pk, key, value, number) "
            "VALUES(:partition, :pk, :key, :value, :number)",
            values,
        )


def _value_at(document: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        if not isinstance(document, dict) or step not in document:
            return None
        document = document[step]
    return document
