"""samples/README.md: each example is started as pasted, and an event goes through the relay to its outcome."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import pytest_asyncio
from azure.cosmos.aio import CosmosClient
from dotenv import dotenv_values

from local.database.server import POSTGRES
from outbox_relay import inbox
from packages.emulators.tests.languages import checks
from tests.support.clones import environment_of_a_newcomer, make_clone
from tests.support.pages import ROOT, section
from tests.support.subscriber import body, received
from tests.support.up import stack_up
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("samples")]

PAGE = ROOT / "samples/README.md"
HANDLED = r"^(handled|repeated) (\S+)$"


@dataclass(frozen=True, slots=True)
class Running:
    """A block that runs in the background.

    Attributes:
        shell: Its shell.
        printed: The lines that were read so far.
    """

    shell: Process
    printed: list[str]

    async def line(self, pattern: str) -> re.Match[str]:
        """Return the next line that has the pattern. AssertionError if the block ends before."""
        assert self.shell.stdout is not None
        async with asyncio.timeout(WATCHDOG_S):
            async for line in self.shell.stdout:
                self.printed.append(line.decode().rstrip())
                if found := re.search(pattern, self.printed[-1]):
                    return found
        raise AssertionError("\n".join(self.printed))

    async def terminate(self, program: str) -> None:
        """Send SIGTERM to the block's program of this name. AssertionError unless it ends with 0."""
        shell = psutil.Process(self.shell.pid)
        [found] = [each for each in (shell, *shell.children(recursive=True)) if each.name().startswith(program)]
        found.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(self.shell.wait(), WATCHDOG_S) == 0, "\n".join(self.printed)


