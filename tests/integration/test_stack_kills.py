"""`python -m local up` while each of its processes is killed: what was committed arrives once and in order."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from dotenv import dotenv_values

from local.azurite.server import missing
from local.sending.event import Event
from local.sending.outboxes import open_writer
from local.sending.routed import Outbox, streams_of
from tests.support.subscriber import Subscriber
from tests.support.up import ROOT, stack_up
from tests.support.watchdog import WATCHDOG_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.weekly,
    pytest.mark.skipif(sys.platform == "win32", reason="it has no SIGKILL"),
]

KEYS = ("a", "b", "c")
EVENTS = 5


@dataclass
class Running:
    """A stack, what was committed to it, and what its subscriber has received."""

    process: asyncio.subprocess.Process
    folder: Path
    settings: dict[str, str]
    committed: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.subscriber = Subscriber(self.settings["SERVICEBUS"])

    async def commit(self) -> None:
        async with open_writer(Outbox.of(streams_of(self.settings))) as writer:
            for number in range(EVENTS):
                for key in KEYS:
                    event = Event(key, f"Number{number}", {})
                    await writer.commit(event)
                    self.committed[key].append(event.id)

    async def receive(self) -> None:
        """Receive everything that was committed, and compare."""
        await self.subscriber.receive(sum(map(len, self.committed.values())))
        assert self.subscriber.ids() == self.committed

    async def until_said(self, *texts: str) -> str:
        """Wait for a line of `up` with these texts."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WATCHDOG_S):
            async for line in self.process.stdout:
                if all(each in line.decode() for each in texts):
                    return line.decode().strip()
        raise AssertionError(f"up ended without {texts}")

    def kill(self, *words: str) -> None:
        """Kill the process of the stack whose command line has these words, one after the other."""
        [victim] = [
            each for each in psutil.Process(self.process.pid).children(recursive=True) if _runs(each, words)
        ]
        victim.kill()

    async def status(self) -> tuple[int | None, str]:
        """The exit code of `status`, and everything that it prints."""
        command = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "local", "status", "--env-file", str(self.folder / "stack.env")),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await command.communicate()
        return command.returncode, output.decode()


def _runs(process: psutil.Process, words: tuple[str, ...]) -> bool:
    try:
        line = process.cmdline()
    except psutil.NoSuchProcess:
        return False
    return any(tuple(line[at : at + len(words)]) == words for at in range(len(line)))


COSMOS = [
    (("outbox_relay.emulators", "cosmos"), "cosmos was killed by SIGKILL", "it was started again"),
    (
        ("outbox_relay.emulators", "functions"),
        "functions-1 was killed by SIGKILL",
        "functions-2 was started in its place",
    ),
    (("outbox_relay.emulators.functions.worker",), "the worker of functions-2 was killed", "it was started again"),
]
SQL = [
    (("local", "postgresql"), "postgresql was killed by SIGKILL", "it was started again"),
    (("-m", "local.stack.worker"), "worker-1 was killed by SIGKILL", "worker-2 was started in its place"),
    (("relay", "run"), "worker-2 ended with exit code 137", "worker-3 was started in its place"),
]


@pytest.mark.parametrize(("source", "victims"), [("cosmos", COSMOS), ("sql", SQL)])
async def test_the_stack_survives_the_death_of_each_of_its_processes(
    tmp_path: Path, source: str, victims: list[tuple[tuple[str, ...], str, str]]
) -> None:
    async with stack_up(tmp_path, "--source", source) as (process, _):
        settings = {name: value or "" for name, value in dotenv_values(tmp_path / "stack.env").items()}
        stack = Running(process, tmp_path, settings)

        for words, ended, restored in victims:
            await stack.commit()
            stack.kill(*words)
            await stack.until_said(ended, restored)
            await stack.commit()
            await stack.receive()
        # PostgreSQL itself: only its own process has its folder as an argument.
        if source == "sql":
            await stack.commit()
            stack.kill("-D", f"{(await _data_of(process.pid)).resolve()}")
            await stack.until_said("the server of postgresql was killed by SIGKILL", "it was started again")
            await stack.commit()
            await stack.receive()
        if not missing():
            stack.kill("local", "azurite")
            await stack.until_said("azurite was killed", "the bodies of large events are lost")
        # Of the broker nothing is left, so everything is received before.
        stack.kill("outbox_relay.emulators", "servicebus")
        said = await stack.until_said("servicebus was killed by SIGKILL", "was started again")
        assert said.endswith("its messages, and its memory of duplicates, are lost.")
        await stack.commit()
        await stack.receive()
        await stack.subscriber.receive_rest()
        assert stack.subscriber.ids() == stack.committed

        code, shown = await stack.status()
        assert (code, shown.splitlines()[0]) == (0, "The local stack is ready.")
        assert all(ended in shown for _, ended, _ in victims[:1])
        assert "its messages, and its memory of duplicates, are lost" in shown

        process.kill()
        await process.wait()
        code, shown = await stack.status()
        assert (code, "The last one was killed" in shown) == (2, True)


async def _data_of(pid: int) -> Path:
    """The folder of the data of the PostgreSQL among these descendants."""
    for each in psutil.Process(pid).children(recursive=True):
        line = each.cmdline()
        if len(line) > 2 and line[1] == "-D":
            return Path(line[2])
    raise AssertionError("no PostgreSQL runs")
