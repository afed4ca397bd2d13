"""The first five minutes, as the README has them: up, wait, send, watch, the page, check, down; each a command."""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.servicebus.aio import ServiceBusClient
from dotenv import dotenv_values

from local.azurite import server as azurite
from local.stack.environment import TOPIC
from outbox_relay.command_line import OUTPUT_CLOSED, python
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LONG = str(WATCHDOG_S)


@dataclass
class Ran:
    code: int | None
    out: str
    err: str


class Shell:
    """Runs commands of the project on the stack of one env file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.env_file = folder / "stack.env"

    async def local(self, command: str, *words: str, code: int = 0, stdout: int = PIPE, typed: str = "") -> Ran:
        words = ("-m", "local", command, *words, "--env-file", str(self.env_file))
        return await self.python(*words, code=code, stdout=stdout, typed=typed)

    async def up(self, *words: str, code: int = 0) -> Ran:
        logs = ("--logs", str(self._folder / "logs"))
        return await self.local("up", "--detach", "--port", "0", *logs, *words, code=code)

    async def python(self, *words: str, code: int = 0, stdout: int = PIPE, typed: str = "") -> Ran:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *words),
            cwd=ROOT,
            stdin=PIPE,
            stdout=stdout,
            stderr=PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        out, err = await asyncio.wait_for(process.communicate(typed.encode()), WATCHDOG_S)
        ran = Ran(process.returncode, (out or b"").decode(), err.decode())
        assert ran.code == code, f"{words}: {ran.out}{ran.err}"
        return ran


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


async def page(url: str, path: str = "") -> str:
    async with aiohttp.ClientSession() as http, http.get(f"{url}{path}") as answer:
        assert answer.status == 200
        return await answer.text()


async def commands_of(url: str) -> list[str]:
    """Return the commands that the page offers to copy."""
    return [html.unescape(each) for each in re.findall(r'data-copy="([^"]+)"', await page(url))]


async def complete_one(connection_string: str, key: str) -> None:
    """Receive the key's first message from the subscription `all`, and complete it."""
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_subscription_receiver(TOPIC, "all", session_id=key) as receiver,
    ):
        [message] = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
        await receiver.complete_message(message)


@pytest.mark.parametrize("source", ["cosmos", "sql"])
async def test_an_event_of_your_own_is_followed_to_its_subscription(shell: Shell, source: str) -> None:
    await shell.local("down")
    started = await shell.up("--source", source)
    try:
        assert started.out.startswith("The local stack is ready.")
        settings = {name: value or "" for name, value in dotenv_values(shell.env_file).items()}
        url = settings["LOCAL_STACK_READY"].removesuffix("ready")
        assert f"Console             {url}" in started.out
        assert "runs already" in (await shell.up("--source", source, code=1)).err
        assert "is ready" in (await shell.local("wait")).out
        assert (await shell.local("status")).out == "".join(
            line for line in started.out.splitlines(keepends=True) if not line.startswith("  Logs:")
        )
        await assert_a_program_can_read_the_state(shell, settings["LOCAL_STACK_READY"])

        sent = await shell.local("send", "contact-1", "ContactRenamed", "name=Jane", "age:=30")
        identifier = sent.out.strip()
        assert "Committed ContactRenamed as number 1 of contact-1." in sent.err
        assert f"{url}key?key=contact-1" in sent.err
        watched = await shell.local("watch", "--count", "1", "--json", "--timeout", LONG)
        changes = [json.loads(line) for line in watched.out.splitlines()]
        assert [(each["what"], each["id"]) for each in changes] == [
            ("committed", identifier),
            ("accepted", identifier),
            ("at", identifier),
        ]
        assert changes[1]["latencyMs"] > 0
        # By now all of it has happened.
        assert (await shell.local("watch", "--count", "1", "--timeout", LONG)).err == "So far:\n"

        more = await send_two_more(shell)
        lines = (await shell.local("watch", "--count", "3", "--timeout", LONG)).out.splitlines()
        accepted = [line.split()[-1] for line in lines if " accepted" in line]
        assert accepted == [identifier, *more]
        await assert_a_key_is_found_behind_the_latest_events(shell, identifier)
        assert (
            "There is an event"
            in (await shell.local("send", "contact-1", "Again", "--id", identifier, code=1)).err
        )

        await assert_nothing_is_said_if_nobody_reads(shell)
        await assert_other_keys_and_data_are_taken(shell)
        await complete_one(settings["SERVICEBUS"], "contact-1")
        await assert_the_page_has_it(url, identifier)
        check = await shell.python("-m", "relay", "check", "--env-file", str(shell.env_file))
        summary = check.out.splitlines()[-1]
        assert summary.endswith(" ok, 0 warning, 0 unknown, 0 error"), check.out
        if source == "cosmos" and azurite.missing():  # with large events, there are two lines more
            assert summary in (ROOT / "docs" / "operators.md").read_text(encoding="utf-8").splitlines()
        await assert_each_command_of_the_page_has_its_env_file(shell, url)
    finally:
        stopped = await shell.local("down")
    assert stopped.out == "Stopped.\n"
    assert (await shell.local("down")).out == "No local stack runs.\n"
    assert f"Start one with `{python()} -m local up --detach" in (await shell.local("send", "k", "A", code=2)).err


