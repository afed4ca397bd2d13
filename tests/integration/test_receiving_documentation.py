"""The consumer of the documentation and that of the README, run as they are pasted, on the built wheel."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import zipfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from proton import Message

from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.parsing import parse
from outbox_emulators.servicebus.server import ServiceBusServer
from tests.integration.conftest import ROOT
from tests.support.dead_letters import Topic
from tests.support.inbox import broker
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

_PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
_ADDRESS = re.compile(r"ADDRESS = \(.*?\n\)\n", re.DOTALL)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT / "packages" / "inbox", check=True, capture_output=True, timeout=WATCHDOG_S)
    (built,) = folder.glob("servicebus_inbox-*.whl")
    return built


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
    wheel: Path, folder: Path, text: str, *arguments: str, **environment: str
) -> AsyncIterator[Process]:
    """Run a program that can import the wheel, but nothing of this repository."""
    zipfile.ZipFile(wheel).extractall(folder / "site")
    program = f"import sys\nsys.path[:0] = [{str(folder / 'site')!r}]\n{text}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", program, *arguments),
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


def test_the_wheel_contains_only_the_typed_package_and_its_licence(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    source = ROOT / "packages" / "inbox" / "src"
    modules = {path.relative_to(source).as_posix() for kind in ("py", "sql") for path in source.rglob(f"*.{kind}")}
    assert {name for name in names if name.startswith("inbox/")} == {*modules, "inbox/py.typed"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


async def test_the_consumer_of_the_page_counts_and_stops(wheel: Path, tmp_path: Path, entities: Entities) -> None:
    async with ServiceBusServer(entities) as server:
        loans = [event(f"e{key}", key, "BookLent", title="Frankenstein") for key in ("k1", "k2")]
        topic = server.broker.namespace.destination("domain-events")
        topic.publish([parse(bytes(each.encode())) for each in [event("x", "k1", "LoanExtended"), *loans]])
        page = block("docs/receiving-events.md")
        async with running(wheel, tmp_path, page, SERVICEBUS=server.connection_string) as consumer:
            assert [await line(consumer) for _ in loans] == ["Frankenstein"] * 2
            consumer.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(consumer.wait(), WATCHDOG_S) == 0

    assert lent(tmp_path) == [("Frankenstein", 2)]


async def test_the_consumer_of_the_page_handles_dead_letters(
    wheel: Path, tmp_path: Path, entities: Entities
) -> None:
    async with ServiceBusServer(entities) as server:
        topic = Topic(server)
        topic.publish(event("e1", "k", "BookLent", title="Frankenstein"))
        topic.dead_letter("all", "k")
        page = block("docs/receiving-events.md")
        environment = {"SERVICEBUS": server.connection_string}
        async with running(wheel, tmp_path, page, "--dead-letters", **environment) as consumer:
            assert await line(consumer) == "Frankenstein"
            assert await line(consumer) == "DeadLetterReport(handled=1, remainder=[])"
            assert await asyncio.wait_for(consumer.wait(), WATCHDOG_S) == 0

        assert topic.dead("all") == []
    assert lent(tmp_path) == [("Frankenstein", 1)]


async def test_the_example_of_the_readme_receives(wheel: Path, tmp_path: Path) -> None:
    async with broker(tmp_path) as servicebus:
        servicebus.send(event("bad", "k", "Placed"), event("good", "k", "Placed", total=42))
        text, replaced = _ADDRESS.subn(
            f"ADDRESS = {servicebus.connection_string!r}\n", block("packages/inbox/README.md")
        )
        assert replaced == 1
        async with running(wheel, tmp_path, text) as consumer:
            assert await line(consumer) == "placed good"
            (dead,) = await servicebus.dead_letters()

    assert dead.dead_letter_reason == "invalid-order"
