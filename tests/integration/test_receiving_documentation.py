"""The consumer of the tutorial and that of the README, run as they are pasted, on the built wheel."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sqlite3
import zipfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from proton import Message

from outbox_relay import inbox
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.integration.conftest import ROOT
from tests.support.dead_letters import Topic
from tests.support.pages import blocks
from tests.support.watchdog import WATCHDOG_S
from tests.support.wheels import Wheel, build

pytestmark = pytest.mark.slow

_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
_ADDRESS = re.compile(r"ADDRESS = \(.*?\n\)\n", re.DOTALL)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build("packages/inbox", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def emulators(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build("packages/emulators", tmp_path_factory.mktemp("emulators"))


def lent(folder: Path) -> list[tuple[str, int]]:
    """Return the titles that the consumer of the page has counted."""
    with closing(sqlite3.connect(folder / "loans.sqlite")) as database:
        return database.execute("SELECT * FROM lent").fetchall()


def block(page: str) -> str:
    """The first program on a page."""
    text: str = _PYTHON.findall((ROOT / page).read_text(encoding="utf-8"))[0]
    return text


@asynccontextmanager
async def running(
    wheel: Wheel, folder: Path, text: str, *arguments: str, **environment: str
) -> AsyncIterator[Process]:
    """Run a program that can import the wheel, but nothing of this repository."""
    process = await asyncio.create_subprocess_exec(
        *wheel.program(text, *arguments),
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment},
        stdout=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line(process: Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), WATCHDOG_S)).decode().strip()


def event(identifier: str, key: str, action: str, **data: object) -> Message:
    body = json.dumps({"action": action, **data}).encode()
    return Message(body, inferred=True, id=identifier, group_id=key, subject=action, properties={"sequence": 1})


def test_the_wheel_contains_only_the_typed_package_and_its_licence(wheel: Wheel) -> None:
    names = zipfile.ZipFile(wheel.file).namelist()

    source = ROOT / "packages" / "inbox" / "src"
    modules = {path.relative_to(source).as_posix() for kind in ("py", "sql") for path in source.rglob(f"*.{kind}")}
    installed = {name for name in names if name.startswith("outbox_relay/")}
    assert installed == {*modules, "outbox_relay/inbox/py.typed"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_installed_command_is_the_module_and_names_itself(wheel: Wheel) -> None:
    done = wheel.script("outbox-relay-inbox", "--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: outbox-relay-inbox COMMAND\n")
    assert "`outbox-relay-inbox COMMAND --help`" in done.stdout


async def test_the_consumer_of_the_page_counts_and_stops(wheel: Wheel, tmp_path: Path, entities: Entities) -> None:
    async with ServiceBusServer(entities) as server:
        loans = [event(f"e{key}", key, "BookLent", title="Frankenstein") for key in ("k1", "k2")]
        topic = server.broker.namespace.destination("domain-events")
        topic.publish([parse(bytes(each.encode())) for each in [event("x", "k1", "LoanExtended"), *loans]])
        page = block("docs/tutorials/consume.md")
        async with running(wheel, tmp_path, page, SERVICEBUS=server.connection_string) as consumer:
            assert [await line(consumer) for _ in loans] == ["Frankenstein"] * 2
            consumer.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(consumer.wait(), WATCHDOG_S) == 0

    assert lent(tmp_path) == [("Frankenstein", 2)]


async def test_the_consumer_of_the_page_handles_dead_letters(
    wheel: Wheel, tmp_path: Path, entities: Entities
) -> None:
    async with ServiceBusServer(entities) as server:
        topic = Topic(server)
        topic.publish(event("e1", "k", "BookLent", title="Frankenstein"))
        topic.dead_letter("all", "k")
        page = block("docs/tutorials/consume.md")
        environment = {"SERVICEBUS": server.connection_string}
        async with running(wheel, tmp_path, page, "--dead-letters", **environment) as consumer:
            assert await line(consumer) == "Frankenstein"
            assert await line(consumer) == "DeadLetterReport(handled=1, remainder=[])"
            assert await asyncio.wait_for(consumer.wait(), WATCHDOG_S) == 0

        assert topic.dead("all") == []
    assert lent(tmp_path) == [("Frankenstein", 1)]


async def test_the_example_of_the_readme_receives(wheel: Wheel, emulators: Wheel, tmp_path: Path) -> None:
    """Start the broker as the README does, and run its program; only the ports differ."""
    readme = ROOT / "packages" / "inbox" / "README.md"
    [command] = [each.text for each in blocks(readme) if each.text.startswith("outbox-relay-emulators")]
    _, *words = shlex.split(command)
    script = "from outbox_relay.emulators.__main__ import main\nmain()"
    (folder := tmp_path / "broker").mkdir()
    async with running(emulators, folder, script, *words, "--port", "0", "--admin-port", "0") as servicebus:
        address = json.loads((await line(servicebus)).removeprefix("READY "))["connection_string"]
        text, replaced = _ADDRESS.subn(f"ADDRESS = {address!r}\n", block("packages/inbox/README.md"))
        assert replaced == 1
        async with running(wheel, tmp_path, text) as consumer:
            assert await line(consumer) == "placed order-2"
            [dead] = await dead_letters(address, "orders")

    assert (dead.message_id, dead.dead_letter_reason) == ("order-1", "invalid-order")


async def dead_letters(address: str, queue: str) -> list[ServiceBusReceivedMessage]:
    """Return what is in a queue's dead-letter queue, up to 100 messages."""
    async with (
        inbox.connect(address) as client,
        client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver,
    ):
        return await receiver.peek_messages(max_message_count=100)
