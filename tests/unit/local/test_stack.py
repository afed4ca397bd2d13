"""The local stack: its processes, its ports, its containers, its one env file, and its rates."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from azure.cosmos.aio import CosmosClient

from local.program import PROGRAM
from local.stack import parts, ports, provision
from local.stack.environment import CONTAINERS, DATABASE, Source, container_argument
from local.stack.live import table
from local.stack.lock import AlreadyRunsError, Lock, Running, running
from local.stack.parts import Part, PartFailed, output_of
from local.stack.rates import Rates, Reading
from local.stack.up import Options
from outbox_relay.emulators.cosmos.server import CosmosServer
from tests.support.watchdog import WATCHDOG_S

SERVES = """
import sys
print("starting", flush=True)
print('READY {"port": 7}', flush=True)
for line in sys.stdin:
    print("got " + line, end="", flush=True)
"""
IGNORES_THE_END_OF_INPUT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print('READY {"child": %d}' % child.pid, flush=True)
time.sleep(60)
"""
FAILS = """
import sys
sys.exit("the port is in use")
"""
NEVER_READY = """
import time
time.sleep(60)
"""


async def start(folder: Path, source: str) -> Part:
    (folder / "made_up_part.py").write_text(source)
    path = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    return await Part.start("some part", "made_up_part", log=folder / "logs" / "part.log", environment=path)


async def test_a_part_is_started_when_it_is_ready_and_stops_when_its_input_closes(tmp_path: Path) -> None:
    part = await start(tmp_path, SERVES)
    part.send_line("a line")

    assert part.details == {"port": 7}
    assert await part.output.readline() == b"got a line\n"
    assert not part.ended

    await part.stop()

    assert part.ended
    assert await part.wait() == 0


async def test_a_part_that_does_not_stop_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "STOP_TIMEOUT_S", 0.2)
    part = await start(tmp_path, IGNORES_THE_END_OF_INPUT)
    child = psutil.Process(part.details["child"])

    await part.stop()

    assert part.ended
    _, alive = psutil.wait_procs([child], timeout=WATCHDOG_S)
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


async def test_a_part_that_ends_before_it_is_ready_is_an_error_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(PartFailed, match=r"(?s)some part ended with exit code 1 .*the port is in use"):
        await start(tmp_path, FAILS)


async def test_a_part_that_is_not_ready_in_time_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "START_TIMEOUT_S", 0.2)

    with pytest.raises(PartFailed, match="some part was not ready within"):
        await start(tmp_path, NEVER_READY)

    assert not [each for each in psutil.Process().children() if "made_up_part" in " ".join(each.cmdline())]


async def test_the_output_of_a_command_is_returned_and_its_failure_raised() -> None:
    assert await output_of("-c", "print(6 * 7)", within_s=30) == "42\n"

    with pytest.raises(RuntimeError, match="division by zero"):
        await output_of("-c", "1 / 0", within_s=30)


# Which ports a stack takes, and what it says of those that are in use


def chosen(*words: str) -> dict[str, int]:
    options: Options = PROGRAM.parse(["up", *words]).options["options"]
    return {port.option: number for port, number in options.chosen_ports().items()}


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_each_port_has_its_default() -> None:
    assert chosen("--cosmos-port", "9000") == {
        "--port": 7070,
        "--cosmos-port": 9000,
        "--postgresql-port": 5432,
        "--servicebus-port": 5672,
        "--servicebus-admin-port": 5300,
        "--functions-port": 7071,
        "--blobs-port": 10000,
    }


def test_port_0_takes_free_ports_for_all_that_are_not_given() -> None:
    numbers = chosen("--port", "0", "--servicebus-port", "5672")

    assert numbers.pop("--servicebus-port") == 5672
    assert set(numbers.values()) == {0}


def test_a_port_in_use_is_named_with_its_option(taken: int) -> None:
    numbers = dict.fromkeys(ports.PORTS, 0) | {ports.COSMOS: taken, ports.POSTGRESQL: taken}

    with pytest.raises(ports.PortsInUseError) as caught:
        ports.check(numbers, Source.COSMOS, hosts=True)

    first, last = str(caught.value).splitlines()
    assert first == (
        f"Port {taken} (Cosmos DB) is in use. Choose another with --cosmos-port, or stop what uses it."
    )
    assert last == "--port 0 takes free ports for everything."


def test_only_the_ports_that_the_stack_needs_have_to_be_free(taken: int) -> None:
    numbers = dict.fromkeys(ports.PORTS, 0) | {ports.FUNCTIONS: taken, ports.POSTGRESQL: taken}

    ports.check(numbers, Source.COSMOS, hosts=False)


