"""The shell blocks of the documentation run as a newcomer pastes them, but for the ports.

`tests/support/pages.py` says how a block names what it is run with. Each block is run by its own shell, in a
folder that looks like a fresh clone after `make setup`. The virtual environment is not activated there.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.clones import end_processes_of, environment_of_a_newcomer, make_clone
from tests.support.pages import (
    BACKGROUND,
    NOT_RUN,
    PAGES,
    ROOT,
    RUN_BY,
    SHELL,
    STARTS_STACK,
    THE_STACK,
    Block,
    blocks,
)
from tests.support.ports import reserved_ports
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("documentation")]

# The ports on the pages: those of `python -m local up`, with the option for each, and others.
STACK_PORTS = {
    7070: "--port",
    8081: "--cosmos-port",
    5672: "--servicebus-port",
    5300: "--servicebus-admin-port",
    7071: "--functions-port",
    10000: "--blobs-port",
}
OTHER_PORTS = (8000, 7072)
_READY = 7070

# Each response's status, apart from what the command prints.
_CURLRC = 'write-out = "%{stderr}\\nstatus %{http_code}\\n"\n'
_PORT = re.compile(r"\b\d{4}\b")
_UP = re.compile(r"-m local up\b")


def with_ports(text: str, ports: dict[int, int]) -> str:
    """The text with these ports instead of those of the page, also where `up` is started with its defaults."""
    named = _PORT.sub(lambda match: str(ports.get(int(match[0]), match[0])), text)
    options = " ".join(f"{option} {ports[port]}" for port, option in STACK_PORTS.items())
    return _UP.sub(rf"\g<0> {options}", named)


def served(text: str, ports: dict[int, int]) -> set[int]:
    """The ports among `ports` on which a block of this text serves, or which it uses."""
    named = {int(port) for port in _PORT.findall(text)} | ({_READY} if _UP.search(text) else set())
    return {ports[port] for port in named if port in ports}


def answers(port: int) -> bool:
    """Return True if a process listens on this port."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def until(reached: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does.

    Raises:
        TimeoutError: It did not happen.
    """
    deadline = time.monotonic() + WATCHDOG_S
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)


@dataclass(slots=True)
class Clone:
    """A folder that looks like a fresh clone after `make setup`, and what was started in it."""

    folder: Path
    ports: dict[int, int]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        make_clone(self.folder)
        (self.folder / ".curlrc").write_text(_CURLRC, encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its shells."""
        return environment_of_a_newcomer() | {"CURL_HOME": str(self.folder)}

    def _shell(self, block: Block, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            return subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", with_ports(block.text, self.ports)],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def run(self, block: Block) -> None:
        """Run a block to its end: all its commands and requests succeed, but for those that say `# 412`."""
        log = self.folder / "block.log"
        with self._shell(block, log) as shell:
            try:
                code: int | None = shell.wait(WATCHDOG_S)
            except subprocess.TimeoutExpired:
                code = None
                shell.kill()
        printed = log.read_text(encoding="utf-8")
        assert code == 0, f"{block.place} {'hangs' if code is None else f'ended with {code}'}:\n{printed}"
        refused = [status for status in re.findall(r"^status (\d+)$", printed, re.MULTILINE) if int(status) >= 400]
        assert refused == re.findall(r"# (4\d\d)$", block.text, re.MULTILINE), f"{block.place}:\n{printed}"

    def start(self, block: Block) -> None:
        """Start a block, and wait until it serves on each port that it names and nobody served before."""
        awaited = [port for port in served(block.text, self.ports) if not answers(port)]
        log = self.folder / f"background-{len(self.started)}.log"
        process = self._shell(block, log)
        self.started.append(process)
        until(lambda: process.poll() is not None or all(map(answers, awaited)), f"{block.place} does not serve")
        assert process.poll() is None, f"{block.place} ended:\n{log.read_text(encoding='utf-8')}"

    def end(self) -> None:
        """End what the blocks have started, as Ctrl-C in its terminal would.

        Raises:
            AssertionError: A block in the background had ended before.
        """
        ended = [each.args for each in self.started if each.poll() is not None]
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
        for process in self.started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)
        end_processes_of(self.folder)
        assert ended == []


@contextmanager
def cloned(folder: Path, stack: Clone | None = None) -> Iterator[Clone]:
    """A clone, and the end of what was started in it; with the settings and ports of a stack."""
    named = (*STACK_PORTS, *OTHER_PORTS)
    with reserved_ports(len(named)) as ports:
        clone = Clone(folder.resolve(), dict(zip(named, ports, strict=True)))
        if stack is not None:
            clone.ports |= {port: stack.ports[port] for port in STACK_PORTS}
            (clone.folder / ".local").symlink_to(stack.folder / ".local")
        try:
            yield clone
        finally:
            clone.end()


def runnable(page: Path) -> list[Block]:
    """The shell blocks of a page that are run here."""
    return [block for block in blocks(page) if block.language == SHELL and block.rule[0] not in (RUN_BY, NOT_RUN)]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """A clone in which the block of the pages that starts the stack was run."""
    [starting] = [block for page in PAGES for block in runnable(page) if STARTS_STACK in block.rule[1]]
    with cloned(tmp_path_factory.mktemp("documentation") / "stack") as clone:
        clone.run(starting)
        yield clone


@pytest.mark.skipif(shutil.which("bash") is None or shutil.which("curl") is None, reason="needs bash and curl")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if runnable(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_blocks_of_a_page_run_as_pasted(page: Path, stack: Clone, tmp_path: Path) -> None:
    with cloned(tmp_path / "alone") as alone, cloned(tmp_path / "on-the-stack", stack) as on_the_stack:
        for block in runnable(page):
            _, values = block.rule
            clone = on_the_stack if THE_STACK in values else alone
            if BACKGROUND in values:
                clone.start(block)
            elif STARTS_STACK not in values:
                clone.run(block)
