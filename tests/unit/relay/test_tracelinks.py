from __future__ import annotations

import pytest

from relay.telemetry.attempt import parse, span_contexts

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize("text", [f"00-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-the-future-adds"])
def test_a_valid_traceparent_becomes_a_remote_span_context(text: str) -> None:
    context = parse(text)

    assert context is not None
    assert (context.trace_id, context.span_id) == (int(TRACE, 16), int(SPAN, 16))
    assert context.trace_flags.sampled
    assert context.is_remote


def test_flags_are_two_hexadecimal_digits() -> None:
    context = parse(f"00-{TRACE}-{SPAN}-fd")

    assert context is not None
    assert context.trace_flags == 0xFD


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}",
    ],
)
def test_an_invalid_traceparent_is_none(text: str) -> None:
    assert parse(text) is None


def test_links_are_distinct_valid_and_bounded() -> None:
    texts = [f"00-{TRACE}-{number:016x}-01" for number in range(1, 6)]

    found = span_contexts([texts[0], texts[0], None, 7, "rubbish", *texts[1:]], limit=3)

    assert [context.span_id for context in found] == [1, 2, 3]
