"""The library as a service installs it: built as a wheel, unpacked elsewhere, used by the code on its page."""

from __future__ import annotations

import asyncio
import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.cosmos.server import CosmosServer
from tests.support.pages import ROOT, blocks
from tests.support.watchdog import WATCHDOG_S
from tests.support.wheels import Wheel, build

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "writing-events.md"
README = ROOT / "packages" / "outbox" / "README.md"
_NAME = re.compile(r"# (\w+\.py)\n")

# Runs the page's `retrying.py` concurrently on one loan.
_CONCURRENTLY = """
import asyncio, os
from azure.cosmos.aio import CosmosClient
from loans import Loan
from outbox_relay.outbox import UnitOfWork
from retrying import extend_for_sure

async def main():
    async with CosmosClient.from_connection_string(os.environ["COSMOS"]) as client:
        container = client.get_database_client("outbox").get_container_client("data")
        loan = Loan("Frankenstein", "2026-03-00")
        async with UnitOfWork(container) as work:
            work.repository(Loan).create(loan)
            await work.commit()
        days = [f"2026-03-{day:02}" for day in range(1, 13)]
        outcomes = await asyncio.gather(
            *(extend_for_sure(container, loan.id, day) for day in days), return_exceptions=True
        )
        assert all(outcome is None or isinstance(outcome, ValueError) for outcome in outcomes), outcomes
        query = "SELECT c.data.dueOn FROM c WHERE c.data.action = 'LoanExtended'"
        due = [item["dueOn"] async for item in container.query_items(query, partition_key=loan.id)]
        assert due == [day for day, outcome in zip(days, outcomes) if outcome is None] == sorted(due), due
        assert (await container.read_item(loan.id, loan.id))["data"]["dueOn"] == days[-1]

asyncio.run(main())
"""

# Creates a loan with the page's `loans.py`, and extends it.
_TRYING = """
import asyncio
import os
from azure.cosmos.aio import CosmosClient
from loans import Loan, extend
from outbox_relay.outbox import UnitOfWork


async def main() -> None:
    async with CosmosClient.from_connection_string(os.environ["COSMOS"]) as client:
        container = client.get_database_client("outbox").get_container_client("data")
        loan = Loan("Frankenstein", "2026-03-01")
        async with UnitOfWork(container) as work:
            work.repository(Loan).create(loan)
            await work.commit()
        await extend(container, loan.id, "2026-03-15")
        stored = container.query_items("SELECT * FROM c ORDER BY c.sequence", partition_key=loan.id)
        async for document in stored:
            data = document["data"]
            print(document["sequence"], document["type"], data.get("action", ""), data["dueOn"])


asyncio.run(main())
"""
_STORED = """\
1 domainEvent BookLent 2026-03-01
2 loan  2026-03-15
2 domainEvent LoanExtended 2026-03-15
"""

