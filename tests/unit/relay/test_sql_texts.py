"""How text of any characters is stored in columns of an SQL database."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.backends.sql.quarantine import decode, digest, encode, encode_id, ids_beginning

# All that has its own meaning here, and a few other characters.
TEXTS = st.text(st.sampled_from("\0\\u0dab5c \ud83d\udfff\U0001f600!%_[]é"))


@given(TEXTS)
def test_what_is_encoded_is_text_that_every_database_holds_and_is_decoded(text: str) -> None:
    for encoded in (encode(text), encode_id(text)):
        assert decode(encoded) == text
        assert "\0" not in encoded
        encoded.encode()


@given(TEXTS)
def test_no_id_ends_with_a_space(text: str) -> None:
    assert " " not in encode_id(text)


@given(TEXTS, TEXTS)
def test_the_beginning_of_an_id_is_the_beginning_of_what_stands_for_it(beginning: str, rest: str) -> None:
    assert encode_id(beginning + rest).startswith(encode_id(beginning))


def test_what_needs_no_escape_stays_as_it_is() -> None:
    assert encode("set-aside:é \U0001f600!%_[]") == "set-aside:é \U0001f600!%_[]"
    assert encode("\\u0000\0\ud800") == r"\u005cu0000\u0000\ud800"
    assert encode_id("a b ") == r"a\u0020b\u0020"


@pytest.mark.parametrize("identifier", ["a%", "a_", "a[b]", "a!", "a\\", "a "])
def test_wildcards_of_an_id_are_escaped_in_a_pattern(identifier: str) -> None:
    pattern = ids_beginning(identifier)

    assert pattern.endswith("%")
    unescaped = re.sub("!(.)", r"\1", pattern[:-1])
    assert unescaped == encode_id(identifier)
    assert not set(re.sub("!.", "", pattern[:-1])) & set("%_[!")


def test_keys_have_digests_of_their_own() -> None:
    keys = ["", " ", "a", "a ", "A", "\0", "\ud83d", "\ude00", "\U0001f600", "k" * 5000, "k" * 5001]

    digests = [digest(key) for key in keys]

    assert len(set(digests)) == len(keys)
    assert {len(each) for each in digests} == {64}
