"""If-Match and If-None-Match as RFC 9110 compares them."""

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
def test_a_header_names_versions(header: str, strongly: bool, weakly: bool) -> None:
    tags = EntityTags.parsed(header)

    assert (tags.match_strongly('"a"'), tags.match_weakly('"a"')) == (strongly, weakly)


def test_no_header_names_none() -> None:
    tags = EntityTags.parsed("")

    assert not tags.match_weakly('"a"')
    assert tags.single is None


def test_only_one_version_is_single() -> None:
    assert EntityTags.parsed('W/"a"').single == '"a"'
    assert EntityTags.parsed('"a", "b"').single is None
    assert EntityTags.parsed("*").single is None


@pytest.mark.parametrize("header", ["a", '"a', "W/a", "**", ", "])
def test_what_is_no_tag_is_no_version(header: str) -> None:
    tags = EntityTags.parsed(header)

    assert not tags.match_weakly('"a"')
    assert tags.single is None
