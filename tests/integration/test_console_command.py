"""`python -m relay console` as a process: its address, its page without services, and its end."""

from __future__ import annotations

import asyncio
import base64
import html
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from outbox_relay.command_line import python
from outbox_relay.operator.cli.terminal import ExitCode
from tests.infra.project import ROOT
from tests.support.operators import relay_command
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

# Nothing listens on port 1.
NOWHERE = {
    "COSMOS": f"AccountEndpoint=http://127.0.0.1:1/;AccountKey={base64.b64encode(b'key').decode()};",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=x;SharedAccessKey=eA==;UseDevelopmentEmulator=true;",
    "SERVICEBUS_TOPIC": "parcel-events",
}


def environment() -> dict[str, str]:
    """The settings, and of the process's environment what Python needs."""
    return {
        name: os.environ[name] for name in ("PATH", "HOME", "SYSTEMROOT", "PYTHONPATH") if name in os.environ
    } | NOWHERE


@asynccontextmanager
async def console(*options: str, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "relay", "console", "--port", "0", *options),
        cwd=ROOT,
        env=environment() | settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def address_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(WATCHDOG_S):
        line = (await process.stdout.readline()).decode()
    found = re.fullmatch(r"The console is on (http://\S+/)\n", line)
    assert found is not None, line
    return found[1]


async def ended(process: asyncio.subprocess.Process) -> tuple[str, str]:
    async with asyncio.timeout(WATCHDOG_S):
        out, error = await process.communicate()
    return out.decode(), error.decode()


async def test_it_names_the_requirements_that_are_missing() -> None:
    start = (
        "import sys; sys.modules['jinja2'] = None; from outbox_relay.operator.cli.main import main; "
        "sys.exit(main(['console']))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", start),
        cwd=ROOT,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )

    out, error = await ended(process)

    assert (process.returncode, out) == (ExitCode.USAGE, "")
    [line] = error.splitlines()
    assert "'jinja2'" in line
    assert f"{python()} -m pip install Jinja2." in line


async def test_it_serves_a_page_without_its_services_until_it_is_stopped() -> None:
    async with console() as process, aiohttp.ClientSession() as session:
        address = await address_of(process)
        assert address.startswith("http://127.0.0.1:")
        async with session.get(address) as page:
            assert page.status == 200
            assert "parcel-events" in await page.text()
        stream = await session.get(f"{address}stream")
        async with asyncio.timeout(WATCHDOG_S):
            while "<li><strong>" not in (line := (await stream.content.readline()).decode()):
                assert line, "the stream has ended"

        process.send_signal(signal.SIGTERM)
        out, error = await ended(process)

    assert process.returncode == ExitCode.OK, error
    assert out == "Stopped.\n"


async def test_the_commands_of_its_page_name_its_env_file(tmp_path: Path) -> None:
    file = tmp_path / "relay.env"
    file.write_text("".join(f"{name}={value}\n" for name, value in NOWHERE.items()), encoding="utf-8")
    async with console("--env-file", str(file)) as process, aiohttp.ClientSession() as session:
        address = await address_of(process)
        async with session.get(f"{address}stream") as stream, asyncio.timeout(WATCHDOG_S):
            commands: list[str] = []
            while not commands:
                line = (await stream.content.readline()).decode()
                assert line, "the stream has ended"
                commands = re.findall(r'data-copy="([^"]+)"', line)

    assert [each for each in commands if f"--env-file {file}" not in html.unescape(each)] == []


async def test_on_an_address_that_others_reach_it_asks_for_who_is_signed_in() -> None:
    async with console("--host", "0.0.0.0") as process, aiohttp.ClientSession() as session:
        address = (await address_of(process)).replace("0.0.0.0", "127.0.0.1")
        async with session.get(address) as refused:
            assert refused.status == 401
        process.terminate()
        _, error = await ended(process)

    assert "It answers only requests that the platform has authenticated." in error


async def test_wrong_settings_are_named() -> None:
    wrong = NOWHERE | {"CONSOLE_TRACE_URL": "javascript:{trace_id}"}
    run = await relay_command(wrong, "console", "--port", "0", "--host", "192.0.2.1")
    assert run.code == ExitCode.USAGE
    assert "CONSOLE_TRACE_URL is 'javascript:{trace_id}'" in run.err
    async with console("--host", "192.0.2.1") as process:
        _, error = await ended(process)
        assert process.returncode == ExitCode.USAGE
        assert "of 192.0.2.1 cannot be listened on" in error
