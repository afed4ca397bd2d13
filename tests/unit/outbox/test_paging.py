"""Continuations of pages, without a database."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from outbox import InvalidContinuation, Page
from outbox.paging import Listing
from tests.support.orders import Order

LISTING = Listing("order", "p", "c.data.quantity > @least OR c.id = @id", {"@least": 1, "@id": "o1"}, False)


@pytest.mark.parametrize("token", ["", "t", "to", "tok", "ü鍵", "+RID:~abc#RT:1#TRC:5"])
def test_a_continuation_contains_the_services_token(token: str) -> None:
    continuation = LISTING._continuation(token)

    assert LISTING._token(continuation) == token
    assert continuation.replace("-", "").replace("_", "").isalnum()


def test_the_order_of_parameters_does_not_matter() -> None:
    same = replace(LISTING, parameters={"@id": "o1", "@least": 1})

    assert same._token(LISTING._continuation("t")) == "t"


@pytest.mark.parametrize(
    "change",
    [
        {"document_type": "client"},
        {"partition_key": "q"},
        {"partition_key": None},
        {"where": None},
        {"parameters": {"@least": 2, "@id": "o1"}},
        {"include_deleted": True},
    ],
)
def test_a_continuation_of_another_listing_is_rejected(change: dict[str, object]) -> None:
    other = replace(LISTING, **change)  # type: ignore[arg-type]

    with pytest.raises(InvalidContinuation, match="belongs to another listing"):
        other._token(LISTING._continuation("t"))


@pytest.mark.parametrize("text", ["", "=", "W10", "bnVsbA", "MQ", "!!!!", "ü", "AAAA"])
def test_an_invalid_continuation_is_rejected(text: str) -> None:
    with pytest.raises(InvalidContinuation, match="was not issued by this library"):
        LISTING._token(text)


def test_a_continuation_with_illegal_characters_is_rejected() -> None:
    with pytest.raises(InvalidContinuation, match="was not issued by this library"):
        LISTING._token("!!!!" + LISTING._continuation("t"))


def test_a_forged_continuation_without_a_string_is_rejected() -> None:
    listing, _ = json.loads(base64.urlsafe_b64decode(LISTING._continuation("t") + "=="))
    forged = base64.urlsafe_b64encode(json.dumps([listing, 7]).encode()).decode().rstrip("=")

    with pytest.raises(InvalidContinuation, match="belongs to another listing"):
        LISTING._token(forged)


def test_a_page_with_a_continuation_has_more() -> None:
    assert Page((Order("tea"),), "t").has_more
    assert not Page((Order("tea"),), None).has_more
