"""What a receiver is made with, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import inbox

CONNECTION = "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sessions": 0}, "sessions is 0; it must be 1 or more"),
        ({"prefetch": 0}, "prefetch is 0; it must be 1 or more"),
        ({"retry_s": -1.0}, "retry_s is -1.0 seconds"),
        ({"accept_s": 0.0}, "accept_s, idle_s and answer_s must be above 0"),
    ],
)
def test_numbers_out_of_their_range_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        inbox.Options(**options)


def test_the_pauses_double_up_to_the_longest() -> None:
    options = inbox.Options(retry_s=1.0, retry_max_s=5.0)

    assert [options.pause_s(count) for count in (0, 1, 2, 3, 10_000)] == [1.0, 2.0, 4.0, 5.0, 5.0]


@pytest.mark.parametrize(
    "places",
    [{}, {"topic": "t"}, {"subscription": "s"}, {"queue": "q", "topic": "t", "subscription": "s"}],
    ids=lambda places: " ".join(places) or "nothing",
)
def test_it_must_be_clear_what_to_receive_from(places: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="a topic and a subscription, or a queue"):
        inbox.Receiver(inbox.connect(CONNECTION), print, **places)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="session_count"):
        inbox.Receiver(inbox.connect(CONNECTION), print, queue="q", session_count=3)


def test_a_body_that_is_not_json_is_a_dead_letter_that_does_not_quote_it() -> None:
    with pytest.raises(inbox.DeadLetter) as refused:
        inbox.Message(id="a", key="k", body=b"secret").json()

    assert refused.value.reason == "unreadable"
    assert "secret" not in str(refused.value)
