"""Partial updates of an item: add, set, replace, remove, incr, move.

Source: https://learn.microsoft.com/azure/cosmos-db/partial-document-update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from outbox_relay.emulators.cosmos import jsontext
from outbox_relay.emulators.cosmos.documents import SYSTEM_PROPERTIES, Document, Item
from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.partitioning import PartitionKeyDefinition
from outbox_relay.emulators.http_requests import whole_number

MAX_OPERATIONS = 10

_OPERATION_TYPES = "add, set, replace, remove, incr, move"


def apply_patch(item: Item, operations: object, partition_key: PartitionKeyDefinition) -> Document:
    """Return the document after all operations, in order. Raises BadRequest if one of them cannot be applied."""
    if not isinstance(operations, list) or not operations:
        raise BadRequest("A patch needs a list of at least one operation.")
    if len(operations) > MAX_OPERATIONS:
        raise BadRequest(f"The number of patch operations can't exceed '{MAX_OPERATIONS}'.")
    document = jsontext.parse(item.text).value
    before = partition_key.of_document(document)
    for number, operation in enumerate(operations, start=1):
        try:
            _apply(document, operation)
        except BadRequest as error:
            raise BadRequest(f"For Operation({number}): {error.message}") from error
    if partition_key.of_document(document) != before:
        raise BadRequest("A patch cannot change the partition key of an item.")
    text = jsontext.dump(document)
    return Document.of(jsontext.Part(document, text))


def _apply(document: dict[str, Any], operation: object) -> None:
    if not isinstance(operation, dict):
        raise BadRequest("an operation has to be a JSON object.")
    kind = operation.get("op")
    path = _parse_path(operation.get("path"))
    match kind:
        case "add":
            _add(document, path, _value(operation))
        case "set":
            _set(document, path, _value(operation))
        case "replace":
            _replace(document, path, _value(operation))
        case "remove":
            _remove(document, path)
        case "incr":
            _increment(document, path, _value(operation))
        case "move":
            _move(document, _parse_path(operation.get("from")), path)
        case _:
            raise BadRequest(f"the operation type '{kind}' is unknown; there are {_OPERATION_TYPES}.")


def _add(document: dict[str, Any], path: list[str], value: Any) -> None:
    parent, step = _parent(document, path)
    if isinstance(parent, dict):
        parent[step] = value
    else:
        parent.insert(len(parent) if step == "-" else _index(parent, step, len(parent)), value)


def _set(document: dict[str, Any], path: list[str], value: Any) -> None:
    parent, step = _parent(document, path)
    if isinstance(parent, dict):
        parent[step] = value
    elif step == "-" or step == str(len(parent)):
        parent.append(value)
    else:
        parent[_index(parent, step, len(parent) - 1)] = value


def _replace(document: dict[str, Any], path: list[str], value: Any) -> None:
    parent, step = _parent(document, path)
    if isinstance(parent, dict):
        _require(parent, step, "Replace")
        parent[step] = value
    else:
        parent[_index(parent, step, len(parent) - 1)] = value


def _remove(document: dict[str, Any], path: list[str]) -> Any:
    parent, step = _parent(document, path)
    if isinstance(parent, dict):
        _require(parent, step, "Remove")
        return parent.pop(step)
    return parent.pop(_index(parent, step, len(parent) - 1))


def _increment(document: dict[str, Any], path: list[str], value: Any) -> None:
    if not _is_number(value):
        raise BadRequest("incr needs a number as its value.")
    parent, step = _parent(document, path)
    if isinstance(parent, dict):
        current = parent.get(step, 0)
        place: Any = step
    else:
        place = _index(parent, step, len(parent) - 1)
        current = parent[place]
    if not _is_number(current):
        raise BadRequest("incr can only be applied to a number.")
    total = current + value
    if not math.isfinite(total):
        raise BadRequest("incr leaves the range of IEEE 754 doubles.")
    parent[place] = total


def _move(document: dict[str, Any], source: list[str], target: list[str]) -> None:
    if target[: len(source)] == source and len(target) > len(source):
        raise BadRequest("move cannot put a value inside itself.")
    _set(document, target, _remove(document, source))


def _parent(document: dict[str, Any], path: list[str]) -> tuple[Any, str]:
    parent: Any = document
    for step in path[:-1]:
        if isinstance(parent, dict) and step in parent:
            parent = parent[step]
        elif isinstance(parent, list):
            parent = parent[_index(parent, step, len(parent) - 1)]
        else:
            raise BadRequest(f"the path '/{'/'.join(path)}' leads through '{step}', which does not exist.")
    if not isinstance(parent, dict | list):
        raise BadRequest(f"the path '/{'/'.join(path)}' leads through a value that is no object and no array.")
    return parent, path[-1]


def _parse_path(path: object) -> list[str]:
    if not isinstance(path, str) or not path.startswith("/") or len(path) < 2:
        raise BadRequest(f"'{path}' is not a path; a path starts with '/'.")
    steps = [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]
    if steps[0] in SYSTEM_PROPERTIES or steps == ["id"]:
        raise BadRequest(f"'{steps[0]}' cannot be patched.")
    return steps


def _require(parent: Mapping[str, Any], step: str, verb: str) -> None:
    if step not in parent:
        raise BadRequest(f"{verb} Operation can only be performed on a path that exists; '{step}' does not.")


def _index(parent: list[Any], step: str, largest: int) -> int:
    index = whole_number(step)
    if index is None or index > largest:
        raise BadRequest(f"'{step}' is not a place in an array of {len(parent)} elements.")
    return index


def _value(operation: Mapping[str, Any]) -> Any:
    if "value" not in operation:
        raise BadRequest(f"{operation.get('op')} needs a value.")
    return operation["value"]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
