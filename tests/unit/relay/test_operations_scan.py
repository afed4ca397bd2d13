"""What the Functions host can read of a document."""

from __future__ import annotations

from typing import Any

import pytest

from relay.cosmos.scan import MAX_DEPTH, MAX_INTEGER_CHARACTERS, measure


def nested(levels: int, kind: type) -> Any:
    """A container of so many levels."""
    value: Any = kind()
    for _ in range(levels - 1):
        value = {"x": value} if kind is dict else [value]
    return value


@pytest.mark.parametrize("kind", [dict, list])
@pytest.mark.parametrize("levels", [1, 61, 62, 63, 126])
def test_the_levels_of_a_document_count_the_document_itself(levels: int, kind: type) -> None:
    assert measure({"id": "a", "flat": [1], "data": nested(levels, kind)}) == (levels + 1 if levels > 1 else 2, 0)


def test_a_flat_document_has_one_level() -> None:
    assert measure({"id": "a", "text": "[" * 100, "number": 1.5, "none": None, "true": True}) == (1, 0)


@pytest.mark.parametrize(
    ("number", "characters"),
    [(10**18 - 1, 0), (10**18, 19), (10**379, 380), (-(10**379), 381), (10**399, 400), (1e300, 0)],
)
def test_an_integer_is_as_long_as_it_is_written(number: float, characters: int) -> None:
    assert measure({"a": [{"b": number}]}) == (3, characters)


def test_the_limits_are_those_seen_on_the_host() -> None:
    # A document of 63 levels is delivered, one of 64 is not; an integer of 379 digits is, one of 400 is not.
    assert (MAX_DEPTH, MAX_INTEGER_CHARACTERS) == (63, 380)
