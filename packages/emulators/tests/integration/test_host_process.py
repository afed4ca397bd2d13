"""`python -m outbox_relay.emulators functions`, as its own process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.functions.edges import read_journal
from outbox_relay.emulators.functions.host import Host
from packages.emulators.tests.integration.apps import Recorder, eventually, write_app
from packages.emulators.tests.integration.conftest import HostFactory
from packages.emulators.tests.integration.processes import Process, Start, run
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

_SCRIPT = """\
import asyncio
import os
import pathlib

import azure.functions as func

app = func.FunctionApp()
out = pathlib.Path(os.environ["OUT"])


@app.cosmos_db_trigger(
    arg_name="documents", connection="COSMOS", database_name="outbox", container_name="data",
    lease_container_name="leases", feed_poll_delay=100, start_from_beginning=True,
)
@app.retry(strategy="fixed_delay", max_retry_count="-1", delay_interval="00:00:00")
async def relay(documents: func.DocumentList) -> None:
    write("", documents)
    if os.environ["WHO"] == "hangs":
        await asyncio.Event().wait()
    if os.environ["WHO"] == "waits":
        while not out.with_name("go").exists():
            await asyncio.sleep(0.01)
        write(" finished", documents)


def write(what, documents):
    with out.open("a") as file:
        file.write(f"{os.environ['WHO']}{what} {' '.join(document['id'] for document in documents)}\\n")
