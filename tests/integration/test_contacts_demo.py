"""The demo's check of the directory must be able to fail."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from local.demo import command, subscriber
from samples.contacts.consumer.directory import Directory
from samples.contacts.consumer.handler import handle


def forgetful(body: bytes, directory: Directory, sequence: int | None) -> bool:
    """A handler that ignores changed email addresses."""
    return json.loads(body)["action"] == "ContactEmailUpdatedEvent" or handle(body, directory)


async def test_a_directory_that_differs_fails_the_demo_even_if_every_event_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subscriber, "handle", forgetful)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    options = ["--events", "60", "--contacts", "6", "--rate", "0"]
    files = ["--env-file", str(tmp_path / "demo.env"), "--logs", str(tmp_path / "logs")]

    code = await command.run(parser.parse_args([*options, *files]))

    summary = json.loads(capsys.readouterr().out)
    assert (summary["written"], summary["delivered"], summary["missing"]) == (60, 60, 0)
    assert summary["directory_matches"] is False
    assert code == 1
