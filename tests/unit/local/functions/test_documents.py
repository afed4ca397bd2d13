"""The JSON text between host and worker."""

from __future__ import annotations

import azure.functions as func
import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.functions.documents import from_text, to_text

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


def test_an_integer_beyond_64_bits_is_sent_digit_for_digit() -> None:
    assert to_text([{"n": 2**70}], rewrite_dates=False) == '[{"n":1180591620717411303424}]'


def test_half_a_surrogate_pair_is_replaced_as_grpc_does() -> None:
    assert from_text(to_text([{"s": "a\ud800b"}], rewrite_dates=False))[0]["s"] == "a\ufffdb"


@pytest.mark.parametrize(
    ("rewrite", "expected"), [(True, "2019-01-01T00:00:00Z"), (False, "2019-01-01T00:00:00.00Z")]
)
def test_dates_are_rewritten_only_where_asked(rewrite: bool, expected: str) -> None:
    assert from_text(to_text([{"at": "2019-01-01T00:00:00.00Z"}], rewrite_dates=rewrite))[0]["at"] == expected
