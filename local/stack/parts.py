"""Child processes: started, awaited until READY, stopped, and killed if they do not stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from local.stack.environment import past_proxies
from outbox_emulators.process import READY

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0

# The folder that contains the package `local`: modules are started from there.
ROOT = Path(__file__).resolve().parents[2]

# The project's queues and topics, in the official emulator's format.
ENTITIES = ROOT / "infra" / "emulators" / "Config.json"

# As in Azure. In that file it is the official emulator's longest, which is shorter.
DUPLICATE_WINDOW = "PT10M"

_LOG_LINES = 12
_POLL_EVERY_S = 0.1
_CHUNK = 65536


class PartFailed(Exception):
    """A part did not start, or ended unexpectedly; the message names it and quotes the end of its log."""


class Part:
    """A Python module that runs as a child process and logs to a file.

    Its standard input is a pipe held here, and the module ends when that closes: no part outlives this process,
    however this process ends.

    Attributes:
        name: Its name in errors.
        details: The JSON object it printed after READY.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.details: dict[str, Any] = {}
        self._process = process
        self._log = log

    @classmethod
    async def start(
        cls,
        name: str,
        module: str,
        *arguments: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> Part:
        """Start `python -m module arguments` and wait until it is ready.

        Args:
            name: Its name in errors.
            module: A module that prints READY once it serves, and ends when its standard input closes.
            arguments: Its command line.
            log: The file that its standard error is appended to.
            environment: Variables in addition to this process's own.

        Raises:
            PartFailed: It ended, or was not ready in time.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                env=child_environment(environment),
                **own_group(),
            )
        part = cls(name, process, log)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                part.details = await part._await_ready()
        except BaseException as error:
            await part.kill()
            if isinstance(error, TimeoutError):
                raise part.failure(f"was not ready within {START_TIMEOUT_S:.0f} s") from None
            raise
        return part

    async def _await_ready(self) -> dict[str, Any]:
        async for line in self.output:
            text = line.decode()
            if text.startswith(READY):
                details: dict[str, Any] = json.loads(text.removeprefix(READY))
                return details
        raise self.failure(f"ended with exit code {await self.wait()} before it was ready")

    def failure(self, what: str) -> PartFailed:
        """Return an error that says what happened to this part, with the end of its log."""
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:] if self._log.exists() else []
        tail = "\n".join(f"    {line}" for line in lines)
        return PartFailed(f"{self.name} {what}; the end of {self._log}:\n{tail}")

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def output(self) -> asyncio.StreamReader:
        """The JSON that it prints after READY."""
        assert self._process.stdout is not None
        return self._process.stdout

    def send_line(self, text: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")

    @property
    def ended(self) -> bool:
        """True if the process has ended."""
        return self._process.returncode is not None

    @property
    def killed(self) -> bool:
        """True if a signal has ended the process. POSIX only."""
        return (self._process.returncode or 0) < 0

    async def wait(self) -> int:
        """Wait until the process has ended; returns its exit code.

        `Process.wait` of Python 3.11 also waits until its pipes are closed, and a worker that outlives its host
        has them open.
        """
        while (code := self._process.returncode) is None:
            await asyncio.sleep(_POLL_EVERY_S)
        return code

    async def stop(self) -> None:
        """Close its standard input, at which it stops; kill it if it does not stop in time."""
        if self.ended:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    def terminate(self) -> None:
        """Send SIGTERM, as a deployment or a scale-in does; on Windows, end the process at once."""
        if not self.ended:
            self._process.terminate()

    def kill_alone(self) -> None:
        """Kill the process, but nothing that it has started: a Functions host's worker keeps running."""
        if not self.ended:
            self._process.kill()

    def kill_all(self) -> None:
        """Kill the process and everything that it has started, including a worker whose host has ended.

        On Windows only the process itself is killed; a worker ends when its host has gone.
        """
        if sys.platform == "win32":
            self.kill_alone()
        else:
            self.signal_all(signal.SIGKILL)

    def signal_all(self, number: int) -> None:
        """Send a signal to the process and everything that it has started, if any of it is left. POSIX only."""
        assert sys.platform != "win32"
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def kill(self) -> None:
        """Kill it with everything that it has started, and wait until it has ended and its pipes are closed.

        `Process.wait` does not wait for those of a process that is known to have ended. A loop that ends before
        they are closed leaves them to the garbage collector, which complains wherever it happens to run.
        """
        self.kill_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                while await self.output.read(_CHUNK):
                    pass
        await self.wait()


async def emulator(
    name: str, *arguments: str, log: Path, label: str | None = None, environment: Mapping[str, str] | None = None
) -> Part:
    """Start `cosmos`, `servicebus` or `functions` of the emulators; `label` is what errors call it, if not `name`.

    Raises:
        PartFailed: As `Part.start` does.
    """
    command = (name, "--exit-with-stdin", *arguments)
    return await Part.start(label or name, "outbox_emulators", *command, log=log, environment=environment)


async def until_ended(process: asyncio.subprocess.Process, within_s: float) -> None:
    """Wait until a process that was asked to stop has ended; kill it if it has not in time."""
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def output_of(*arguments: str, environment: Mapping[str, str] | None = None, within_s: float) -> str:
    """Run Python with these arguments to its end; returns what it printed.

    Raises:
        RuntimeError: It failed; the message has the end of its standard error.
        TimeoutError: It took too long, and was killed.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=child_environment(environment),
    )
    try:
        async with asyncio.timeout(within_s):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"python {' '.join(arguments[:2])} failed: {errors.decode(errors='replace')[-2000:]}")
    return output.decode()


def child_environment(added: Mapping[str, str] | None) -> dict[str, str]:
    """Return the environment of a Python module of this project as a child process; `added` takes precedence."""
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH")) if part)
    whole = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **(added or {})}
    return {**whole, **past_proxies(whole)}


def own_group() -> dict[str, Any]:
    """Return options of a child process. A Ctrl-C in the terminal then reaches this process alone."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}
