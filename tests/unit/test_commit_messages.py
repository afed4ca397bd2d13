"""The hook refuses a commit whose message breaks the rules, and CI finds it in a pull request."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.support.pages import ROOT
from tests.support.watchdog import WATCHDOG_S

CHECK = ".ci/commit_message.py"
BODY = "\n\nBroker sequence numbers restart when a subscription is recreated.\n"


def hook() -> str:
    """Return the command of the hook in .pre-commit-config.yaml, with this interpreter."""
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    [entry] = [each["entry"] for each in repository["hooks"] if each.get("stages") == ["commit-msg"]]
    python, script = entry.split()
    assert (python, script) == (".venv/bin/python", CHECK)
    return shlex.join([sys.executable, str(ROOT / script)])


class Clone:
    """A git repository whose commits go through the hook."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self._environment = kept | {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "x"),
            **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "x@example.org"),
        }
        self.run("git", "init", "-q", "-b", "main")
        file = folder / ".git/hooks/commit-msg"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/sh\nexec {hook()} "$1"\n', encoding="utf-8")
        file.chmod(0o755)

    def run(self, *command: str, editor: str = "false") -> subprocess.CompletedProcess[str]:
        environment = self._environment | {"GIT_EDITOR": editor}
        return subprocess.run(
            command,
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=WATCHDOG_S,
            check=False,
        )

    def commit(self, message: str, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run("git", "commit", "-q", "--allow-empty", "-m", message, *options)

    def subjects(self) -> list[str]:
        return self.run("git", "log", "--format=%s").stdout.splitlines()


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.mark.parametrize(
    "message",
    [
        f"inbox: identify parked messages by topic, subscription and id{BODY}",
        f"servicebus emulator: need a token{BODY}",
        f"docs/site: bring the index up to date{BODY}",
        f"a: {'b' * 69}{BODY}",
        f"relay: add a link\n\nhttps://example.org/{'x' * 90}\n",
        f"relay: add a line of eighty characters\n\n{'x' * 80}\n",
        'Revert "relay: add a link"\n\nThis reverts commit 0123456789.',
        "fixup! relay: add a link",
    ],
)
def test_a_message_that_keeps_the_rules_is_accepted(clone: Clone, message: str) -> None:
    done = clone.commit(message)

    assert (done.returncode, done.stderr) == (0, "")
    assert clone.subjects() == [message.split("\n")[0]]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (f"Identify parked messages{BODY}", "is not 'area: imperative verb"),
        (f"inbox: Identify parked messages{BODY}", "is not 'area: imperative verb"),
        (f"inbox identify parked messages{BODY}", "is not 'area: imperative verb"),
        (f"docs/site, ci: bring the index up to date{BODY}", "is not 'area: imperative verb"),
        (f"inbox: identified parked messages{BODY}", "'identified' is not an imperative"),
        (f"inbox: identifies parked messages{BODY}", "'identifies' is not an imperative"),
        (f"inbox: identifying parked messages{BODY}", "'identifying' is not an imperative"),
        (f"inbox: identify parked messages.{BODY}", "ends with a full stop"),
        (f"a: {'b' * 70}{BODY}", "has 73 characters"),
        ("inbox: identify parked messages", "there is no body"),
        ("inbox: identify parked messages\nby topic", "is not blank"),
        (f"inbox: identify parked messages\n\n{'x ' * 41}y", "has 83 characters"),
    ],
)
def test_a_message_that_breaks_a_rule_is_refused(clone: Clone, message: str, says: str) -> None:
    refused = clone.commit(message)

    assert refused.returncode == 1
    assert says in refused.stderr
    assert clone.subjects() == []


def test_comments_and_the_difference_below_them_are_no_part_of_a_message(clone: Clone, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text(f"relay: add a file{BODY}", encoding="utf-8")
    (tmp_path / "long").write_text("word " * 40, encoding="utf-8")
    clone.run("git", "add", "long")

    # The editor saves the message in front of what git has written into the file.
    editor = f'sh -c \'cat "$0" >> {message} && cp {message} "$0"\''
    done = clone.run("git", "commit", "-q", "--verbose", editor=editor)

    assert (done.returncode, done.stderr) == (0, "")
    assert "word word" in message.read_text(encoding="utf-8")
    assert clone.subjects() == ["relay: add a file"]


def test_the_commits_of_a_range_are_checked_without_its_merges(clone: Clone) -> None:
    for message in (
        f"relay: add a{BODY}",
        f"relay: add b{BODY}",
        "added c",
        f"relay: add d{BODY}",
        "fixup! added c",
    ):
        clone.commit(message, "--no-verify")
    clone.run("git", "checkout", "-q", "-b", "side", "HEAD~4")
    clone.commit(f"relay: add e{BODY}")
    clone.run("git", "merge", "-q", "--no-verify", "-m", "anything", "main")

    def check(commits: str) -> tuple[int, str]:
        done = clone.run(sys.executable, str(ROOT / CHECK), "--range", commits)
        return done.returncode, done.stderr

    assert check("main~4..main~3") == (0, "")
    code, printed = check("main~4..HEAD")
    named = [clone.run("git", "rev-parse", "--short=10", each).stdout.strip() for each in ("main~2", "main")]
    assert code == 1
    assert [line.split()[0] for line in printed.splitlines()] == [named[0], named[0], named[1]]
    assert "squash it" in printed


def test_a_range_that_does_not_exist_is_an_error(clone: Clone) -> None:
    assert clone.run(sys.executable, str(ROOT / CHECK), "--range", "main..nowhere").returncode == 1
