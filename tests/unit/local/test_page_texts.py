"""The sentences of the actions on the stack's page."""

from __future__ import annotations

import re

import pytest

from local.console.actions import TEMPLATES
from outbox_relay.operator.console.formatting import Commands
from outbox_relay.operator.console.pages import ConsoleSettings, Pages
from outbox_relay.operator.console.ports import Extension


def sentence(template: str, **values: object) -> str:
    """Return the text of a fragment of the page, without its markup."""
    pages = Pages("t", ConsoleSettings(), Commands(), [Extension("local", TEMPLATES)])
    return " ".join(re.sub("<[^>]+>", "", pages.fragment(f"local/{template}", **values)).split())


@pytest.mark.parametrize("name", ["all", "names"])
def test_a_subscription_without_messages_is_named_as_one(name: str) -> None:
    said = sentence("peeked.html", subscription_name=name, messages=[])

    assert said == f"No message waits at the subscription {name}. Close"


def test_what_was_sent_ends_with_its_key() -> None:
    said = sentence("said.html", done=True, text="Committed Renamed as number 1 of", key="contact-1")

    assert said == "Committed Renamed as number 1 of contact-1."


def test_what_a_command_prints_keeps_its_lines() -> None:
    said = sentence("said.html", done=False, text="released 0\n  r1  is not in quarantine", key=None)

    assert said == "released 0 r1 is not in quarantine"
