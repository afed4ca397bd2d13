"""The demo's check of the directory must be able to fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local.program import PROGRAM
from outbox_relay import inbox
from samples.contacts.consumer import kept
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.receiving import handle_message
from tests.support import programs

pytestmark = pytest.mark.slow


def forgetful(message: inbox.Message, directory: Directory) -> bool:
    """A handler that ignores changed email addresses."""
    return message.action == "ContactEmailUpdatedEvent" or handle_message(message, directory)


async def test_a_directory_that_differs_fails_the_demo_even_if_every_event_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kept, "handle_message", forgetful)
    options = ["--api", "--json", "--events", "60", "--keys", "6", "--rate", "0"]
    files = ["--env-file", str(tmp_path / "demo.env"), "--logs", str(tmp_path / "logs")]

    code = await programs.run(PROGRAM, "demo", *options, *files)

    summary = json.loads(capsys.readouterr().out)
    assert (summary["written"], summary["delivered"], summary["missing"]) == (60, 60, 0)
    assert summary["directory_matches"] is False
    assert code == 1