"""


@pytest.fixture
def start(tmp_path: Path, server: CosmosServer, started: Start) -> Start:
    """Starts hosts of one app, which writes what `who` received, as `started` does."""
    app = write_app(tmp_path / "app", script=_SCRIPT)

    async def start_one(who: str, *options: str) -> tuple[Process, dict[str, Any]]:
        env_file = tmp_path / f"{who}.env"
        env_file.write_text(f"COSMOS='{server.connection_string}'\nWHO={who}\nOUT='{tmp_path / 'out.txt'}'\n")
        return await started("--app", str(app), "--env-file", str(env_file), *options)

    return start_one


def _lines(out: Path) -> list[str]:
    return out.read_text().splitlines() if out.is_file() else []


async def _written(out: Path, line: str) -> None:
    await eventually(lambda: line in _lines(out))


@pytest.mark.usefixtures("leases")
async def test_a_host_announces_itself_serves_its_endpoints_and_ends_on_a_signal(
    tmp_path: Path, data: ContainerProxy, start: Start
) -> None:
    process, ready = await start("first", "--instance", "mine")
    assert (ready["part"], ready["instance"]) == ("functions", "mine")
    await data.create_item({"id": "1", "partitionKey": "a"})
    await _written(tmp_path / "out.txt", "first 1")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{ready['port']}") as http:
        async with http.get("/health") as health:
            assert health.status == 200
        async with http.get("/admin/status") as response:
            status = await response.json()
    assert status["instance"] == "mine"
    assert [function["name"] for function in status["functions"]] == ["relay"]
    assert status["functions"][0]["leases"] == ["0", "1", "2", "3"]
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(WATCHDOG_S):
        assert await process.wait() == 0


@pytest.mark.usefixtures("leases", "data")
async def test_a_host_ends_at_the_end_of_its_standard_input_on_request(start: Start) -> None:
    process, _ = await start("first", "--exit-with-stdin")
    assert process.stdin is not None
    process.stdin.close()
    async with asyncio.timeout(WATCHDOG_S):
        assert await process.wait() == 0


@pytest.fixture
def heir(tmp_path: Path, host_of: HostFactory) -> Host:
    """Another host of the same function, in this process; what it delivers, the recorder has."""
    return host_of(write_app(tmp_path / "heir"), instance="heir")


@pytest.mark.usefixtures("leases")
@pytest.mark.parametrize(
    ("point", "lines", "inherited"),
    [
        ("before-invocation", [], ["1"]),
        ("before-checkpoint", ["dies 1"], ["1"]),
        ("after-checkpoint", ["dies 1"], []),
    ],
)
async def test_another_host_takes_over_from_one_that_is_killed_at_a_chosen_point(
    tmp_path: Path,
    data: ContainerProxy,
    start: Start,
    heir: Host,
    recorder: Recorder,
    point: str,
    lines: list[str],
    inherited: list[str],
) -> None:
    dying, ready = await start("dies")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{ready['port']}") as http:
        async with http.post("/admin/crash", json={"at": "sometime"}) as refused:
            assert refused.status == 400
        async with http.post("/admin/crash", json={"at": point}) as armed:
            assert await armed.json() == {"at": point, "kill": "machine"}
    await data.create_item({"id": "1", "partitionKey": "a"})
    async with asyncio.timeout(WATCHDOG_S):
        assert await dying.wait() == -signal.SIGKILL
    await heir.start()
    await recorder.until(lambda: recorder.succeeded_ids() == inherited)
    await data.create_item({"id": "2", "partitionKey": "a"})
    await recorder.until(lambda: "2" in recorder.succeeded_ids())
    assert recorder.succeeded_ids() == [*inherited, "2"]
    assert _lines(tmp_path / "out.txt") == lines


async def _crash(ready: dict[str, Any], **body: str) -> None:
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{ready['port']}") as http,
        http.post("/admin/crash", json=body) as response,
    ):
        assert response.status == 200


async def _edges(ready: dict[str, Any]) -> dict[str, int]:
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{ready['port']}") as http,
        http.get("/admin/edges") as response,
    ):
        counts: dict[str, int] = (await response.json())["edges"]
        return counts


@pytest.mark.usefixtures("leases")
async def test_a_worker_outlives_its_host_and_finishes_its_invocations_beside_the_next_host(
    tmp_path: Path, data: ContainerProxy, start: Start, heir: Host, recorder: Recorder
) -> None:
    journal = tmp_path / "edges"
    killed, ready = await start("waits", "--edges-journal", str(journal))
    await data.create_item({"id": "1", "partitionKey": "a"})
    await _written(tmp_path / "out.txt", "waits 1")
    await _crash(ready, kill="host")
    async with asyncio.timeout(WATCHDOG_S):
        assert await killed.wait() == -signal.SIGKILL
    await heir.start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])
    assert _lines(tmp_path / "out.txt") == ["waits 1"]

    (tmp_path / "go").touch()

    await _written(tmp_path / "out.txt", "waits finished 1")
    await eventually(lambda: read_journal(journal)["worker-outlived-host"] == 1)
    assert read_journal(journal)["host-killed"] == 1


@pytest.mark.usefixtures("leases")
async def test_a_worker_outlives_its_host_for_a_limited_time(
    tmp_path: Path, data: ContainerProxy, start: Start
) -> None:
    journal = tmp_path / "edges"
    killed, ready = await start("hangs", "--edges-journal", str(journal), "--orphan-limit-s", "0.1")
    await data.create_item({"id": "1", "partitionKey": "a"})
    await _written(tmp_path / "out.txt", "hangs 1")

    await _crash(ready, kill="host")
    await killed.wait()

    await eventually(lambda: not _is_alive(killed.pid))
    assert (read_journal(journal)["host-killed"], read_journal(journal)["worker-outlived-host"]) == (1, 0)


def _is_alive(group: int) -> bool:
    """Return True if any process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("leases")
async def test_a_worker_that_is_killed_alone_costs_a_retry(
    tmp_path: Path, data: ContainerProxy, start: Start
) -> None:
    _, ready = await start("waits", "--edges", "off")
    await data.create_item({"id": "1", "partitionKey": "a"})
    await _written(tmp_path / "out.txt", "waits 1")
    await _crash(ready, kill="worker")
    await eventually(lambda: (tmp_path / "out.txt").read_text().splitlines().count("waits 1") == 2)
    (tmp_path / "go").touch()
    await _written(tmp_path / "out.txt", "waits finished 1")
    assert (await _edges(ready))["worker-killed"] == 1


