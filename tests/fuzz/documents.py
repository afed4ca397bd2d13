"""Documents that are nearly domain events, as JSON text: what the change feed could hand to the trigger."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

MOST_DOCUMENTS = 100

_MOST_BYTES_OF_A_KEY = 2048

# Text of every plane, without lone surrogates: neither gRPC nor orjson lets those through to the function.
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_DATES = st.sampled_from(
    [
        "2026-02-09T11:37:37.3022907+02:00",
        "2019-01-01T00:00:01.0000000Z",
        "2019-01-01",
        "/Date(1198908717056)/",
        "0001-01-01T00:00:00",
    ]
)
_NUMBERS = st.one_of(
    st.integers(-10, 10),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0.0, -0.0, 1.0, 1, 5e-324, 1.7976931348623157e308, 2**53 + 1, 2**63, 2**64 - 1, 2**64]),
)
_SCALARS = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXT, _DATES)


def _deep(levels: int) -> Any:
    value: Any = 0.0
    for level in range(levels):
        value = {"n": value} if level % 2 else [value]
    return value


JSON = st.one_of(
    _SCALARS,
    st.recursive(
        _SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
        max_leaves=8,
    ),
    st.integers(2, 300).map(_deep),
    st.integers(1, 2000).map(lambda length: "é" * length),
)

# Few of them, so that keys and ids meet; lengths on both sides of what Service Bus takes.
_KEYS = st.one_of(
    st.sampled_from(["a", "b", "c", "d", "鍵", " ", "A/b?c#d"]),
    st.sampled_from(["a", "b", "c"]),
    st.builds(lambda unit, length: unit * length, st.sampled_from(["k", "é", "𝄞"]), st.integers(63, 130)),
    _TEXT,
)
_IDS = st.one_of(st.integers(0, 999).map(str), _KEYS)
_MISSING = object()


def _mostly(sound: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 9).flatmap(lambda roll: odd if roll == 9 else sound)


_ODD = st.one_of(st.just(_MISSING), JSON)
_ACTIONS = _mostly(st.sampled_from(["ContactNameUpdatedEvent", "", "é" * 500]) | _TEXT, _ODD)
_DATA = st.one_of(
    st.fixed_dictionaries({"action": _ACTIONS}, optional={"createdAt": _DATES | JSON, "value": JSON}),
    st.fixed_dictionaries({"value": JSON, "action": _ACTIONS}),
    st.dictionaries(_TEXT, JSON, max_size=3).flatmap(
        lambda rest: _ACTIONS.map(lambda action: {**rest, "action": action})
    ),
)


def _storable(key: Any) -> bool:
    """Return True if Cosmos DB stores a document with this partition key, so that the change feed can hold it.

    Source: https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-item-limits.
    """
    return not isinstance(key, str) or len(key.encode()) <= _MOST_BYTES_OF_A_KEY


_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": _mostly(_IDS, _ODD),
    "partitionKey": _mostly(_KEYS, _ODD.filter(_storable)),
    "type": _mostly(st.just("domainEvent"), _ODD | st.sampled_from(["contact", "DomainEvent", "domainEvent "])),
    "data": _mostly(_DATA, _ODD),
    "_ts": st.integers(0, 2**40) | _ODD,
    "traceparent": _TEXT | _ODD,
    "other": _ODD,
}


@st.composite
def batches(draw: st.DrawFn) -> str:
    """The JSON text of a batch of changes.

    A few values are drawn for each field, and the documents are made by choosing among them: many documents
    for few draws, in which keys and ids meet as they do in a feed.
    """
    pools = {name: draw(st.lists(values, min_size=1, max_size=5)) for name, values in _FIELDS.items()}
    ids = st.lists(_FIELDS["id"], max_size=10) if draw(st.booleans()) else st.just([str(n) for n in range(200)])
    pools["id"] += draw(ids)
    count = draw(st.integers(1, MOST_DOCUMENTS))
    choose = random.Random(draw(st.integers(0, 2**32))).choice
    documents: list[dict[str, Any] | None] = [_document(pools, choose) for _ in range(count)]
    for place in draw(st.lists(st.integers(0, count - 1), max_size=2)):
        documents[place] = None
    return json.dumps(documents, ensure_ascii=False, separators=(",", ":"))


def _document(pools: dict[str, list[Any]], choose: Callable[[list[Any]], Any]) -> dict[str, Any]:
    document = {name: choose(values) for name, values in pools.items()}
    found: dict[str, Any] = _without_missing(document)
    return found


def _without_missing(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_missing(member) for name, member in value.items() if member is not _MISSING}
    return value
