"""The JSON text between host and worker."""

from __future__ import annotations

import json
from typing import Any

import azure.functions as func
import pytest
from azure.functions.meta import Datum
from hypothesis import given
from hypothesis import strategies as st

from outbox_emulators.functions.documents import PageWithheld, from_text, to_text

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(_TEXT, children, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(_TEXT, _JSON), max_size=3))
def test_documents_reach_the_function_value_for_value(documents: list[dict[str, object]]) -> None:
    decoded = from_text(to_text(documents, rewrite_dates=False))
    assert isinstance(decoded, func.DocumentList)
    assert [dict(document) for document in decoded] == documents


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**70, "1180591620717411303424"),
        (-(10**29), "-100000000000000000000000000000"),
        (float("1E400"), '"Infinity"'),
        (float("-1E400"), '"-Infinity"'),
        (1e22, "1E+22"),
        (1e15, "1E+15"),
        (1234567890123456.0, "1234567890123456.0"),
        (0.0001, "0.0001"),
        (2.5e-7, "2.5E-07"),
        (-1.0, "-1.0"),
    ],
)
def test_numbers_are_spelled_as_the_host_spells_them(value: float, text: str) -> None:
    assert to_text([{"n": value, "m": [value]}], rewrite_dates=False) == f'[{{"n":{text},"m":[{text}]}}]'


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_keeps_its_value_however_it_is_spelled(value: float) -> None:
    text = to_text([{"n": value, "m": 1e300}], rewrite_dates=False)
    assert json.loads(text) == [{"n": value, "m": 1e300}]


def test_what_looks_like_a_number_within_a_string_stays_as_it_is() -> None:
    documents = [{"n": "a:1e5,Infinity,[1000000000000000.0"}]
    assert json.loads(to_text(documents, rewrite_dates=False)) == documents


def nested(levels: int) -> dict[str, Any]:
    """A document of that many levels, arrays and objects in turn, the innermost empty."""
    value: Any = {} if levels % 2 else []
    for level in range(levels - 1):
        value = {"a": value} if isinstance(value, list) or level == levels - 2 else [value]
    document: dict[str, Any] = value
    return document


def test_a_document_of_63_levels_passes_and_one_of_64_withholds_the_page() -> None:
    assert json.loads(to_text([{}, nested(63)], rewrite_dates=False))[1] == nested(63)
    with pytest.raises(PageWithheld, match="MaxDepth of 64 has been exceeded"):
        to_text([{}, nested(64)], rewrite_dates=False)


def test_an_integer_of_380_characters_passes_and_a_longer_one_withholds_the_page() -> None:
    assert to_text([{"n": 10**379}], rewrite_dates=False) == f'[{{"n":{10**379}}}]'
    for number in (10**380, -(10**379), 10**400):
        with pytest.raises(PageWithheld, match="too large to parse"):
            to_text([{"n": {"m": [number]}}], rewrite_dates=False)


def test_half_a_surrogate_pair_is_replaced_as_grpc_does() -> None:
    assert from_text(to_text([{"s": "a\ud800b"}], rewrite_dates=False))[0]["s"] == "a\ufffdb"


def test_the_converter_that_the_app_registered_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Converter:
        @classmethod
        def decode(cls, data: Datum, *, trigger_metadata: object) -> tuple[str | None, str]:
            return data.type, data.value

    registry = func.get_binding_registry()  # type: ignore[no-untyped-call]
    monkeypatch.setitem(registry._bindings, "cosmosDBTrigger", Converter)
    decoded: object = from_text("[1]")
    assert decoded == ("string", "[1]")


@pytest.mark.parametrize(
    ("rewrite", "expected"), [(True, "2019-01-01T00:00:00Z"), (False, "2019-01-01T00:00:00.00Z")]
)
def test_dates_are_rewritten_only_where_asked(rewrite: bool, expected: str) -> None:
    assert from_text(to_text([{"at": "2019-01-01T00:00:00.00Z"}], rewrite_dates=rewrite))[0]["at"] == expected
