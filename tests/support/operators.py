"""Runs `python -m relay` for the tests: in this process, against services in this process too."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from outbox_relay.command_line import Call
from outbox_relay.operator.cli.main import PROGRAM, options_of
from outbox_relay.operator.cli.main import run as run_command
from outbox_relay.operator.cli.terminal import Terminal
from relay.core.remedy import parsed_word
from tests.support.watchdog import WATCHDOG_S

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ("smoke", "--subscription", "all", "--timeout", str(WATCHDOG_S))
"""The command that waits for a canary as long as a test may."""


class Keyboard(io.StringIO):
    """Standard input with somebody at it, who types these lines."""

    def isatty(self) -> bool:
        return True


def shell_words(line: str, shell: str = "sh") -> list[str]:
    """The texts of a command line, as a shell divides it and the relay's parser reads its words."""
    command = [shell, "-c", f"printf '%s\\0' {line}"]
    done = subprocess.run(command, capture_output=True, timeout=WATCHDOG_S, check=True)
    return [parsed_word(word) for word in done.stdout.decode().split("\0")[:-1]]


@dataclass(frozen=True)
class Run:
    """The results of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Its output, which has to be one JSON object."""
        value: dict[str, Any] = json.loads(self.out)
        return value


@cache
def parsed(words: tuple[str, ...]) -> Call:
    """Parse the words once: a history runs the same commands hundreds of times."""
    return PROGRAM.parse(words)


async def relay_command(environment: Mapping[str, str], *words: str, typed: str | None = None) -> Run:
    """One command with this environment; `typed` is what somebody at a terminal answers."""
    out, err = io.StringIO(), io.StringIO()
    call = parsed(words)
    stdin = io.StringIO() if typed is None else Keyboard(typed)
    terminal = Terminal(as_json=options_of(call).json, out=out, err=err, stdin=stdin)
    code = await run_command(call, environment, terminal)
    return Run(code, out.getvalue(), err.getvalue())


@contextlib.asynccontextmanager
async def relay_process(environment: Mapping[str, str], *words: str) -> Any:
    """`python -m relay` as its own process, with nothing else in its environment."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "relay", *words),
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # What a shell starts in the background ignores Ctrl-C, and so do its children: these tests, perhaps.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def relay_subprocess(environment: Mapping[str, str], *words: str) -> Run:
    """`python -m relay` run to its end."""
    async with relay_process(environment, *words) as process, asyncio.timeout(WATCHDOG_S):
        out, err = await process.communicate()
    return Run(process.returncode, out.decode(), err.decode())
