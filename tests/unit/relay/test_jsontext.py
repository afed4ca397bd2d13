from __future__ import annotations

import json
from typing import Any

import pytest

from relay.core import jsontext


@pytest.mark.parametrize("levels", [1, 128, 254, 255, 600])
def test_nesting_of_any_depth_is_encoded(levels: int) -> None:
    value: Any = "ü"
    for _ in range(levels):
        value = {"a": [value]} if levels < 300 else [value]

    assert json.loads(jsontext.encode(value)) == value


@pytest.mark.parametrize("sort_keys", [False, True])
def test_a_depth_that_no_recursion_reaches_is_encoded_alike(sort_keys: bool) -> None:
    inner: Any = {"b": [1, "\ud800", None, True, []], "a": {}, "ü": 1.5, "c": [{"x": 2**70}]}
    value, levels = inner, 20_000
    for _ in range(levels):
        value = [value]

    text = jsontext.encode(value, sort_keys=sort_keys)

    around = (b"[" * levels, b"]" * levels)
    assert text == around[0] + json.dumps(inner, separators=(",", ":"), sort_keys=sort_keys).encode() + around[1]


def test_the_text_is_compact_and_sorted_only_on_request() -> None:
    assert jsontext.encode({"b": 1.0, "a": "é"}) == '{"b":1.0,"a":"é"}'.encode()
    assert jsontext.encode({"b": 1, "a": 2}, sort_keys=True) == b'{"a":2,"b":1}'


@pytest.mark.parametrize("value", ["caf\ud83d", {"\udc00": "é"}, 2**64])
def test_what_orjson_does_not_take_is_encoded_value_for_value(value: Any) -> None:
    assert json.loads(jsontext.encode({"a": value, "b": "\U0001f600"})) == {"a": value, "b": "\U0001f600"}


def test_what_json_has_no_number_for_is_refused_where_orjson_does_not_take_the_rest() -> None:
    # orjson alone writes null.
    with pytest.raises(ValueError, match="not JSON compliant"):
        jsontext.encode({"n": float("nan"), "long": 2**64})
