"""The manners of every command line: typos, output that nobody reads, and commands that can be pasted."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

import local.__main__
import local.program
import local.sending.command
import outbox_relay.changefeed.cli
import outbox_relay.emulators.program
import outbox_relay.inbox.commands
import outbox_relay.operator.cli.main
from local.sending.command import _next
from local.sending.event import Commit
from local.stack import lock
from local.stack.command import _addresses
from local.stack.lock import NoStackError, settings_of_running
from local.watching.command import _next as _check
from outbox_relay import command_line
from outbox_relay.changefeed.errors import SetupError
from outbox_relay.emulators import testing
from outbox_relay.operator.cli.check import _line
from outbox_relay.operator.cli.terminal import ExitCode, Result, Terminal
from relay.backends.findings import Finding
from relay.core.documents import SourceDocument
from tests.support.pages import ROOT
from tests.support.watchdog import WATCHDOG_S


def emulators(words: Sequence[str]) -> int:
    return outbox_relay.emulators.program.main(outbox_relay.emulators.program.PROGRAM, words)


PROGRAMS: dict[str, Callable[[Sequence[str]], int]] = {
    "relay": outbox_relay.operator.cli.main.main,
    "local": local.__main__.main,
    "outbox_relay.changefeed": outbox_relay.changefeed.cli.main,
    "outbox_relay.inbox": outbox_relay.inbox.commands.main,
    "outbox_relay.emulators": emulators,
}


# Typos


def usage_error(program: str, words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The last line of what a program says to these words, which it refuses with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        PROGRAMS[program](shlex.split(words))
    assert ended.value.code == 2
    [error] = capsys.readouterr().err.splitlines()
    return str(error)


@pytest.mark.parametrize(
    ("program", "words", "meant"),
    [
        ("relay", "chekc", '"check"'),
        ("relay", "quarantine lsit", '"list"'),
        ("relay", "check --jsno", "--json"),
        ("relay", "check --alow-unkown --strct", "--allow-unknown"),
        ("relay", "replay --frm=1h --from 1h", "--from"),
        ("local", "sned k A", '"send"'),
        ("local", "stauts", '"status"'),
        ("local", "send k A --conut 3", "--count"),
        ("local", "up --detatch", "--detach"),
        ("outbox_relay.changefeed", "setupfeed", '"setup-feed"'),
        ("outbox_relay.changefeed", "keep t 30d --jsom", "--json"),
        ("outbox_relay.inbox", "relase k", '"release"'),
        ("outbox_relay.inbox", "discard k --whole-kye", "--whole-key"),
        ("outbox_relay.emulators", "cosmoss", '"cosmos"'),
        ("outbox_relay.emulators", "cosmos --prot 1", "--port"),
    ],
)
def test_a_typo_gets_the_word_that_was_meant(
    program: str, words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f". Did you mean {meant}?" in usage_error(program, words, capsys)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_error_names_the_program_as_it_was_started(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_error(program, "xyzzy", capsys).startswith(f"{command_line.python()} -m {program}: error: ")


def test_a_missing_argument_is_named_and_no_optional_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_error("local", "send k", capsys).endswith(' "send" parameter ACTION requires an argument.')
    assert usage_error("local", "send", capsys).endswith(' "send" parameter KEY requires an argument.')


@pytest.mark.parametrize(
    "words",
    ["k A x=1 y=2 --count 3", "k A --count 3 x=1 y=2", "k A x=1 --count 3 y=2", "--count 3 k A x=1 y=2"],
)
def test_fields_may_follow_an_option(words: str) -> None:
    call = local.program.PROGRAM.parse(["send", *shlex.split(words)])

    assert (call.positional, call.options["options"].count) == (("k", "A", "x=1", "y=2"), 3)


def test_a_typo_behind_fields_is_no_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_error("local", "send k A --count 3 x=1 --tpye a", capsys).endswith(". Did you mean --type?")
    assert usage_error("local", "status now", capsys).endswith("unexpected arguments: now")


@pytest.mark.parametrize("words", ["xyzzy", "check --yes", "check -x"])
def test_what_resembles_nothing_gets_no_suggestion(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean" not in usage_error("relay", words, capsys)


# `| head`


def with_closed_output(*words: str, **environment: str) -> tuple[int, str]:
    """Run Python with these arguments and nobody who reads its output; returns the exit code and the errors."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=WATCHDOG_S,
            check=False,
        )
    finally:
        os.close(writing)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("command", [*(f"{program} --help" for program in PROGRAMS), "relay check", "local down"])
def test_a_command_whose_output_nobody_reads_ends_without_a_traceback(command: str, tmp_path: Path) -> None:
    where = ["--env-file", str(tmp_path / "stack.env")] if command == "local down" else []

    ended = with_closed_output("-m", *command.split(), *where, PYTHONUNBUFFERED="", COSMOS="", SQL="")

    assert ended == (command_line.OUTPUT_CLOSED, "")


