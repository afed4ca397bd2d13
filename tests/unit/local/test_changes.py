"""The lines of `local watch`: whatever an event says, a terminal shows it and obeys none of it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from local.watching.changes import Change, staleness

TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("\x00\n\x1b\x85\x9b\u202e\ud800")))


@given(TEXTS)
def test_no_text_of_an_event_is_obeyed_by_a_terminal(text: str) -> None:
    change = Change(text, text, text, 1, "dead-lettered", 1.0, subscription="all", reason=text)
    known = {"stale": True, "at": None, "problems": [{"what": "x", "text": text}]}

    assert change.as_line().isprintable()
    assert staleness(known).isprintable()
    assert change.as_json().isprintable()
    found = json.loads(change.as_json())
    assert [found[name] for name in ("id", "partitionKey", "action", "reason")] == [text] * 4
