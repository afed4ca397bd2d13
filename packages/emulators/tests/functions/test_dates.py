"""Date-like strings, as Newtonsoft.Json reads and writes them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from outbox_relay.emulators.functions.documents import PageWithheld, rewritten, rewritten_string


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("stored", "handed_on"),
    [
        ("2019-01-01T00:00:01.0000000Z", "2019-01-01T00:00:01Z"),
        ("2019-01-01T00:00:01.1230000Z", "2019-01-01T00:00:01.123Z"),
        ("2019-01-01T00:00:01z", "2019-01-01T00:00:01Z"),
        ("2019-01-01T00:00:01.10", "2019-01-01T00:00:01.1"),
        ("2019-01-01T24:00:00Z", "2019-01-02T00:00:00Z"),
        ("2021-09-22T11:07:37.3022907+05:30", "2021-09-22T07:37:37.3022907+02:00"),
        ("2021-12-22T11:07:37-0800", "2021-12-22T20:07:37+01:00"),
        ("2021-12-22T11:07:37+00", "2021-12-22T12:07:37+01:00"),
        ("2019-01-01T00:00:00.123456789", "2019-01-01T00:00:00.1234567"),
        ("9999-12-31T23:59:59-05:00", "9999-12-31T23:59:59+01:00"),
        ("/Date(1198908717056)/", "2007-12-29T06:11:57.056Z"),
        ("/Date(1198908717056+0700)/", "2007-12-29T07:11:57.056+01:00"),
        ("/Date(-1)/", "1969-12-31T23:59:59.999Z"),
    ],
)
def test_a_date_is_normalised(stored: str, handed_on: str) -> None:
    assert rewritten_string(stored) == handed_on


@pytest.mark.parametrize(
    "text",
    [
        "2019-01-01",
        "2019-01-01 00:00:00Z",
        "2019-01-01T00:00Z",
        "2019-02-30T00:00:00Z",
        "2019-13-01T00:00:00Z",
        "2019-01-01T24:00:01Z",
        "2019-01-01T25:00:00Z",
        "2019-01-01T00:60:00Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T24:00:00Z",
        "2019-01-01T00:00:00.Z",
        "2019-01-01T00:00:00.12345678Z",
        "2019-01-01T00:00:00 Z",
        "a019-01-01T00:00:00Z",
        "٢019-01-01T00:00:00Z",
        "/Date(soon)/",
        "/Date(99999999999999999999)/",
        "see 2019-01-01T00:00:00Z",
        "",
    ],
)
def test_what_is_no_date_stays_as_it_is(text: str) -> None:
    assert rewritten_string(text) == text


@pytest.mark.parametrize("text", ["/Date(9999999999999999)/", "/Date(-99999999999999+0100)/"])
def test_milliseconds_beyond_any_date_withhold_the_page(text: str) -> None:
    with pytest.raises(PageWithheld, match="Ticks must be between"):
        rewritten({"at": [text]})


def test_dates_are_found_at_any_depth_but_not_in_names() -> None:
    date = "2019-01-01T00:00:00.0Z"
    assert rewritten({date: [{"a": date, "b": 1, "c": None, "d": True, "e": [date]}]}) == {
        date: [{"a": "2019-01-01T00:00:00Z", "b": 1, "c": None, "d": True, "e": ["2019-01-01T00:00:00Z"]}]
    }
