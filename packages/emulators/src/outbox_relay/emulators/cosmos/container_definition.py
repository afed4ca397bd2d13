"""The properties of a container that are given when it is created or replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outbox_relay.emulators.cosmos.documents import MAX_TTL_S, NO_EXPIRY
from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.partitioning import PartitionKeyDefinition, parse_path
from outbox_relay.emulators.cosmos.unique_keys import unique_keys_of

_NOT_SERVED = {
    "analyticalStorageTtl": "analytical storage",
    "changeFeedPolicy": "the change feed of all versions and deletes",
    "clientEncryptionPolicy": "Always Encrypted",
    "computedProperties": "computed properties",
    "fullTextPolicy": "full-text search",
    "materializedViewDefinition": "materialized views",
    "vectorEmbeddingPolicy": "vector search",
}
_ETAG_PATH = {"path": '/"_etag"/?'}
_DEFAULT_CONFLICT_RESOLUTION = {
    "mode": "LastWriterWins",
    "conflictResolutionPath": "/_ts",
    "conflictResolutionProcedure": "",
}
_REPLACEABLE = ("defaultTtl", "indexingPolicy", "ttlPropertyPath")


def normalised_definition(name: str, requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a new container, with the service's defaults. Raises BadRequest."""
    _refuse_unserved(requested)
    PartitionKeyDefinition.from_json(requested.get("partitionKey"))
    definition = {
        "id": name,
        "indexingPolicy": _indexing_policy(requested.get("indexingPolicy")),
        "partitionKey": requested["partitionKey"],
        "conflictResolutionPolicy": _conflict_resolution(requested.get("conflictResolutionPolicy")),
        "geospatialConfig": {"type": "Geography"},
    }
    if unique_keys_of(requested):
        definition["uniqueKeyPolicy"] = requested["uniqueKeyPolicy"]
    if requested.get("defaultTtl") is not None:
        definition["defaultTtl"] = _check_default_ttl(requested["defaultTtl"])
    if ttl_path := requested.get("ttlPropertyPath"):
        if "defaultTtl" not in definition:
            raise BadRequest("The property 'ttlPropertyPath' needs a 'defaultTtl'.")
        definition["ttlPropertyPath"] = _check_ttl_path(ttl_path)
    return definition


def replaced_definition(current: Mapping[str, Any], requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a container after a replacement. Raises BadRequest if the change is not allowed."""
    if requested.get("id") != current["id"]:
        raise BadRequest("The id of a container cannot be changed.")
    changed = normalised_definition(current["id"], {"partitionKey": current["partitionKey"]} | dict(requested))
    if changed["partitionKey"] != current["partitionKey"]:
        raise BadRequest("Document collection partition key cannot be changed.")
    if "uniqueKeyPolicy" in requested and unique_keys_of(requested) != unique_keys_of(current):
        raise BadRequest("The unique keys of a container cannot be changed.")
    kept = {key: value for key, value in current.items() if key not in _REPLACEABLE}
    return kept | {key: changed[key] for key in _REPLACEABLE if key in changed}


def default_ttl_of(definition: Mapping[str, Any]) -> int | None:
    """Return the seconds, -1 for "on, without a default", None for "off"."""
    ttl: int | None = definition.get("defaultTtl")
    return ttl


def ttl_path_of(definition: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the path of the property that times to live count from, None for `_ts`."""
    path: str | None = definition.get("ttlPropertyPath")
    return None if path is None else parse_path(path)


def composite_indexes(definition: Mapping[str, Any]) -> list[list[tuple[str, bool]]]:
    """Return the composite indexes, each a list of (path, descending)."""
    return [
        [(entry["path"], entry.get("order", "ascending") == "descending") for entry in index]
        for index in definition["indexingPolicy"].get("compositeIndexes", [])
    ]


def _refuse_unserved(requested: Mapping[str, Any]) -> None:
    for key, what in _NOT_SERVED.items():
        if requested.get(key):
            raise BadRequest(f"The property '{key}' is not supported: {what} is not enabled for this account.")


def _conflict_resolution(requested: object) -> dict[str, Any]:
    if requested is None:
        return dict(_DEFAULT_CONFLICT_RESOLUTION)
    if not isinstance(requested, dict) or requested.get("mode", "LastWriterWins") != "LastWriterWins":
        raise BadRequest("Only the conflict resolution mode LastWriterWins is supported by this account.")
    return _DEFAULT_CONFLICT_RESOLUTION | requested


def _indexing_policy(requested: object) -> dict[str, Any]:
    policy = {} if requested is None else requested
    if not isinstance(policy, dict):
        raise BadRequest("The indexing policy has to be a JSON object.")
    if policy.get("vectorIndexes") or policy.get("fullTextIndexes"):
        raise BadRequest("Vector and full-text indexes are not enabled for this account.")
    mode = str(policy.get("indexingMode", "consistent")).lower().replace("lazy", "consistent")
    if mode not in ("consistent", "none"):
        raise BadRequest(f"The indexing mode '{mode}' is not supported; there are consistent and none.")
    return _common(policy, mode) | _paths(policy, mode)


def _common(policy: Mapping[str, Any], mode: str) -> dict[str, Any]:
    kept = {key: policy[key] for key in ("compositeIndexes", "spatialIndexes") if key in policy}
    indexes = kept.get("compositeIndexes", [])
    if not isinstance(indexes, list) or not all(map(_is_composite_index, indexes)):
        raise BadRequest("A composite index has to be a list of two or more paths.")
    return {"indexingMode": mode, "automatic": policy.get("automatic", mode != "none")} | kept


def _is_composite_index(index: object) -> bool:
    return (
        isinstance(index, list)
        and len(index) > 1
        and all(isinstance(entry, dict) and isinstance(entry.get("path"), str) for entry in index)
    )


def _paths(policy: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Return the paths that the service keeps (kinds of index are obsolete). It never indexes `_etag`."""
    if mode == "none":
        return {"includedPaths": [], "excludedPaths": []}
    try:
        included = [{"path": entry["path"]} for entry in policy.get("includedPaths") or [{"path": "/*"}]]
        excluded = [{"path": entry["path"]} for entry in policy.get("excludedPaths") or []]
    except (KeyError, TypeError) as error:
        raise BadRequest("Every included or excluded path of an indexing policy needs a path.") from error
    if _ETAG_PATH not in excluded:
        excluded.append(_ETAG_PATH)
    return {"includedPaths": included, "excludedPaths": excluded}


def _check_default_ttl(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and (value == NO_EXPIRY or 0 < value <= MAX_TTL_S):
        return value
    raise BadRequest(
        f"The input defaultTtl '{value}' is invalid. Ensure to provide a nonzero positive integer (less than or "
        f"equal to '{MAX_TTL_S}'), or '{NO_EXPIRY}' which means never expire."
    )


def _check_ttl_path(value: object) -> str:
    if not isinstance(value, str):
        raise BadRequest("The property 'ttlPropertyPath' has to be a path, such as /property.")
    try:
        parse_path(value)
    except BadRequest as error:
        raise BadRequest(f"The 'ttlPropertyPath' {value!r} is invalid; it has to look like /property.") from error
    return value