_PRINT_IMPORTS = """
import sys
from outbox_relay import outbox
print(outbox.__file__)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"relay", "local", "samples", "tests"}))
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """The wheel, and a folder with the files of the page."""

    wheel: Wheel
    folder: Path

    async def run(self, text: str, **environment: str) -> str:
        """Run a program that can import the wheel and the folder, but nothing of this repository. Return its
        output.
        """
        process = await asyncio.create_subprocess_exec(
            *self.wheel.program(f"sys.path[1:1] = [{str(self.folder)!r}]\n{text}"),
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(WATCHDOG_S):
                out, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0, errors.decode()
        return out.decode()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build("packages/outbox", tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def installed(wheel: Wheel, tmp_path: Path) -> Installed:
    for name, text in {**page_files(PAGE), **page_files(README)}.items():
        (tmp_path / name).write_text(text)
    return Installed(wheel, tmp_path)


def page_files(page: Path) -> dict[str, str]:
    texts = [block.text for block in blocks(page) if block.language == "python"]
    return {match[1]: text for text in texts if (match := _NAME.match(text))}


def test_the_wheel_contains_only_the_typed_package_and_its_licence(wheel: Wheel) -> None:
    names = zipfile.ZipFile(wheel.file).namelist()

    assert "outbox_relay/outbox/py.typed" in names
    assert "outbox_relay/outbox/__init__.py" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"outbox_relay", "outbox_relay_outbox"}


async def test_the_wheel_needs_nothing_of_this_repository(installed: Installed) -> None:
    where, others = (await installed.run(_PRINT_IMPORTS)).splitlines()

    assert Path(where).is_relative_to(installed.wheel.site)
    assert others == "[]"


async def test_without_opentelemetry_there_is_no_trace(installed: Installed) -> None:
    shown = "from outbox_relay.outbox import traceparent\nprint(traceparent.current())"
    hidden = f"sys.modules['opentelemetry'] = None\n{shown}"

    assert await installed.run(hidden) == "None\n"


def test_the_example_service_has_fewer_than_thirty_lines() -> None:
    lines = [line for line in page_files(PAGE)["loans.py"].splitlines() if line.strip()]

    assert len(lines) < 30


async def test_the_example_stores_the_loan_and_its_events(installed: Installed, cosmos: CosmosServer) -> None:
    assert await installed.run(_TRYING, COSMOS=cosmos.connection_string) == _STORED


async def test_the_pages_retry_loop_loses_no_change(installed: Installed, cosmos: CosmosServer) -> None:
    await installed.run(_CONCURRENTLY, COSMOS=cosmos.connection_string)


# Runs the README's module of one kind of class, and prints what it stores without ids and times.
_EACH_KIND = """
import asyncio, json, os, sys
from azure.cosmos.aio import CosmosClient
from outbox_relay.outbox import UnitOfWork

orders = sys.modules["orders"] = __import__("orders" + KIND)
from paying import pay

async def main():
    order = orders.Order(item="tea")
    async with CosmosClient.from_connection_string(os.environ["COSMOS"]) as client:
        container = client.get_database_client("outbox").get_container_client("data")
        async with UnitOfWork(container) as work:
            work.repository(orders.Order).create(order)
            await work.commit()
        await pay(container, order.id, "12.50")
        found = container.query_items("SELECT * FROM c ORDER BY c.sequence", partition_key=order.id)
        async for document in found:
            other = ("id", "createdAt", "orderId")
            data = {name: value for name, value in document["data"].items() if name not in other}
            print(document["type"], document["sequence"], json.dumps(data))

asyncio.run(main())
"""


async def test_the_classes_of_each_kind_store_the_same_documents(
    installed: Installed, cosmos: CosmosServer
) -> None:
    kinds = ("", "_attrs", "_pydantic")
    printed = [
        await installed.run(f"KIND = {kind!r}\n{_EACH_KIND}", COSMOS=cosmos.connection_string) for kind in kinds
    ]

    assert printed[0] == printed[1] == printed[2]
    assert len(printed[0].splitlines()) == 3
    assert '"amount": "12.50"' in printed[0]


_FASTAPI = """
from fastapi.testclient import TestClient
from loans_api import app

with TestClient(app) as client:
    answer = client.post("/loans", json={"title": "Frankenstein", "due_on": "2026-03-01"})
    loan = answer.json()["id"]
    answers = [client.put(f"/loans/{loan}/due-on/{day}").status_code for day in ("2026-03-15", "2026-02-01")]
    print(answer.status_code, *answers, client.put("/loans/nothing/due-on/2026-03-01").status_code, loan)
"""


async def test_the_routes_of_the_page_commit_and_answer_with_the_errors_status(
    installed: Installed, cosmos: CosmosServer, container: ContainerProxy
) -> None:
    *statuses, loan = (await installed.run(_FASTAPI, COSMOS=cosmos.connection_string)).split()

    assert statuses == ["201", "204", "422", "404"]
    query = "SELECT c.data.action FROM c WHERE c.type = 'domainEvent' ORDER BY c.sequence"
    actions = [item["action"] async for item in container.query_items(query, partition_key=loan)]
    assert actions == ["BookLent", "LoanExtended"]