# The containers that `python -m local provision` and a stack create


async def test_the_lock_of_a_dead_host_expires_in_the_lease_container() -> None:
    async with CosmosServer() as server:
        assert await provision.run(connection_string=server.connection_string) == 0

        async with CosmosClient.from_connection_string(server.connection_string) as client:
            database = client.get_database_client(DATABASE)
            ttls = {
                name: (await database.get_container_client(name).read()).get("defaultTtl")
                for name, *_ in CONTAINERS
            }

    assert ttls == {"data": -1, "leases": -1, "quarantine": None}
    assert [container_argument(*spec) for spec in CONTAINERS][1] == "outbox/leases:/id:-1"


# Only one stack at a time has an env file


def test_a_second_stack_is_told_where_the_first_one_runs(tmp_path: Path) -> None:
    env_file = tmp_path / "deep" / "stack.env"
    assert running(env_file) is None

    with Lock(env_file) as lock:
        assert running(env_file) == Running(os.getpid())
        lock.ready("http://127.0.0.1:7070/ready", ["ready"])
        assert running(env_file) == Running(os.getpid(), "http://127.0.0.1:7070/ready", ("ready",))
        with (
            pytest.raises(AlreadyRunsError, match=f"process {os.getpid()}, http://127.0.0.1:7070/ready"),
            Lock(env_file),
        ):
            pass

    assert running(env_file) is None
    with Lock(env_file):
        assert running(env_file) is not None


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    env_file = tmp_path / "stack.env"
    script = (
        "import pathlib, sys\nfrom local.stack.lock import Lock\n"
        f"with Lock(pathlib.Path({str(env_file)!r})):\n    print('locked', flush=True)\n    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        assert running(env_file) == Running(process.pid)
        process.kill()

    assert running(env_file) is None


# Rates from readings of a stack's counters


CALM = Reading(at=100.0, documents=50, relayed=40, quarantined=1, dead_lettered=2, failures=3, lag_s=0.0)


def test_rates_are_differences_per_second() -> None:
    later = replace(CALM, at=104.0, documents=90, relayed=60, quarantined=3, failures=4, lag_s=7.6)

    rates = Rates.between(CALM, later)

    assert (rates.documents_s, rates.relayed_s) == (10.0, 5.0)
    assert (rates.lag_s, rates.quarantined, rates.dead_lettered, rates.failures) == (7.6, 3, 2, 1)
    assert not rates.idle
    assert rates.line() == (
        "10.0 documents/s of any type, 5.0 events/s relayed, 8 s behind, 3 quarantined, 2 dead-lettered, "
        "1 failed attempts"
    )


def test_failures_that_are_not_counted_are_not_shown_as_none() -> None:
    before, after = replace(CALM, failures=None), replace(CALM, at=101.0, failures=None)

    rates = Rates.between(before, after)

    assert rates.idle
    assert rates.line().endswith("2 dead-lettered, - failed attempts")


def test_a_restarted_counter_gives_no_negative_rate() -> None:
    restarted = replace(CALM, at=101.0, documents=0, relayed=0, failures=0)

    rates = Rates.between(CALM, restarted)

    assert (rates.documents_s, rates.relayed_s, rates.failures) == (0, 0, 0)


@pytest.mark.parametrize(
    ("after", "idle"),
    [
        (replace(CALM, at=110.0), True),
        (replace(CALM, at=110.0, lag_s=None), True),
        (replace(CALM, at=110.0, lag_s=2.0), False),
        (replace(CALM, at=110.0, dead_lettered=3), False),
    ],
)
def test_a_stack_is_idle_when_no_count_changed_and_the_feed_is_drained(after: Reading, idle: bool) -> None:
    assert Rates.between(CALM, after).idle is idle


def test_a_feed_that_was_never_read_has_no_lag() -> None:
    assert ", - s behind," in Rates.between(CALM, replace(CALM, at=101.0, lag_s=None)).line()


def test_the_second_reading_must_be_later() -> None:
    with pytest.raises(ValueError, match="later"):
        Rates.between(CALM, CALM)


def test_the_table_shows_each_number_under_its_name() -> None:
    rates = Rates.between(CALM, replace(CALM, at=101.0, relayed=45))

    shown = table(rates)

    assert [str(column.header) for column in shown.columns] == [name for name, _ in rates.columns()]
    assert [next(iter(column.cells)) for column in shown.columns] == ["0.0", "5.0", "0", "1", "2", "0"]
