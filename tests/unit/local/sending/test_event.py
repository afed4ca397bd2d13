"""The event of `python -m local send`."""

from __future__ import annotations

import pytest

from local.sending.event import Event, WordError, parse_fields
from outbox import InvalidDocument


def test_fields_are_strings_or_json_and_take_precedence_over_the_data() -> None:
    fields = parse_fields(["name=Jane=Doe", "age:=3", "tags:=[1]", "empty="], '{"name": "John", "city": "Bern"}')

    assert fields == {"name": "Jane=Doe", "city": "Bern", "age": 3, "tags": [1], "empty": ""}


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (["name"], None, "'name' is not a field: write name=value"),
        (["=x"], None, "'=x' is not a field"),
        ([":=1"], None, "':=1' is not a field"),
        (["age:=old"], None, "age:=old: not JSON"),
        ([], "[1]", "--data must be a JSON object"),
        ([], "{", "--data: not JSON"),
    ],
)
def test_what_is_no_field_is_refused_with_the_remedy(words: list[str], text: str | None, message: str) -> None:
    with pytest.raises(WordError, match=message.replace("[", r"\[")):
        parse_fields(words, text)


def test_the_document_is_that_of_the_message_contract() -> None:
    document = Event("k", "Renamed", {"name": "Jane"}, id="e", created_at="2026-02-02T02:40:00+00:00").document(3)

    assert document == {
        "id": "e",
        "partitionKey": "k",
        "type": "domainEvent",
        "data": {"name": "Jane", "action": "Renamed", "createdAt": "2026-02-02T02:40:00+00:00"},
        "order": 0,
        "sequence": 3,
        "ttl": 864_000,
    }


def test_a_document_that_the_host_cannot_hand_over_is_not_written() -> None:
    deep: dict[str, object] = {}
    for _ in range(70):
        deep = {"a": deep}

    with pytest.raises(InvalidDocument, match="nested too deeply"):
        Event("k", "Renamed", deep).document(1)
