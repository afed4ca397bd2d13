"""The command line: which command runs, what it logs, and with which code it ends."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outbox_relay.command_line import OUTPUT_CLOSED
from outbox_relay.operator.cli.main import main
from outbox_relay.operator.cli.terminal import EXIT_CODES, ExitCode
from relay.core.errors import RulesError, ServiceError, StoreError, UsageError
from tests.support.operators import relay_command

ENVIRONMENT = {
    "COSMOS": "AccountEndpoint=https://127.0.0.1:1/;AccountKey=YQ==;",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=YQ==;UseDevelopmentEmulator=true",
}


@contextmanager
def fresh_logging() -> Iterator[None]:
    """Logging without pytest's handlers, as in a new process."""
    root = logging.getLogger()
    before = root.handlers[:]
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = before


def in_process(*words: str) -> int:
    with fresh_logging():
        return main(words)


def test_the_exit_codes_are_those_that_scripts_rely_on() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "FINDINGS": 1,
        "USAGE": 2,
        "SERVICE": 3,
        "INTERRUPTED": 130,
    }
    assert [line.split()[0] for line in EXIT_CODES.splitlines()[1:]] == [
        str(int(code)) for code in (*ExitCode, OUTPUT_CLOSED)
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["smoke", "--timeout", "0"], "--timeout: give a duration above zero"),
        (["quarantine", "release"], "choose records: give ids"),
        (["replay", "--from", "2", "--to", "1"], "is empty: --from must be before --to"),
    ],
)
async def test_each_command_does_its_own_and_tells_under_its_name_what_makes_no_sense(
    words: list[str], says: str
) -> None:
    run = await relay_command(ENVIRONMENT, *words, "--json")

    assert (run.code, run.json["exitCode"]) == (2, 2)
    assert run.json["command"] == " ".join(word for word in words[:2] if word.isalpha())
    assert says in run.json["error"]
    assert says in run.err


async def test_check_tells_wrong_settings_as_findings() -> None:
    run = await relay_command({}, "check", "--json")

    assert (run.code, run.json["command"]) == (2, "check")
    assert run.json["counts"]["error"] == len(run.json["findings"]) > 0


@pytest.mark.parametrize(("error", "code"), [(ServiceError, 3), (StoreError, 3), (RulesError, 3), (UsageError, 2)])
async def test_what_stops_a_command_decides_on_its_exit_code(
    error: type[Exception], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error("said")

    monkeypatch.setattr("outbox_relay.operator.cli.quarantine._opened", fail)

    run = await relay_command(ENVIRONMENT, "quarantine", "list", "--json")

    assert (run.code, run.json["exitCode"], run.json["error"], run.err) == (code, code, "said", "error: said\n")


def test_the_process_s_environment_and_env_files_are_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "one").write_text("RELAY_SENDERS=none\nRELAY_MAX_ITEMS=none\n")
    (tmp_path / "two").write_text("RELAY_MAX_ITEMS=5\n")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)

    code = in_process("check", "--env-file", str(tmp_path / "one"), "--env-file", str(tmp_path / "two"))

    shown = capsys.readouterr().out
    assert (code, "RELAY_SENDERS" in shown, "RELAY_MAX_ITEMS" in shown) == (2, True, False)
    assert "COSMOS is not set" not in shown


def test_an_interruption_is_reported_and_has_a_code_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("outbox_relay.operator.cli.check.findings", interrupted)

    code = in_process("check", "--json")

    printed = capsys.readouterr()
    assert (code, printed.err) == (130, "Interrupted.\n")
    assert json.loads(printed.out) == {"command": "check", "exitCode": 130, "error": "interrupted"}


@pytest.mark.parametrize(
    ("options", "logged"),
    [([], ["relay WARNING"]), (["--verbose"], ["azure ERROR", "relay WARNING", "relay INFO"])],
)
def test_the_log_has_what_went_wrong_and_all_that_the_sdks_do_only_on_request(
    options: list[str], logged: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def log(*_: object) -> None:
        logging.getLogger("azure").error("said")
        logging.getLogger("relay").warning("said")
        logging.getLogger("relay").info("said")
        raise UsageError("no more")

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("outbox_relay.operator.cli.check.findings", log)

    assert in_process("check", *options) == 2

    lines = [line for line in capsys.readouterr().err.splitlines() if line.endswith(": said")]
    assert [f"{line.split()[3].rstrip(':')} {line.split()[2]}" for line in lines] == logged
