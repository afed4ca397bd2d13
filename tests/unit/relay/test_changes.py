"""The trigger's text, decoded by the worker and parsed by the relay."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import azure.functions as func
import pytest
from azure.functions import meta
from azure.functions.cosmosdb import CosmosDBConverter, CosmosDBTriggerConverter

from relay.backends.cosmos.source import ChangeBatch, install_decoder
from relay.core.errors import ChangesError


@pytest.fixture
def converter() -> Iterator[Any]:
    """The worker's decoder of a trigger's value; restored afterwards."""
    original = CosmosDBTriggerConverter.__dict__.get("decode")
    install_decoder()
    yield CosmosDBTriggerConverter
    if original is None:
        del CosmosDBTriggerConverter.decode
    else:
        CosmosDBTriggerConverter.decode = original  # type: ignore[method-assign]


def _parse(text: str) -> list[Any]:
    return ChangeBatch(text).documents()


def test_the_worker_hands_the_text_to_the_function_unparsed(converter: Any) -> None:
    broken = '[{"id": "1", '

    batch = converter.decode(meta.Datum(broken, "string"), trigger_metadata=None)

    assert isinstance(batch, ChangeBatch)
    assert batch.text == broken
    assert converter.check_input_type_annotation(ChangeBatch)


def test_to_another_function_the_batch_is_the_list_of_documents_that_it_expects(converter: Any) -> None:
    batch = converter.decode(meta.Datum('[{"id": "1"}, null]', "string"), trigger_metadata=None)

    assert len(batch) == 2
    assert [None if document is None else document["id"] for document in batch] == ["1", None]
    assert isinstance(batch[0], func.Document)


def test_bytes_and_json_are_taken_and_nothing_is_nothing(converter: Any) -> None:
    assert converter.decode(meta.Datum(b'["\xc3\xbc"]', "bytes"), trigger_metadata=None).text == '["ü"]'
    assert converter.decode(meta.Datum("[]", "json"), trigger_metadata=None).documents() == []
    assert converter.decode(None, trigger_metadata=None) is None
    assert converter.decode(meta.Datum(None, None), trigger_metadata=None) is None


def test_a_value_of_another_kind_is_an_error_and_not_an_empty_batch(converter: Any) -> None:
    with pytest.raises(NotImplementedError, match="int"):
        converter.decode(meta.Datum(7, "int"), trigger_metadata=None)


def test_other_bindings_are_decoded_as_before(converter: Any) -> None:
    decoded = CosmosDBConverter.decode(meta.Datum('[{"id": "1"}]', "json"), trigger_metadata=None)

    assert isinstance(decoded, func.DocumentList)
    assert not isinstance(decoded, ChangeBatch)


@pytest.mark.parametrize(
    "number",
    [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, -(2**63) - 1, 10**29 + 7, 10**378 + 1],
)
def test_integers_of_any_length_that_the_host_delivers_are_kept_whole(number: int) -> None:
    assert _parse(json.dumps([{"n": number}])) == [{"n": number}]
    assert type(_parse(json.dumps([{"n": number}]))[0]["n"]) is int


@pytest.mark.parametrize("text", ["1e308", "0.1", "123456789012345678901234567890.5", "1E+22", "-0.0"])
def test_floats_are_the_ones_that_were_written(text: str) -> None:
    (document,) = _parse(f'[{{"f": {text}}}]')

    assert document is not None
    assert repr(document["f"]) == repr(float(text))


def test_long_digits_within_text_change_nothing() -> None:
    assert _parse('[{"id": "99999999999999999999999", "t": "ü\\ud83d\\ude00"}, null]') == [
        {"id": "99999999999999999999999", "t": "ü😀"},
        None,
    ]


@pytest.mark.parametrize("text", ["1e400", "-1E+309", f"{10**400}.5"])
def test_a_number_beyond_the_range_of_a_double_is_refused_instead_of_altered(text: str) -> None:
    with pytest.raises(ChangesError, match="beyond the range of a double"):
        _parse(f'[{{"f": {text}}}]')


def test_a_document_too_deep_for_the_parser_is_named_with_a_remedy() -> None:
    with pytest.raises(ChangesError, match="check --scan"):
        _parse("[" + '{"a":' * 100_000 + "1" + "}" * 100_000 + "]")


@pytest.mark.parametrize("text", ["", "[", '[{"a": NaN, "n": 99999999999999999999999}]', "[" + "9" * 5000 + "]"])
def test_what_is_not_json_is_named_with_a_remedy(text: str) -> None:
    with pytest.raises(ChangesError, match="check --scan"):
        _parse(text)


def test_values_that_are_no_documents_are_refused() -> None:
    with pytest.raises(ChangesError, match="not all JSON objects"):
        _parse('[{"id": "1"}, 7]')


def test_a_lone_document_is_a_batch_of_one() -> None:
    assert _parse('{"id": "1"}') == [{"id": "1"}]


def test_the_longest_integer_that_python_reads_is_read_and_a_longer_one_is_refused_by_its_length() -> None:
    limit = sys.get_int_max_str_digits()

    (document,) = _parse(f'[{{"n": {"9" * limit}}}]')

    assert document is not None
    assert document["n"] == 10**limit - 1
    with pytest.raises(ChangesError, match=f"{limit + 1} digits"):
        _parse(f'[{{"n": {"9" * (limit + 1)}}}]')
