"""Effective partition keys are those of the SDK, for every string and every kind of container."""

from __future__ import annotations

from typing import Any, cast

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.partition_key import NonePartitionKeyValue
from hypothesis import example, given
from hypothesis import strategies as st

from relay.backends.cosmos.effective_keys import EffectiveKeys, effective_key

CURRENT = {"paths": ["/partitionKey"], "kind": "Hash", "version": 2}


def of_the_sdk(value: Any) -> str:
    """Return the key that `feed_range_from_partition_key` works out, which needs a container."""
    definition = cast(Any, PartitionKey("/partitionKey"))
    return str(definition._get_epk_range_for_partition_key(value).min)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=100))
@example("")
@example("a" * 14)
@example("a" * 15)
@example("a" * 300)
@example("\U0001f600" * 8)
def test_a_strings_key_is_the_sdks(text: str) -> None:
    assert effective_key(text) == of_the_sdk(text)


class Container:
    """Answers as a container of the SDK; `asked` are the values it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def feed_range_from_partition_key(self, value: Any) -> dict[str, Any]:
        self.asked.append(value)
        return {"Range": {"min": of_the_sdk(value)}}


@pytest.mark.parametrize(
    ("definition", "values"),
    [
        (CURRENT, [None, 1, 1.5, True, NonePartitionKeyValue]),
        ({"paths": ["/partitionKey"], "kind": "Hash"}, ["k"]),
        ({"paths": ["/a", "/b"], "kind": "MultiHash", "version": 2}, ["k"]),
    ],
)
async def test_what_is_no_string_or_hashed_in_another_way_is_left_to_the_sdk(
    definition: dict[str, Any], values: list[Any]
) -> None:
    container = Container()
    keys = EffectiveKeys(cast(ContainerProxy, container), definition)

    assert [await keys.of(value) for value in values * 2] == [of_the_sdk(value) for value in values * 2]
    assert container.asked == values


@pytest.mark.parametrize("value", ["\ud83d", 10**400])
async def test_what_cannot_be_stored_has_no_effective_key(value: Any) -> None:
    assert await EffectiveKeys(cast(ContainerProxy, Container()), CURRENT).of(value) is None