def test_nor_does_one_that_writes_each_line_at_once() -> None:
    ended = with_closed_output("-m", "relay", "check", PYTHONUNBUFFERED="1", COSMOS="", SQL="")

    assert ended == (command_line.OUTPUT_CLOSED, "")


def test_another_broken_connection_is_no_closed_output() -> None:
    def breaks() -> int:
        raise BrokenPipeError("of a server")

    with pytest.raises(BrokenPipeError, match="of a server"):
        command_line.run(breaks)


# Output that the terminal's code page lacks


def test_a_character_that_the_code_page_lacks_is_replaced_and_json_keeps_its_value(tmp_path: Path) -> None:
    (tmp_path / "relay.toml").write_text("[destinations.m]\ntopic = '鍵'\n[[routes]]\nto = ['m']\n", "utf-8")
    unreachable = "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5"
    environment = {
        **os.environ,
        "PYTHONUTF8": "0",
        "COSMOS": unreachable,
        "SERVICEBUS": "Endpoint=sb://127.0.0.1:1/;SharedAccessKeyName=k;SharedAccessKey=a2V5",
        "RELAY_FILE": str(tmp_path / "relay.toml"),
    }

    def run(encoding: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env={**environment, "PYTHONIOENCODING": encoding},
            capture_output=True,
            timeout=WATCHDOG_S,
            check=False,
        )

    lines, as_json = run("ascii", "relay", "check"), run("cp1252", "relay", "check", "--json")

    assert (lines.returncode, as_json.returncode) == (3, 3)
    assert b"Traceback" not in lines.stderr + as_json.stderr
    arrow = "everything else → topic '鍵'".encode("ascii", "backslashreplace")
    assert arrow in lines.stdout
    [rule] = [each["what"] for each in json.loads(as_json.stdout)["findings"] if "everything else" in each["what"]]
    assert rule == "everything else → topic '鍵'"


def test_what_the_code_page_lacks_is_replaced() -> None:
    script = (
        "from outbox_relay.command_line import run; run(lambda: print('\\u2192 \\u9375 \\N{PILE OF POO}') or 0)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        timeout=WATCHDOG_S,
        check=False,
    )

    assert (done.stdout, done.stderr) == (b"\\u2192 \\u9375 \\U0001f4a9\n", b"")


# Commands that can be pasted


@pytest.fixture
def calling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Make this process that of the Python at a path in a folder with a space, which is the current directory."""

    def call(program: str) -> None:
        folder = tmp_path / "a folder"
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "executable", str(folder / program))
        monkeypatch.setenv("PATH", os.environ["PATH"])

    return call


def test_this_python_is_called_as_from_the_current_directory(
    calling: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    calling(".venv/bin/python")
    assert command_line.python() == ".venv/bin/python"
    calling("my venv/bin/python")
    assert command_line.python() == "'my venv/bin/python'"
    calling(str(Path("/opt/some python/bin/python3")))
    assert command_line.python() == "'/opt/some python/bin/python3'"

    monkeypatch.setattr(sys, "executable", shutil.which("true"))
    monkeypatch.setattr(shutil, "which", lambda _: sys.executable)
    assert command_line.python() == "python"


def test_only_commands_are_completed(calling: Callable[[str], None]) -> None:
    calling(".venv/bin/python")

    text = (
        "Run `python -m relay check` (/usr/bin/python -m pip), python -m outbox_relay.changefeed status; "
        "a python -more"
    )

    assert command_line.as_typed(text) == (
        "Run `.venv/bin/python -m relay check` (/usr/bin/python -m pip), "
        ".venv/bin/python -m outbox_relay.changefeed status; a python -more"
    )


SCRIPTS = {
    "outbox-relay-changefeed": "outbox_relay.changefeed",
    "outbox-relay-inbox": "outbox_relay.inbox",
    "outbox-relay-emulators": "outbox_relay.emulators",
    "outbox-relay": "relay",
}


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("words", [["--help"], ["KEY", "--nothing"]])
def test_an_installed_command_names_itself(
    name: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [f"some env/bin/{name}"])

    with pytest.raises(SystemExit):
        PROGRAMS[SCRIPTS[name]](words)

    written = "".join(capsys.readouterr())
    assert "python -m" not in written
    if words == ["--help"]:
        assert written.startswith(f"Usage: {name} ")
        assert f"`{name} COMMAND --help`" in written
    else:
        assert written.startswith(f"{name}: error: ")


def test_an_installed_command_names_itself_in_advice(
    calling: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(url: str) -> NoReturn:
        raise SetupError(
            "not installed. Install it: python -m outbox_relay.changefeed install, and python -m relay check"
        )

    calling(".venv/bin/python")
    monkeypatch.setattr(outbox_relay.changefeed.cli, "connect", refused)
    for argv, command in (
        ("outbox-relay-changefeed.exe", "outbox-relay-changefeed"),
        ("changefeed/__main__.py", ".venv/bin/python -m outbox_relay.changefeed"),
    ):
        monkeypatch.setattr(sys, "argv", [argv])

        assert outbox_relay.changefeed.cli.main(["status", "--url", "postgresql://x"]) == 2

        advice = f"not installed. Install it: {command} install, and .venv/bin/python -m relay check"
        assert capsys.readouterr().err == f"error: {advice}\n"


ENV_FILE = Path("my stacks/it's.env")


def refusal(env_file: Path) -> str:
    with pytest.raises(NoStackError) as refused:
        settings_of_running(env_file)
    return str(refused.value)


def hints(tmp_path: Path) -> Iterator[str]:
    """Yield the texts of the stack's commands that name another command, for an env file with an unusual name."""
    yield lock.how_to_start(ENV_FILE)
    yield lock.already_runs(ENV_FILE)
    yield refusal(ENV_FILE)
    (tmp_path / "empty.env").write_text("A=1\n", encoding="utf-8")
    yield refusal(tmp_path / "empty.env")
    sent = local.sending.command.Options(env_file=ENV_FILE)
    yield _next(
        "k", "A", sent, Commit(SourceDocument({}, {}), 1), {"LOCAL_STACK_READY": "http://127.0.0.1:1/ready"}
    )
    yield _check(ENV_FILE)
    stack = SimpleNamespace(
        source="cosmos", settings={"COSMOS": "", "SERVICEBUS": ""}, hosts=[], blobs=None, namespaces={}
    )
    yield "\n".join(_addresses(stack, "", "", ENV_FILE))  # type: ignore[arg-type]


