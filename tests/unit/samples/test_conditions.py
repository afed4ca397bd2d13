"""Comparisons of If-Match and If-None-Match, RFC 9110."""

from __future__ import annotations

import pytest

from samples.contacts.api.conditions import EntityTags


@pytest.mark.parametrize(
    ("header", "strongly", "weakly"),
    [
        ('"a"', True, True),
        ('W/"a"', False, True),
        ('"b", "a"', True, True),
        ('"b" ,W/"a"', False, True),
        ('"b"', False, False),
        ('"A"', False, False),
        ("*", True, True),
    ],
)
def test_a_header_is_compared_strongly_or_weakly(header: str, strongly: bool, weakly: bool) -> None:
    tags = EntityTags.parse(header)

    assert (tags.match_strongly('"a"'), tags.match_weakly('"a"')) == (strongly, weakly)


def test_an_empty_header_matches_nothing() -> None:
    tags = EntityTags.parse("")

    assert not tags.match_weakly('"a"')
    assert tags.single is None


def test_a_tag_is_single_only_alone() -> None:
    assert EntityTags.parse('W/"a"').single == '"a"'
    assert EntityTags.parse('"a", "b"').single is None
    assert EntityTags.parse("*").single is None


@pytest.mark.parametrize("header", ["a", '"a', "W/a", "**", ", "])
def test_an_invalid_tag_matches_nothing(header: str) -> None:
    tags = EntityTags.parse(header)

    assert not tags.match_weakly('"a"')
    assert tags.single is None
