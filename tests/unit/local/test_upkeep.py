"""Parts that end are started again, and given up when they end again and again; with real processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from local.stack.lock import Lock, last_end, none_runs
from local.stack.parts import Part, PartFailed, describe_end, exit_code_of
from local.stack.upkeep import MOST_EARLY, Ended, Upkeep
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it has no signals to end a process with")

# It says that it has started, on a connection that closes when it ends; then it does what the test orders.
PART = """
import os, socket, sys, threading
if "--deaf" not in sys.argv:
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
link = socket.create_connection(("127.0.0.1", int(os.environ["CONTROL"])))
link.sendall((" ".join(sys.argv[1:]) + "\\n").encode())
orders = link.makefile()
for order in orders:
    word, _, rest = order.strip().partition(" ")
    if word == "ready":
        print("READY " + rest, flush=True)
    elif word == "say":
        print(rest, flush=True)
    elif word == "exit":
        print("the last words", file=sys.stderr, flush=True)
        os._exit(int(rest))
    elif word == "kill":
        os.kill(os.getpid(), int(rest))
"""


@dataclass
class Started:
    """One process of the part: its command line, and the connection to it."""

    words: list[str]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def order(self, *orders: str) -> None:
        self.writer.write("".join(f"{each}\n" for each in orders).encode())

    async def end(self) -> None:
        """Wait until the process has ended."""
        async with asyncio.timeout(WATCHDOG_S):
            await self.reader.read()


@dataclass
class Trial:
    """A part whose processes do what the test orders, and its upkeep."""

    folder: Path
    port: int
    starts: asyncio.Queue[Started]
    pauses: list[float] = field(default_factory=list)
    told: asyncio.Queue[Ended] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        # However slow the machine is, every end is an early one.
        self.upkeep = Upkeep(early_s=float("inf"), pause=self._pause, wall=lambda: 0.0)
        self.upkeep.listen(self.told.put_nowait)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def start(self, *words: str, details: str = "{}", loses: str | None = None) -> Part:
        """Start the part, whose first process announces these details."""
        (self.folder / "made_up_part.py").write_text(PART)
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        starting = asyncio.create_task(
            Part.start(
                *("it", "made_up_part", *words),
                log=self.folder / "it.log",
                environment={"PYTHONPATH": path, "CONTROL": str(self.port)},
                loses=loses,
            )
        )
        self.first = await self.next()
        self.first.order(f"ready {details}")
        return await starting

    async def next(self) -> Started:
        """The next process, once it has started."""
        async with asyncio.timeout(WATCHDOG_S):
            return await self.starts.get()

    async def heard(self) -> str:
        """The next sentence about an end."""
        async with asyncio.timeout(WATCHDOG_S):
            return (await self.told.get()).text


@pytest.fixture
async def trial(tmp_path: Path) -> AsyncIterator[Trial]:
    starts: asyncio.Queue[Started] = asyncio.Queue()
    open_writers = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.append(writer)
        starts.put_nowait(Started((await reader.readline()).decode().split(), reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield Trial(tmp_path, server.sockets[0].getsockname()[1], starts)
        for writer in open_writers:
            writer.close()


@asynccontextmanager
async def kept(trial: Trial, part: Part) -> AsyncIterator[asyncio.Task[None]]:
    """The task that keeps the part running; in the end the part is stopped, as a stack does it."""
    task = asyncio.create_task(trial.upkeep.keep(part))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await part.stop()


@pytest.mark.parametrize(
    ("order", "how"),
    [
        ("exit 3", "ended with exit code 3"),
        ("exit 0", "ended with exit code 0"),
        (f"kill {signal.SIGKILL:d}", "was killed by SIGKILL"),
        (f"kill {signal.SIGSEGV:d}", "was killed by SIGSEGV"),
        ("exit 137", "ended with exit code 137, as its program was killed by SIGKILL"),
    ],
)
async def test_a_part_that_ends_is_started_again_on_its_ports(trial: Trial, order: str, how: str) -> None:
    words = ("--port", "0", "--admin-port", "0", "--data", "file")
    part = await trial.start(*words, details='{"port": 7, "admin_port": 8}')
    async with kept(trial, part):
        trial.first.order(order)
        again = await trial.next()
        again.order('ready {"port": 7, "admin_port": 8}')

        assert await trial.heard() == f"it {how} at 00:00:00 UTC; it is being started again"
        assert await trial.heard() == f"it {how} at 00:00:00 UTC; it was started again at 00:00:00 UTC"
        assert again.words == ["--port", "7", "--admin-port", "8", "--data", "file"]
        assert not part.ended


async def test_a_sentence_has_how_often_a_part_has_ended_and_what_it_has_lost(trial: Trial) -> None:
    part = await trial.start(loses="its messages")
    async with kept(trial, part):
        process = trial.first
        for _ in range(2):
            process.order("exit 1")
            process = await trial.next()
            process.order("ready {}")
            await trial.heard()
            said = await trial.heard()

    assert said == (
        "it ended with exit code 1 at 00:00:00 UTC (2 times so far); it was started again at 00:00:00 UTC; "
        "its messages are lost"
    )
    assert trial.upkeep.sentences == [said]


@pytest.mark.parametrize("first", ["ready {}", ""])
async def test_a_part_that_fails_at_once_is_given_up_with_what_it_printed_last(trial: Trial, first: str) -> None:
    """In the second case it is not even ready when it is started again."""
    part = await trial.start()
    async with kept(trial, part) as keeping:
        process = trial.first
        for _ in range(MOST_EARLY - 1):
            process.order("exit 3")
            process = await trial.next()
            process.order(*([first] if first else []))
        process.order("exit 3")

        with pytest.raises(PartFailed) as caught:
            await asyncio.wait_for(keeping, WATCHDOG_S)

    assert re.match(
        r"it ended with exit code 3.*the end of .*it\.log:\n.*the last words", str(caught.value), re.DOTALL
    )
    assert "It is given up: it ended 5 times in a row" in str(caught.value)
    assert trial.pauses == [0, 1, 3, 7]
    assert trial.starts.empty()
    assert part.ended


async def test_a_part_that_was_ready_for_long_is_started_again_for_ever(trial: Trial) -> None:
    trial.upkeep = Upkeep(early_s=0, pause=trial._pause)
    part = await trial.start()
    async with kept(trial, part):
        process = trial.first
        for _ in range(MOST_EARLY + 1):
            process.order("exit 3")
            process = await trial.next()
            process.order("ready {}")

    assert trial.pauses == [0] * (MOST_EARLY + 1)


async def test_a_stop_while_a_part_is_started_again_leaves_no_process(trial: Trial) -> None:
    # It does not heed the end of its standard input.
    part = await trial.start("--deaf")
    async with kept(trial, part) as keeping:
        trial.first.order("exit 3")
        again = await trial.next()

        keeping.cancel()

        await again.end()
        await asyncio.gather(keeping, return_exceptions=True)
        assert part.ended


async def test_what_a_killed_part_has_left_running_is_gone_before_it_is_started_again(trial: Trial) -> None:
    part = await Part.start("it", "tests.support.outlived", log=trial.folder / "it.log")
    async with kept(trial, part):
        output = part.output
        part.kill_alone()
        await trial.heard()
        await trial.heard()

        # Its child had the pipe open.
        assert output.at_eof()
        assert not part.ended


async def test_a_program_that_a_part_starts_again_itself_is_named(trial: Trial) -> None:
    part = await trial.start()
    async with kept(trial, part):
        trial.first.order("say something", 'say AGAIN {"program": "the worker", "exit_code": -9}')

        said = await trial.heard()

    assert said == ("the worker of it was killed by SIGKILL at 00:00:00 UTC; it was started again at 00:00:00 UTC")


@pytest.mark.parametrize(
    ("code", "said"),
    [(0, "ended with exit code 0"), (-15, "was killed by SIGTERM"), (200, "ended with exit code 200")],
)
def test_an_end_is_described_by_its_exit_code_or_signal(code: int, said: str) -> None:
    assert describe_end(code) == said


@pytest.mark.parametrize(("code", "passed_on"), [(0, 0), (3, 3), (-9, 137)])
def test_the_end_of_a_program_is_passed_on_as_a_shell_does(code: int, passed_on: int) -> None:
    assert exit_code_of(code) == passed_on


# What is said of a stack that has ended


def test_a_stack_that_was_stopped_says_nothing_and_one_that_failed_why(tmp_path: Path) -> None:
    env_file = tmp_path / "stack.env"
    assert last_end(env_file) is None
    with Lock(env_file):
        assert last_end(env_file) is None
    assert last_end(env_file) is None

    with suppress(PartFailed), Lock(env_file):
        raise PartFailed("cosmos ended with exit code 1")

    assert last_end(env_file) == "The last one ended by itself: cosmos ended with exit code 1"
    assert none_runs(env_file).startswith("No local stack runs. The last one ended by itself: cosmos ended")
    with Lock(env_file):
        assert last_end(env_file) is None


async def test_a_stack_that_was_killed_is_known_by_its_process(tmp_path: Path) -> None:
    env_file = tmp_path / "stack.env"
    script = (
        f"import os, pathlib\nfrom local.stack.lock import Lock\nwith Lock(pathlib.Path({str(env_file)!r})):\n    "
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{script}os.kill(os.getpid(), 9)"), cwd=Path(__file__).parents[3]
    )
    await asyncio.wait_for(process.wait(), WATCHDOG_S)

    assert last_end(env_file) == (
        f"The last one was killed: process {process.pid} ended without a word, and its parts with it."
    )