@dataclass(frozen=True, slots=True)
class Clone:
    """A folder that looks like a fresh clone in which the stack runs, with a copy of the samples.

    Attributes:
        folder: Its path.
    """

    folder: Path

    def __post_init__(self) -> None:
        make_clone(self.folder)
        (self.folder / "samples").unlink()
        built = shutil.ignore_patterns("node_modules", "bin", "obj")
        shutil.copytree(ROOT / "samples", self.folder / "samples", ignore=built)
        # The test installs nothing: `npm` does nothing, and `psql` is that of the stack's PostgreSQL.
        (self.folder / "programs").mkdir()
        (self.folder / "programs/npm").symlink_to("/bin/true")
        (self.folder / "programs/psql").symlink_to(POSTGRES.parent / "psql")

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the stack."""
        return {name: value or "" for name, value in dotenv_values(self.folder / ".local/stack.env").items()}

    async def run(self, block: str) -> list[str]:
        """Run a block to its end; returns the lines that it printed. AssertionError if it failed."""
        async with self.running(block) as running:
            out, _ = await asyncio.wait_for(running.shell.communicate(), WATCHDOG_S)
        assert running.shell.returncode == 0, out.decode()
        return out.decode().splitlines()

    @asynccontextmanager
    async def running(self, block: str) -> AsyncIterator[Running]:
        """Start a block, and kill what is left of it at the end."""
        environment = environment_of_a_newcomer()
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", block),
            cwd=self.folder,
            env={
                **environment,
                "PATH": os.pathsep.join([str(self.folder / "programs"), environment["PATH"]]),
                "PYTHONUNBUFFERED": "1",
                # Its build leaves no process behind.
                "MSBUILDDISABLENODEREUSE": "1",
                "UseSharedCompilation": "false",
            },
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
        try:
            yield Running(shell, [])
        finally:
            if shell.returncode is None:
                os.killpg(shell.pid, signal.SIGKILL)
                await shell.communicate()

    async def counts(self) -> tuple[int, int]:
        """The messages of the subscription that wait and those that a receiver has."""
        address = self.settings["LOCAL_SERVICEBUS_ADMIN"]
        async with aiohttp.ClientSession() as http, http.get(f"{address}/admin/entities") as answer:
            entity = (await answer.json())["domain-events/Subscriptions/all"]
        return entity["active"], entity["locked"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clone(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Clone]:
    """A clone in which `make up` runs."""
    clone = Clone(tmp_path_factory.mktemp("samples") / "clone")
    async with stack_up(clone.folder / ".local", "--no-blobs"):
        yield clone


def blocks(heading: str) -> list[str]:
    """The shell blocks of the page under a heading."""
    return section(PAGE, heading, "sh")


async def test_the_writer_in_fastapi_stores_an_order_with_its_events(clone: Clone) -> None:
    serve, order = blocks("FastAPI on Cosmos DB")
    address = "http://127.0.0.1:8000"
    assert (serve.count("--port 8000"), order.count(address)) == (1, 2)

    async with clone.running(serve.replace("--port 8000", "--port 0")) as service:
        url = (await service.line(r"running on (http://[\d.:]+)"))[1]
        watched = await clone.run(order.replace(address, url))
        refused = [
            await status("PUT", f"{url}/orders/order-1", json={"item": "pen", "quantity": 1}),
            await status("PUT", f"{url}/orders/order-2", json={"item": "pen", "quantity": 0}),
            await status("POST", f"{url}/orders/order-1/cancellation"),
            await status("POST", f"{url}/orders/order-2/cancellation"),
        ]
    subscriber = await received(clone.settings["SERVICEBUS"], 2)
    documents = await stored(clone, "order-1")

    assert refused == [409, 422, 409, 404]
    assert (documents[0]["type"], documents[0]["data"]["cancelled"]) == ("order", True)
    events = {each["id"]: each["data"]["action"] for each in documents[1:]}
    assert list(events.values()) == ["OrderPlaced", "OrderCancelled"]
    assert subscriber.ids() == {"order-1": list(events)}
    for message in subscriber.messages["order-1"]:
        data = json.loads(body(message))
        assert (data["item"], data["quantity"], data["orderId"]) == ("pen", 3, "order-1")
        assert [line for line in watched if "at subscription all" in line and str(message.message_id) in line]


async def status(method: str, url: str, **options: Any) -> int:
    """The status that a request is answered with."""
    async with aiohttp.ClientSession() as http, http.request(method, url, **options) as answer:
        return answer.status


async def stored(clone: Clone, key: str) -> list[dict[str, Any]]:
    """The documents of a key: the order, then its events in their order."""
    async with CosmosClient.from_connection_string(clone.settings["COSMOS"]) as client:
        container = client.get_database_client("outbox").get_container_client("data")
        found = [item async for item in container.query_items("SELECT * FROM c", partition_key=key)]
    return sorted(found, key=lambda item: (item["type"] != "order", item["sequence"]))


async def test_the_writer_to_debeziums_table_is_relayed_to_a_consumer(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "clone")
    start, write = blocks("Debezium's table in PostgreSQL")
    [consume] = blocks("Python")
    async with stack_up(clone.folder / ".local", "--source", "sql", "--no-functions"):
        async with clone.running(start) as relay:
            await relay.line("relay worker .* has started")
            [event] = await clone.run(write)
            async with clone.running(consume) as consumer:
                assert (await consumer.line(HANDLED)).groups() == ("handled", event)
                await consumer.terminate("python")
            await relay.terminate("python")
        counts = await clone.counts()

    assert of_sqlite(clone.folder / ".local/ordered.sqlite") == {"pen": 3}
    assert counts == (0, 0)


# Each consumer has handled a message of this key before, as if its process had died before it completed it.
KEY = "order-3"


async def test_the_consumer_in_python_has_each_effect_once(clone: Clone) -> None:
    file = clone.folder / ".local/ordered.sqlite"
    file.unlink(missing_ok=True)
    before = inbox.Message(id="again-python", key=KEY, body=b"", topic="domain-events", subscription="all")
    with closing(inbox.SqliteConnection(str(file))) as database:
        async with inbox.SqliteStore(database).once(before) as arrival:
            assert arrival.first

    await consume_each_once(clone, "Python", "python", before.id)

    assert of_sqlite(file) == {"pen": 2}


async def test_the_consumer_in_node_has_each_effect_once(clone: Clone) -> None:
    checks.skip_without("@azure/service-bus")
    (clone.folder / "samples/node_consumer/node_modules").symlink_to(checks.FOLDER / "node_modules")
    file = clone.folder / ".local/ordered.jsonl"
    line = json.dumps({"session": KEY, "id": "again-node", "item": "pen", "quantity": 5})
    # The process died while it wrote the second line.
    file.write_text(f"\n{line}\n{line[:-9]}", encoding="utf-8")

    await consume_each_once(clone, "Node", "node", "again-node")

    lines = [json.loads(text) for text in file.read_text(encoding="utf-8").splitlines()[3:]]
    assert [(each["session"], each["item"], each["quantity"]) for each in lines] == [
        ("order-2", "pen", 3),
        ("order-2", "pen", -1),
    ]


async def test_the_consumer_in_dotnet_has_each_effect_once(clone: Clone) -> None:
    if shutil.which("dotnet") is None:
        pytest.skip("dotnet is not found: install the .NET SDK 10, https://dotnet.microsoft.com/download")
    file = clone.folder / ".local/ordered.sqlite"
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE handled (session TEXT, id TEXT, PRIMARY KEY (session, id))")
        database.execute("INSERT INTO handled VALUES (?, ?)", (KEY, "again-dotnet"))

    await consume_each_once(clone, ".NET", "dotnet_consumer", "again-dotnet")

    assert of_sqlite(file) == {"pen": 2}


async def consume_each_once(clone: Clone, language: str, program: str, before: str) -> None:
    """Run a consumer, and send it the events of the page, and one whose id `before` it has handled before."""
    [start] = blocks(language)
    [send] = blocks("Send it events")
    again = f".venv/bin/python -m local send {KEY} OrderPlaced item=pen quantity:=5 --id {before}"
    async with clone.running(start) as consumer:
        sent = await clone.run(send)
        await clone.run(again)
        lines = [(await consumer.line(HANDLED)).groups() for _ in range(3)]
        await consumer.terminate(program)

    identifiers = [line for line in sent if re.fullmatch(r"[0-9a-f-]{36}", line)]
    assert len(identifiers) == 2
    assert [line for line in lines if line[1] != before] == [("handled", each) for each in identifiers]
    assert ("repeated", before) in lines
    assert await clone.counts() == (0, 0)


def of_sqlite(file: Path) -> dict[str, int]:
    """The sums that a consumer has stored."""
    with closing(sqlite3.connect(file)) as database:
        return dict(database.execute("SELECT item, quantity FROM ordered").fetchall())
