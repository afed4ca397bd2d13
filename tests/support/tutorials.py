"""Follow a tutorial as its reader does: save its files, paste its commands, compare what they print.

A block that begins with a comment with a file name is saved under it. A shell block is run by its own shell, in a
folder that looks like a fresh clone. The block after it is its output: times, ids and durations are not compared,
and a line `...` matches any lines. `<!-- printed in the background -->` marks the output of the last command that
runs in the background.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support.clones import end_processes_of, environment_of_a_newcomer, make_clone
from tests.support.pages import BACKGROUND, NOT_RUN, SHELL, Block, blocks
from tests.support.waiting import look_again_blocking
from tests.support.watchdog import WATCHDOG_S

_FILE = re.compile(r"\A(?:#|--) (\S+\.\w+)\n")
_OUTPUT = ("", "console", "text")
_IN_BACKGROUND = "printed in the background"

# What differs from run to run, as regular expressions; the first that matches counts.
_VARIES = (
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}",
    r"\b\d\d:\d\d:\d\d\.\d{3}",
    r"\b[0-9a-f]{12}\b",
    r"\b\d+(?:\.\d+)? (?:ms|s|min)\b",
)
_DURATION = r"\d+(?:\.\d+)? (?:ms|s|min)"
_VARYING = re.compile("|".join(f"({each})" for each in _VARIES))


def pattern(shown: str) -> re.Pattern[str]:
    """Return the expression that matches any output which a page shows so."""
    return re.compile("".join(map(_line, shown.splitlines())))


def _line(line: str) -> str:
    if line.strip() in ("...", "…"):
        return r"(?:.*\n)*?"
    parts, end = [], 0
    for match in _VARYING.finditer(line):
        same = _VARIES[(match.lastindex or 1) - 1]
        parts += [_text(line[end : match.start()]), _DURATION if same is _VARIES[-1] else same]
        end = match.end()
    return "".join([*parts, _text(line[end:])]) + r" *\n"


def _text(text: str) -> str:
    """Return a regular expression of a text: `…` matches anything, several spaces any number of them."""
    return ".*".join(re.sub(r"(?:\\ ){2,}", " {2,}", re.escape(part)) for part in text.split("…"))


def until(reached: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait for something that another process does.

    Raises:
        TimeoutError: It did not happen.
    """
    deadline = time.monotonic() + WATCHDOG_S
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(what())
        look_again_blocking()


@dataclass(slots=True)
class Reader:
    """A reader of a tutorial, in a folder that looks like a fresh clone after `make setup`.

    Attributes:
        folder: Its path.
        programs: Folders of programs that a page needs and this machine may lack.
    """

    folder: Path
    programs: tuple[Path, ...] = ()
    _started: list[tuple[Block, subprocess.Popen[bytes], Path]] = field(default_factory=list)
    _log: Path | None = None

    def __post_init__(self) -> None:
        make_clone(self.folder)

    def follow(self, page: Path) -> None:
        """Do what the page says, in its order.

        Raises:
            AssertionError: A command failed, or printed something else than the page shows.
        """
        for block in blocks(page):
            if named := _FILE.match(block.text):
                file = self.folder / named[1]
                file.parent.mkdir(exist_ok=True)
                file.write_text(block.text, encoding="utf-8")
            elif block.language == SHELL and block.rule[0] == NOT_RUN:
                self._log = None
            elif block.language == SHELL:
                self.run(block)
            elif block.language in _OUTPUT and self._log is not None:
                in_background = block.comment == _IN_BACKGROUND
                self._compare(block, self._started[-1][2] if in_background else self._log)

    def run(self, block: Block) -> None:
        """Run a shell block to its end, or start it if it runs in the background.

        Raises:
            AssertionError: It failed.
        """
        self._log = self.folder / f"block-{block.line}.log"
        process = self._shell(block, self._log)
        if BACKGROUND in block.rule[1]:
            self._started.append((block, process, self._log))
            return
        try:
            code: int | None = process.wait(WATCHDOG_S)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert code == 0, f"{block.place} {'hangs' if code is None else f'ended with {code}'}:\n{_read(self._log)}"

    def _shell(self, block: Block, log: Path) -> subprocess.Popen[bytes]:
        environment = environment_of_a_newcomer()
        path = os.pathsep.join([environment["PATH"], *map(str, self.programs)])
        with log.open("wb") as output:
            return subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", elsewhere(block.text)],
                cwd=self.folder,
                env=environment | {"PATH": path, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                # A child of a shell's background job ignores it.
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
            )

    def _compare(self, block: Block, log: Path) -> None:
        expected = pattern(block.text)
        background = {started: process for _, process, started in self._started}.get(log)

        def differs() -> str:
            return f"{block.place} shows\n{block.text}\nand this was printed:\n{_read(log)}"

        if background is not None:
            until(lambda: bool(expected.fullmatch(_read(log))) or background.poll() is not None, differs)
        assert expected.fullmatch(_read(log)), differs()

    def leave(self) -> None:
        """Stop what was started, as Ctrl-C does in each terminal, and a stack that still runs.

        Raises:
            AssertionError: A command in the background had ended before.
        """
        ended = [block.place for block, process, _ in self._started if process.poll() is not None]
        for _, process, _ in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
        for _, process, _ in self._started:
            try:
                process.wait(WATCHDOG_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        end_processes_of(self.folder)
        assert ended == []


def elsewhere(text: str) -> str:
    """Return commands that start the stack on any free ports, and install nothing."""
    text = re.sub(r'\bUP=(?:"([^"]*)"|(\S+))', lambda each: f'UP="{each[1] or each[2]} --port 0"', text)
    return re.sub(r"^make ", "make SETUP= ", text, flags=re.MULTILINE)


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8")
