"""The operators' commands as they are installed: a wheel with the app's package, far from any clone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay import __version__
from tests.support.pages import ROOT, SHELL, blocks
from tests.support.watchdog import WATCHDOG_S
from tests.support.wheels import Wheel, build

pytestmark = pytest.mark.slow

README = ROOT / "packages" / "operator" / "README.md"
_MODULE = "import runpy\nsys.argv[0] = 'relay'\nrunpy.run_module('relay', run_name='__main__', alter_sys=True)"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build("packages/operator", tmp_path_factory.mktemp("wheel"))


async def run(installed: Wheel, folder: Path, *words: str, program: str = _MODULE) -> tuple[int | None, str, str]:
    """Run a command in a folder, with no settings but its options; returns exit code, output and errors."""
    process = await asyncio.create_subprocess_exec(
        *installed.program(program, *words),
        cwd=folder,
        env={},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), WATCHDOG_S)
    return process.returncode, out.decode(), errors.decode()


@pytest.fixture
def settings(
    tmp_path: Path, cosmos: CosmosServer, servicebus: ServiceBusServer, container: ContainerProxy
) -> Path:
    """A folder with the settings of an app."""
    lines = [
        f"COSMOS={cosmos.connection_string}",
        f"SERVICEBUS={servicebus.connection_string}",
        f"SERVICEBUS_ADMIN=http://127.0.0.1:{servicebus.admin_port}",
    ]
    (tmp_path / "relay.env").write_text("\n".join(lines) + "\n")
    return tmp_path


async def test_the_examples_of_the_page_run_where_it_is_installed(installed: Wheel, settings: Path) -> None:
    _, block = [each.text for each in blocks(README) if each.language == SHELL]
    ended = {
        line: await run(installed, settings, *line.removeprefix("python -m relay ").split())
        for line in block.splitlines()
    }

    # The topic of the tests remembers ids for a shorter time than `check` asks for.
    assert [code for code, _, _ in ended.values()] == [1, 0], ended
    _, checked, _ = await run(installed, settings, "check", "--env-file", "relay.env", "--json")
    [error] = [each for each in json.loads(checked)["findings"] if each["level"] == "error"]
    assert "detects duplicates within PT5M only" in error["what"]


async def test_the_commands_have_the_version_of_the_app(installed: Wheel, tmp_path: Path) -> None:
    assert await run(installed, tmp_path, "--version") == (0, f"outbox-relay {__version__}\n", "")


async def test_without_the_package_of_an_sql_feed_the_error_names_the_extra(
    installed: Wheel, tmp_path: Path, servicebus: ServiceBusServer
) -> None:
    lines = ["SQL=postgresql://user@127.0.0.1/database", f"SERVICEBUS={servicebus.connection_string}"]
    (tmp_path / "relay.env").write_text("\n".join(lines) + "\n")
    without = f"import sys\nsys.modules['outbox_relay.changefeed'] = None\n{_MODULE}"

    code, out, errors = await run(installed, tmp_path, "check", "--env-file", "relay.env", program=without)

    assert code == 2, out + errors
    assert "pip install 'outbox-relay-operator[postgresql]'" in out + errors


async def test_relay_toml_is_that_of_the_current_folder(installed: Wheel, settings: Path) -> None:
    (settings / "relay.toml").write_text('[outboxes.default]\ntypes = "no list"\n')

    code, out, errors = await run(installed, settings, "check", "--env-file", "relay.env")

    assert code == 2
    assert "relay.toml" in out + errors
    assert "types" in out + errors
