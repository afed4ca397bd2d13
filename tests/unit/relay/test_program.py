"""The words of a command line, told apart as values, options and texts, and the errors of usage."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outbox_relay.operator.cli.deadletter_selection import Selection
from outbox_relay.operator.cli.main import PROGRAM, main, options_of
from outbox_relay.operator.cli.options import OneOutbox
from outbox_relay.operator.cli.quarantine import Choice
from relay.core.events import Reason
from tests.support.pages import ROOT
from tests.support.watchdog import WATCHDOG_S


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line on standard error with which the words are refused."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    [line] = err.splitlines()
    return str(line)


@pytest.mark.parametrize(
    "words",
    [
        ["a", "b", "--reason", "set-aside", "--json"],
        ["--json", "a", "--reason=set-aside", "b"],
        ["a", "--reason", "no-route", "--json", "--reason", "set-aside", "--json", "--", "b"],
    ],
)
def test_options_and_texts_may_have_any_order_and_the_last_value_counts(words: list[str]) -> None:
    call = PROGRAM.parse(["quarantine", "release", *words])

    assert call.positional == ("a", "b")
    assert call.options == {"choice": Choice(reason=Reason.SET_ASIDE), "options": OneOutbox(json=True)}


def test_an_option_that_may_be_repeated_has_all_values_in_order() -> None:
    call = PROGRAM.parse(
        ["deadletters", "list", "--id", "1", "--env-file=a", "--id=-x", "--env-file", "b", "--id", "-5", "--id="]
    )

    assert call.options["selection"] == Selection(id=("1", "-x", "-5", ""))
    assert options_of(call).env_file == (Path("a"), Path("b"))


def test_a_text_that_is_decoded_becomes_no_option() -> None:
    call = PROGRAM.parse(["quarantine", "add", "percent:--yes", "percent:%2D-force"])

    assert (call.positional, call.options["yes"], call.options["force"]) == (("--yes", "--force"), False, False)


def test_behind_two_dashes_everything_is_a_text() -> None:
    assert PROGRAM.parse(["quarantine", "add", "--", "--yes", "-h"]).positional == ("--yes", "-h")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "needs a command: check, explain, smoke, quarantine, deadletters, replay, install, console, run"),
        (["quarantine"], "quarantine needs a command: list, show, release, discard, add"),
        (["explain", "a", "b", "c"], "unexpected arguments: b c"),
        (["replay", "--dry"], "Unknown option: --dry. Did you mean --dry-run?"),
        (["check", "--no-json"], "Unknown option: --no-json."),
        (["quarantine", "add", "k"], 'Command "quarantine add" parameter ID requires an argument.'),
        (["replay", "--partition-key", "-x"], "To give a value that begins with -, write --partition-key=VALUE."),
        (["quarantine", "show", "percent:%ff"], "ID: what follows percent: is no percent-encoded UTF-8"),
        (["deadletters", "show", "17"], "'17' is no dead letter: write it as all/17"),
        (["install", "--keep", "90m"], "'90m' is not a number of whole hours: write it as 30d, 12h or forever"),
        (
            ["--install-completion", "--shell", "bash", "--output", "/dev/null/x"],
            "give another file with --output",
        ),
        (["explain", "\x1b[2J", "b\n"], r"unexpected arguments: b\n"),
    ],
)
def test_a_usage_error_is_one_line_that_names_what_is_wrong(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refusal(words, capsys)


@pytest.mark.parametrize(("given", "stored"), [("P30D", "30d"), ("720h", "30d"), ("12h", "12h"), ("forever",) * 2])
def test_positions_are_kept_for_any_form_of_a_duration(given: str, stored: str) -> None:
    assert PROGRAM.parse(["install", "--keep", given]).options["keep"] == stored


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_a_shell_is_written(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "completion"

    with pytest.raises(SystemExit) as ended:
        main(["--install-completion", "--shell", shell, "--output", str(script)])

    assert ended.value.code == 0
    assert str(script) in capsys.readouterr().out
    assert "outbox-relay" in script.read_text(encoding="utf-8")
    if sys.platform != "win32" and shutil.which(shell):
        subprocess.run([shell, "-n", str(script)], timeout=WATCHDOG_S, check=True)


@pytest.mark.skipif(sys.platform == "win32", reason="bash on Windows has other paths")
def test_bash_completes_commands_options_and_values(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    with pytest.raises(SystemExit):
        main(["--install-completion", "--shell", "bash", "--output", str(script)])
    ask = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _outbox_relay; echo "${COMPREPLY[@]}"'

    def completed(*words: str) -> list[str]:
        command = ["bash", "-c", f"source {script}; {ask}", "bash", "outbox-relay", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_S, check=True)
        return done.stdout.split()

    assert completed("quar") == ["quarantine"]
    assert completed("quarantine", "re") == ["release"]
    assert completed("quarantine", "list", "--re") == ["--reason"]
    assert completed("quarantine", "list", "--reason", "message") == ["message-too-large", "message-refused"]


@pytest.mark.parametrize("module", ["relay", "outbox_relay.operator"])
def test_the_installed_command_and_the_module_are_one_program(module: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "quarantine", "lsit"],
        # The installed command is run in any folder.
        cwd=ROOT if module == "relay" else tmp_path,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )

    assert done.returncode == 2
    assert 'Did you mean "list"?' in done.stderr
