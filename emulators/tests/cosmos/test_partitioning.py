"""Effective partition keys agree with the SDK, which computes feed ranges itself."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from azure.cosmos.partition_key import NonePartitionKeyValue, PartitionKey
from hypothesis import given
from hypothesis import strategies as st

from outbox_emulators.cosmos.errors import BadRequest
from outbox_emulators.cosmos.partitioning import PartitionKeyDefinition, locate

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=200),
)


def definition(path: Any = "/a", version: int = 2) -> tuple[PartitionKeyDefinition, PartitionKey]:
    key = PartitionKey(path=path, version=version)
    return PartitionKeyDefinition.from_json(dict(key)), key


@given(st.one_of(SCALARS, st.none()))
def test_version_two_keys_hash_as_in_the_sdk(value: Any) -> None:
    ours, theirs = definition()

    assert ours.of_values([value]).effective == theirs._get_effective_partition_key_string([value])


@given(st.one_of(st.booleans(), st.integers(0, 2**32 - 1), st.text(max_size=200)))
def test_version_one_keys_hash_as_in_the_sdk(value: Any) -> None:
    ours, theirs = definition(version=1)

    assert ours.of_values([value]).effective == str(theirs._get_effective_partition_key_string([value])).upper()


@given(st.lists(SCALARS, min_size=3, max_size=3))
def test_hierarchical_keys_hash_as_in_the_sdk(values: list[Any]) -> None:
    ours, theirs = definition(["/a", "/b", "/c"])

    assert ours.of_values(values).effective == theirs._get_effective_partition_key_string(values)


@pytest.mark.parametrize("version", [1, 2])
def test_a_missing_key_hashes_as_in_the_sdk(version: int) -> None:
    ours, theirs = definition(version=version)

    expected = str(theirs._get_effective_partition_key_string([NonePartitionKeyValue])).upper()
    assert ours.of_document({}).effective == expected


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_ranges_cover_everything_without_overlap_and_fill_evenly(version: int, count: int) -> None:
    ours, _ = definition(version=version)
    ranges = ours.split(count)
    filled = [0] * count

    for number in range(2000):
        effective = ours.of_values([f"key-{number}"]).effective
        index = locate(ranges, effective)
        assert ranges[index].minimum <= effective < ranges[index].maximum
        filled[index] += 1

    assert (ranges[0].minimum, ranges[-1].maximum) == ("", "FF")
    assert all(left.maximum == right.minimum for left, right in itertools.pairwise(ranges))
    assert min(filled) > 2000 / count * 0.7


@pytest.mark.parametrize(
    ("path", "document", "same_as"),
    [
        ("/a/b", {"a": {"b": "x"}}, "x"),
        ('/"odd/name"', {"odd/name": "x"}, "x"),
        ("/a/'b c'", {"a": {"b c": 1}}, 1.0),
        ("/a", {"a": {"is": "no scalar"}}, {}),
        ("/a/b", {"a": "no object"}, {}),
    ],
)
def test_the_key_is_found_where_the_path_leads(path: str, document: dict[str, Any], same_as: Any) -> None:
    ours = PartitionKeyDefinition.from_json({"paths": [path], "kind": "Hash", "version": 2})

    assert ours.of_document(document) == ours.of_values([same_as])


@pytest.mark.parametrize(
    "bad",
    [
        None,
        {},
        {"paths": []},
        {"paths": ["no-slash"], "version": 2},
        {"paths": ["/a", "/b"], "version": 2},
        {"paths": ["/a"], "kind": "Range", "version": 2},
        {"paths": ["/a"], "version": 3},
        {"paths": ["/a", "/b", "/c", "/d"], "kind": "MultiHash", "version": 2},
    ],
)
def test_what_is_no_partition_key_definition_is_refused(bad: Any) -> None:
    with pytest.raises(BadRequest):
        PartitionKeyDefinition.from_json(bad)
