"""One part of the stack as a child process: started, waited for, watched and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from outbox_emulators.process import READY

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0

# The folder that holds the package `local`: the parts are started as modules from there.
ROOT = Path(__file__).resolve().parents[2]

# The project's queues and topics, in the official emulator's format.
ENTITIES = ROOT / "infra" / "emulators" / "Config.json"


class PartFailed(Exception):
    """A part did not start, or ended by itself; the message says which, and the end of its log."""


class Part:
    """A part running as `python -m local NAME`, its log in a file.

    The child's standard input is a pipe held here, and the child ends when it closes: so no part outlives
    this process, however this process ends.
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
        arguments: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        label: str | None = None,
        module: str = "outbox_emulators",
    ) -> Part:
        """Start a part and wait until it says that it is ready.

        Args:
            name: The subcommand: cosmos, servicebus or functions.
            arguments: Its options.
            log: Where its log goes; appended to.
            environment: Variables beside this process's own.
            label: What errors call it; the name by default.
            module: Whose subcommand it is.

        Raises:
            PartFailed: It ended, or was not ready in time.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                name,
                "--exit-with-stdin",
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(environment or {})},
                # A Ctrl-C in the terminal reaches the supervisor alone, which then stops the parts in order.
                start_new_session=True,
            )
        part = cls(label or name, process, log)
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
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            text = line.decode()
            if text.startswith(READY):
                details: dict[str, Any] = json.loads(text.removeprefix(READY))
                return details
        await self._process.wait()
        raise self.failure(f"ended with exit code {self._process.returncode} before it was ready")

    def failure(self, what: str) -> PartFailed:
        """An error that tells what happened to this part, with the end of its log."""
        lines = self._log.read_text(errors="replace").splitlines()[-12:] if self._log.exists() else []
        tail = "\n".join(f"    {line}" for line in lines)
        return PartFailed(f"{self.name} {what}; the end of {self._log}:\n{tail}")

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait until the process has ended; returns its exit code."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Ask the part to stop; kill it if it does not in time."""
        if self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._process.wait()
            except TimeoutError:
                await self.kill()

    def signal_kill(self) -> None:
        """Send SIGKILL to the part alone: a host's worker lives on. Whoever watches the part sees it end."""
        if self._process.returncode is None:
            self._process.kill()

    def signal_kill_all(self) -> None:
        """Send SIGKILL to the part and to every process that it has started, a worker without its host included.

        Nothing happens where nothing of it is left.
        """
        self._signal_all(signal.SIGKILL)

    def signal_freeze_all(self) -> None:
        """Send SIGSTOP to the part and to every process that it has started, as a suspended machine would."""
        self._signal_all(signal.SIGSTOP)

    def signal_thaw_all(self) -> None:
        """Send SIGCONT to whatever is left of them."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def signal_stop(self) -> None:
        """Send SIGTERM, as a deployment or a scale-in would."""
        if self._process.returncode is None:
            self._process.terminate()

    async def kill(self) -> None:
        """Kill the part with all that it has started, and wait until it is gone."""
        self.signal_kill_all()
        await self._process.wait()