def pasted(text: str) -> list[list[str]]:
    """The words that a shell makes of each command in a text."""
    lines = re.findall(
        r"(?:^|[`\s])((?:\S*python|'[^']*python') -m (?:local|relay) [^`\n]*?)(?=`|$)", text, re.MULTILINE
    )
    lines += re.findall(r"source .*", text)
    return [shlex.split(line) for line in lines]


def test_the_commands_that_the_stack_prints_are_taken_as_they_are_meant(
    calling: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calling("my venv/bin/python")

    commands = [command for hint in hints(tmp_path) for command in pasted(hint)]

    assert [command[0] for command in commands].count("my venv/bin/python") == 7
    assert ["source", str(ENV_FILE)] in commands
    for python, *words in commands:
        if python == "source":
            continue
        assert words[0] == "-m"
        with pytest.raises(SystemExit) as ended:
            PROGRAMS[words[1]]([*words[2:], "--help"])
        assert ended.value.code == 0, words
        if "--env-file" in words:
            given = words[words.index("--env-file") + 1]
            assert given in (str(ENV_FILE), ".local/second.env", str(tmp_path / "empty.env"))
    capsys.readouterr()


def test_no_text_of_the_stack_takes_the_python_of_the_path() -> None:
    """Look at every text of the stack: a fresh clone has only `.venv/bin/python`."""
    naming = []
    for path in sorted((ROOT / "local").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        naming += [
            f"{path.relative_to(ROOT)}:{each.lineno}"
            for each in ast.walk(tree)
            if isinstance(each, ast.Constant)
            and id(each) not in docstrings
            and re.search(r"(?<!/)python -m [\w.]+ [a-z]", str(each.value))
        ]

    assert naming == []


# Colours


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("terminal", "environment", "shown"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {"TERM": "xterm"}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_are_for_terminals_unless_the_environment_decides(
    terminal: bool, environment: dict[str, str], shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert (command_line.console(Stream(terminal)).color_system is not None) is shown


def test_help_has_colours_and_commands_as_they_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(variable: str) -> str:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv(variable, "1")
        with redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit):
            outbox_relay.operator.cli.main.main(["quarantine", "--help"])
        return printed.getvalue()

    coloured, plain = shown("FORCE_COLOR"), shown("NO_COLOR")

    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain != coloured
    assert plain.startswith(f"Usage: {command_line.python()} -m relay quarantine COMMAND\n")


def test_findings_stand_out_from_what_is_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    found = [Finding.ok("fine"), Finding.error("broken", "Mend it."), Finding.warning("odd", "Look.")]

    def shown(stream: Stream) -> list[str]:
        Terminal(as_json=False, out=stream).show("check", Result(ExitCode.OK, {}, [_line(each) for each in found]))
        return stream.getvalue().splitlines()

    assert shown(Stream(False)) == ["ok       fine", "error    broken", "warning  odd"]
    assert shown(Stream(True)) == [
        "\x1b[2mok       fine\x1b[0m",
        "\x1b[1;31merror   \x1b[0m broken",
        "\x1b[1;33mwarning \x1b[0m odd",
    ]


def test_a_missing_extra_of_the_emulators_is_installed_with_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(testing, "servicebus", raising=False)
    monkeypatch.setitem(sys.modules, "outbox_relay.emulators.testing.servicebus", None)

    with pytest.raises(ImportError) as refused:
        _ = testing.ServiceBusNamespace

    assert str(refused.value).endswith(
        f". Run {shlex.quote(sys.executable)} -m pip install 'outbox-relay-emulators[servicebus]'"
    )
