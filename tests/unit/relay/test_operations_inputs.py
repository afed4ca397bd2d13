"""Operators' input: env files, durations, points in time, the command line itself."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from local.stack.environment import write_env_file
from outbox_relay.operator.cli.main import PROGRAM
from outbox_relay.operator.cli.options import parse_env_file, with_files
from relay.core.errors import UsageError
from relay.core.times import format_duration, format_time, parse_duration, parse_moment, parse_time
from tests.support.operators import relay_command
from tests.support.watchdog import WATCHDOG_S


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("NAME=value", {"NAME": "value"}),
        ("export NAME='a value'", {"NAME": "a value"}),
        ('NAME="a value" # and a remark that isn\'t one', {"NAME": "a value"}),
        ("NAME=a#b", {"NAME": "a#b"}),
        ("NAME='$HOME `x`'", {"NAME": "$HOME `x`"}),
        ("NAME=", {"NAME": ""}),
        ("NAME='it'\"'\"'s'", {"NAME": "it's"}),
        ("NAME=Endpoint=sb://h:1;SharedAccessKey=YQ==", {"NAME": "Endpoint=sb://h:1;SharedAccessKey=YQ=="}),
        ("  # it's a comment", {}),
        ("", {}),
        ("export", {}),
    ],
)
def test_an_env_file_line_means_what_it_means_to_a_shell(line: str, values: dict[str, str]) -> None:
    assert parse_env_file(line, "stack.env") == values


@pytest.mark.parametrize("line", ["NAME", "NAME=a value", "1NAME=x", "NAME='open", "export NAME VALUE"])
def test_a_line_that_is_no_assignment_is_reported_by_its_number_and_without_its_value(line: str) -> None:
    with pytest.raises(UsageError, match=r"^stack\.env, line 2: ") as raised:
        parse_env_file(f"FIRST=1\n{line}", "stack.env")
    assert "value" not in str(raised.value).replace("NAME=value", "").replace("a value with", "")


def test_a_file_outweighs_the_environment_and_a_later_file_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("A=file\nB=file\n")
    (tmp_path / "b").write_text("B=later\n")

    merged = with_files({"A": "env", "C": "env"}, [tmp_path / "a", tmp_path / "b"])

    assert merged == {"A": "file", "B": "later", "C": "env"}


def test_what_the_local_stack_writes_is_read_as_a_shell_reads_it(tmp_path: Path) -> None:
    values = {"COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a+/=;", "ODD": 'it\'s # $HOME \\ "x"'}
    write_env_file(tmp_path / "stack.env", values)

    shell = subprocess.run(
        ["sh", "-c", '. "$0"; printf "%s" "$ODD"', tmp_path / "stack.env"],
        capture_output=True,
        timeout=WATCHDOG_S,
        check=True,
    )

    assert with_files({}, [tmp_path / "stack.env"]) == values
    assert shell.stdout.decode() == values["ODD"]


def test_an_env_file_that_is_not_there_or_no_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("nowhere.env", "binary"):
        with pytest.raises(UsageError, match="cannot be read"):
            with_files({}, [tmp_path / name])


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("600", 600, "PT10M"),
        ("PT10M", 600, "PT10M"),
        ("pt1h30m", 5400, "PT1H30M"),
        ("P1DT12H", 129_600, "P1DT12H"),
        ("P7D", 604_800, "P7D"),
        ("P1W", 604_800, "P7D"),
        ("PT0.5S", 0.5, "PT0.5S"),
        ("0", 0, "PT0S"),
        ("10m", 600, "PT10M"),
        ("1d12h", 129_600, "P1DT12H"),
        ("1.5s", 1.5, "PT1.5S"),
    ],
)
def test_a_duration_is_iso_8601_or_seconds(text: str, seconds: float, canonical: str) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert format_duration(parse_duration(text)) == canonical


def test_what_stands_for_never_in_service_bus_is_a_duration_too() -> None:
    assert format_duration(parse_duration("P10675199DT2H48M5.4775807S")) == "P10675199DT2H48M5.477581S"


@pytest.mark.parametrize("text", ["", "P", "PT", "10X", "10m1h", "P1Y", "P1M", "-5", "PT10", "ten"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write it as PT10M"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1770634800", 1770634800),
        ("1770634800.25", 1770634800.25),
        ("2026-02-09T11:00:00Z", 1770634800),
        ("2026-02-09T11:00", 1770634800),
        ("2026-02-09T12:00+01:00", 1770634800),
        ("2026-02-09", 1770595200),
        ("0", 0),
        ("1970-01-01", 0),
    ],
)
def test_a_time_is_iso_8601_in_utc_or_seconds(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "yesterday", "1969-01-01", "-5", "99999999999999999", "9" * 30, "2026-02-30"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time: write it as"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1h", timedelta(hours=1)),
        ("1h30m", timedelta(minutes=90)),
        ("PT90M", timedelta(minutes=90)),
        ("1770634800", 1770634800),
        ("2026-02-09T11:00Z", 1770634800),
    ],
)
def test_a_moment_is_a_time_or_how_long_ago(text: str, moment: object) -> None:
    assert parse_moment(text) == moment


def test_a_time_is_reported_in_utc() -> None:
    assert format_time(1770634800) == "2026-02-09T11:00:00Z"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["quarantine"],
        ["quarantine", "list", "--limit", "0"],
        ["quarantine", "list", "--reason", "nonsense"],
        ["quarantine", "show"],
        ["replay", "--source", "nonsense"],
        ["replay", "--from", "yesterday", "--to", "2026-01-01"],
        ["check", "--min-window", "ten"],
        ["check", "--source", "sql"],
    ],
)
def test_wrong_usage_is_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        PROGRAM.parse(words)
    assert raised.value.code == 2
    assert " -m relay" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["check", "--min-window", "ten"],
            "Invalid value for --min-window: 'ten' is not a duration: write it as PT10M, 10m",
        ),
        (["smoke", "--timeout", "1x"], "Invalid value for --timeout: '1x' is not a duration: write it as"),
        (["smoke", "--source", "redis"], 'Invalid value "redis" for --source. Choose from: "cosmos", "sql".'),
        (
            ["replay", "--from", "yesterday"],
            "Invalid value for --from: 'yesterday' is not a time: write it as",
        ),
        (["replay", "--shard", "one"], "Invalid value for --shard: 'one' is not a whole number: write it as 3"),
        (["quarantine", "list", "--limit", "0"], "Invalid value for --limit: '0' is not a whole number above 0"),
    ],
)
def test_a_wrong_value_is_explained_with_an_example(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        PROGRAM.parse(words)
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["check"],
        ["quarantine"],
        *(["quarantine", name] for name in ("list", "show", "release", "discard", "add")),
        *([name] for name in ("replay", "smoke", "install", "run")),
    ],
)
def test_help_gives_examples_and_no_default_that_says_nothing(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        PROGRAM.parse([*words, "--help"])
    text = capsys.readouterr().out
    assert raised.value.code == 0
    assert "examples:" in text
    assert "exit codes:" in text
    assert "None" not in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check"], "Validate the settings and the resources they name."),
        (["quarantine", "show"], "Show one record with its whole document."),
    ],
)
def test_help_says_what_a_command_does(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        PROGRAM.parse([*words, "--help"])
    assert says in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "words", [["quarantine", "list"], ["replay", "--from", "1", "--to", "2"], ["quarantine", "release", "--all"]]
)
async def test_wrong_settings_are_exit_code_2_and_all_reported(words: list[str]) -> None:
    run = await relay_command({"RELAY_SENDERS": "none"}, *words, "--json")

    assert run.code == 2
    assert [name in run.err for name in ("COSMOS is not set", "SERVICEBUS is not set", "RELAY_SENDERS")] == [
        True
    ] * 3
    assert run.json["exitCode"] == 2
