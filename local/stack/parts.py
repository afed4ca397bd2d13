"""Child processes: started, awaited until READY, stopped, and killed if they do not stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from local.stack.environment import past_proxies
from outbox_relay.emulators.process import AGAIN, READY

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0

# The folder that contains the package `local`: modules are started from there.
ROOT = Path(__file__).resolve().parents[2]

# The project's queues and topics, in the official emulator's format.
ENTITIES = ROOT / "infra" / "emulators" / "Config.json"

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
        loses: What is gone when its process has ended, as the subject of a sentence; None if it keeps everything.
        ready_at: When it was ready last, by the clock `time.monotonic`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None,
        loses: str | None,
        release: Path | None,
    ) -> None:
        self.name = name
        self.details: dict[str, Any] = {}
        self.loses = loses
        self.ready_at = 0.0
        self._command = command
        self._log = log
        self._environment = environment
        self._release = release
        self._process: asyncio.subprocess.Process

    @classmethod
    async def start(
        cls,
        name: str,
        module: str,
        *arguments: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        loses: str | None = None,
        release: Path | None = None,
    ) -> Part:
        """Start `python -m module arguments` and wait until it is ready.

        Args:
            name: Its name in errors.
            module: A module that prints READY once it serves, and ends when its standard input closes.
            arguments: Its command line.
            log: The file that its standard error is appended to.
            environment: Variables in addition to this process's own.
            loses: See the attribute.
            release: The folder of another release of this project, whose module is started; None for this one's.

        Raises:
            PartFailed: It ended, or was not ready in time.
        """
        part = cls(name, (module, *arguments), log, environment, loses, release)
        await part._start()
        return part

    async def start_again(self) -> None:
        """Start a part that has ended once more, on the ports that it had.

        Kills what its process has left running. Raises PartFailed if it ends again, or is not ready in time.
        """
        await self.kill()
        self._command = _on_the_same_ports(self._command, self.details)
        await self._start()

    async def _start(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as sink:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *self._command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                cwd=self._release,
                env=child_environment(self._environment, self._release or ROOT),
                **own_group(),
            )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                self.details = await self._await_ready()
        except BaseException as error:
            await self.kill()
            if isinstance(error, TimeoutError):
                raise self.failure(f"was not ready within {START_TIMEOUT_S:.0f} s") from None
            raise
        self.ready_at = time.monotonic()

    async def _await_ready(self) -> dict[str, Any]:
        async for line in self.output:
            text = line.decode()
            if text.startswith(READY):
                details: dict[str, Any] = json.loads(text.removeprefix(READY))
                return details
        raise self.failure(f"{describe_end(await self.wait())} before it was ready")

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

    async def programs_ended(self) -> AsyncIterator[tuple[str, str]]:
        """Yield each program of the part that has ended and was started again by it, and how it ended.

        Ends with its output, which nobody else may read meanwhile.
        """
        async for line in self.output:
            text = line.decode(errors="replace")
            if text.startswith(AGAIN):
                again = json.loads(text.removeprefix(AGAIN))
                yield again["program"], describe_end(again["exit_code"])

    def send_line(self, text: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")

    @property
    def ended(self) -> bool:
        """True if the process has ended."""
        return self._process.returncode is not None

    @property
    def end(self) -> str:
        """Return the end of the process as the rest of a sentence, such as `was killed by SIGKILL`."""
        assert self._process.returncode is not None
        return describe_end(self._process.returncode)

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
        """Close its standard input, at which it stops; kill it if it does not stop in time.

        Of a part that has ended, kill what its process has left running.
        """
        if self.ended:
            await self.kill()
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
    name: str,
    *arguments: str,
    log: Path,
    label: str | None = None,
    environment: Mapping[str, str] | None = None,
    loses: str | None = None,
) -> Part:
    """Start `cosmos`, `servicebus` or `functions` of the emulators; `label` is what errors call it, if not `name`.

    Raises:
        PartFailed: As `Part.start` does.
    """
    command = (name, "--exit-with-stdin", *arguments)
    return await Part.start(
        label or name, "outbox_relay.emulators", *command, log=log, environment=environment, loses=loses
    )


def describe_end(code: int) -> str:
    """Return how a process ended, as the rest of a sentence about it.

    A module here that runs a program passes its end on: with 128 and the number of the signal, as a shell does.
    """
    number = -code if code < 0 else code - 128
    name = signal.Signals(number).name if number in set(signal.Signals) else None
    if name is None:
        return f"ended with exit code {code}"
    if code < 0:
        return f"was killed by {name}"
    return f"ended with exit code {code}, as its program was killed by {name}"


def exit_code_of(code: int) -> int:
    """Return the exit code that passes on how a program ended: 128 and the number of the signal that killed it."""
    return 128 - code if code < 0 else code


def _on_the_same_ports(command: Sequence[str], details: Mapping[str, Any]) -> Sequence[str]:
    """Return a command line with the ports that the part has announced in place of those that it was given.

    The number of an option such as `--admin-port` is announced as `admin_port`.
    """
    announced = {f"--{name.replace('_', '-')}": str(value) for name, value in details.items()}
    return [
        announced.get(before, word) if before.endswith("port") else word
        for before, word in pairwise(["", *command])
    ]


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


def child_environment(added: Mapping[str, str] | None, root: Path = ROOT) -> dict[str, str]:
    """Return the environment of a Python module of this project as a child process; `added` takes precedence.

    `root` is the folder of the project, whose packages are found before any that are installed.
    """
    folders = [str(root), *map(str, sorted(root.glob("packages/*/src"))), os.environ.get("PYTHONPATH")]
    path = os.pathsep.join(folder for folder in folders if folder)
    whole = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **(added or {})}
    return {**whole, **past_proxies(whole)}


def own_group() -> dict[str, Any]:
    """Return options of a child process. A Ctrl-C in the terminal then reaches this process alone."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}