@pytest.mark.usefixtures("leases")
async def test_a_crash_can_be_cancelled(tmp_path: Path, data: ContainerProxy, start: Start) -> None:
    _, ready = await start("lives")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{ready['port']}") as http:
        async with http.post("/admin/crash", json={"at": "before-invocation"}) as armed:
            assert armed.status == 200
        async with http.delete("/admin/crash") as disarmed:
            assert await disarmed.json() == {"at": None}
    await data.create_item({"id": "1", "partitionKey": "a"})
    await _written(tmp_path / "out.txt", "lives 1")


@pytest.mark.usefixtures("leases")
async def test_an_invocation_may_take_as_long_as_the_option_says(data: ContainerProxy, start: Start) -> None:
    _, ready = await start("hangs", "--function-timeout-ms", "100")
    await data.create_item({"id": "1", "partitionKey": "a"})

    async def timed_out() -> bool:
        url = f"http://127.0.0.1:{ready['port']}/admin/status"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            status = (await response.json())["functions"][0]
        return status["retries"] >= 2 and str(status["last_error"]).startswith("FunctionTimeout: ")

    await eventually(timed_out)


async def test_what_keeps_an_app_from_running_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    app = write_app(tmp_path, database_name="%NOT_SET_ANYWHERE%")
    process = await run("--app", str(app), COSMOS="unused", PYTHONPATH=str(tmp_path))
    (tmp_path / "recorder.py").write_text("")
    async with asyncio.timeout(WATCHDOG_S):
        out, err = await process.communicate()
    assert process.returncode == 1
    assert out == b""
    assert err.decode().splitlines()[-1] == (
        "functions: function relay: its trigger needs settings that are not set: "
        "NOT_SET_ANYWHERE (for databaseName)"
    )


BROKEN = "raise RuntimeError('no setting of that name')\n"
NOTHING_FOUND = ["0 functions loaded", "No job functions found.", "Job host started"]


@pytest.mark.parametrize(
    ("script", "options", "exported"),
    [
        (BROKEN, (), ["Worker failed to index functions", "RuntimeError: no setting of that name"]),
        (
            _SCRIPT,
            ("--worker-times-out",),
            ["Initializing worker process failed", "Skipping worker channel restart for errored worker runtime"],
        ),
    ],
    ids=["an app that cannot be indexed", "a worker that does not initialise in time"],
)
async def test_a_host_without_functions_stays_up_and_only_the_exported_log_says_why(
    tmp_path: Path, script: str, options: tuple[str, ...], exported: list[str]
) -> None:
    app = write_app(tmp_path / "app", script=script)
    process = await run(
        *("--app", str(app), "--exported-log", str(tmp_path / "exported"), *options), COSMOS="", OUT="", WHO=""
    )
    assert process.stdout is not None
    async with asyncio.timeout(WATCHDOG_S):
        ready = json.loads((await process.stdout.readline()).decode().removeprefix("READY "))
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{ready['port']}") as http,
        http.get("/admin/status") as response,
    ):
        assert (await response.json())["functions"] == []
    process.terminate()
    async with asyncio.timeout(WATCHDOG_S):
        _, console = await process.communicate()

    assert process.returncode == 0
    assert [text for text in NOTHING_FOUND if text not in console.decode()] == []
    assert [text for text in exported if text in console.decode()] == []
    log = _lines(tmp_path / "exported")
    assert [text for text in exported if not any(text in line for line in log)] == []


async def test_an_app_that_cannot_be_indexed_ends_the_host_with_the_reason_where_nothing_is_exported(
    tmp_path: Path,
) -> None:
    process = await run("--app", str(write_app(tmp_path / "app", script=BROKEN)))
    async with asyncio.timeout(WATCHDOG_S):
        _, console = await process.communicate()

    assert process.returncode == 1
    assert console.decode().splitlines()[-1].endswith("cannot be loaded: RuntimeError: no setting of that name")