async def assert_each_command_of_the_page_has_its_env_file(shell: Shell, url: str) -> None:
    """Check the commands for an event that is in quarantine, as its key is too long for a session id."""
    key = "k" * 200
    await shell.local("send", key, "TooLong")
    await shell.local("watch", "--key", key, "--count", "1", "--timeout", LONG)

    commands: list[str] = []
    async with asyncio.timeout(WATCHDOG_S):
        # The page counts the records of each reason less often than it reads events.
        while not any(" quarantine " in each for each in commands):
            await look_again()
            commands = await commands_of(url)

    assert [each for each in commands if f"--env-file {shell.env_file}" not in each] == []


async def assert_a_program_can_read_the_state(shell: Shell, url: str) -> None:
    waited, status = [json.loads((await shell.local(each, "--json")).out) for each in ("wait", "status")]

    assert waited == {"ready": True, "url": url}
    assert [status[name] for name in ("ready", "missing", "url")] == [True, None, url]
    assert f"Console             {url.removesuffix('ready')}" in status["addresses"]


async def send_two_more(shell: Shell) -> list[str]:
    """Send two events as a program does; returns their ids."""
    sent = await shell.local("send", "contact-1", "ContactRenamed", "name=Joan", "--count", "2", "--json")
    lines = [json.loads(line) for line in sent.out.splitlines()]

    taken = {"stream": "default", "ignored": None}
    assert lines == [{"id": line["id"], "number": number, **taken} for number, line in enumerate(lines, start=2)]
    assert (len(lines), sent.err) == (2, "")
    return [line["id"] for line in lines]


async def assert_a_key_is_found_behind_the_latest_events(shell: Shell, identifier: str) -> None:
    """The stream of all keys begins with the latest fifty."""
    await shell.local("send", "contact-2", "ContactRenamed", "--count", "51", "name=Jane")
    words = ("watch", "--key", "contact-1", "--json", "--timeout")

    found = [json.loads(line) for line in (await shell.local(*words, LONG, "--count", "3")).out.splitlines()]
    ended = await shell.local(*words, "1", "--count", "4", code=1)

    assert {each["partitionKey"] for each in found} == {"contact-1"}
    assert found[0]["id"] == identifier
    assert ended.err.startswith("After 1 s the relay is done with ")
    assert " of contact-1, not yet with 4. `" in ended.err


async def assert_nothing_is_said_if_nobody_reads(shell: Shell) -> None:
    """Check that a closed output stops a command without an error, as `watch | head` does, but right away."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        watched = await shell.local("watch", "--timeout", LONG, code=OUTPUT_CLOSED, stdout=writing)
    finally:
        os.close(writing)
    assert watched.err == "So far:\n"


async def assert_other_keys_and_data_are_taken(shell: Shell) -> None:
    """A key with what an id must not have, and data from a file and from standard input."""
    file = shell.env_file.with_name("data.json")
    file.write_text('{"name": "Jane",\n "age": 30}', encoding="utf-8")

    for number, words in enumerate((["name=Jane"], ["--data", f"@{file}"], ["age:=31", "--data", "@-"]), start=1):
        sent = await shell.local("send", "a/b?c#d\\e", "Named", *words, typed='{"name": "Joan"}')
        assert f"Committed Named as number {number} of a/b?c#d\\e." in sent.err

    file.write_text('{"name": "Jane",\n "age" 30}', encoding="utf-8")
    refused = await shell.local("send", "k", "Named", "--data", f"@{file}", code=2)
    assert refused.err == f"--data @{file}: not JSON: line 2, column 8: Expecting ':' delimiter\n"


async def assert_the_page_has_it(url: str, identifier: str) -> None:
    """The page has the key's timeline, in order, with what the subscription completed."""
    assert "Outbox Relay" in await page(url)
    timeline = await timeline_with_an_end(url)
    assert [each["event"]["sequence"] for each in timeline["events"]] == [1, 2, 3]
    assert {each["stage"] for each in timeline["events"]} == {"published"}
    first, second, _ = timeline["events"]
    assert first["id"] == identifier
    assert json.loads(first["data"])["age"] == 30
    assert [(each["subscription"], each["arrival"]) for each in first["deliveries"]] == [("all", "delivered")]
    assert [each["arrival"] for each in second["deliveries"]] == ["waiting"]


async def timeline_with_an_end(url: str) -> dict[str, Any]:
    """Return the key's timeline once it says that a message waits no longer; the page reads some state late."""
    async with asyncio.timeout(WATCHDOG_S):
        while True:
            timeline: dict[str, Any] = json.loads(await page(url, "timeline.json?key=contact-1"))
            arrivals = {each["arrival"] for event in timeline["events"] for each in event["deliveries"]}
            if arrivals - {"waiting"}:
                return timeline
            await look_again()


async def test_without_a_stack_every_command_names_the_remedy(shell: Shell) -> None:
    for command in (("wait", "--timeout", "0.1"), ("send", "k", "A"), ("watch",), ("status",)):
        assert f"{python()} -m local up --detach --env-file " in (await shell.local(*command, code=2)).err
