"""`python -m local` as a command on a folder of its own, and a stack that it has started."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.watchdog import WATCHDOG_S

ROOT = Path(__file__).resolve().parents[2]
ANY_PORTS = ("--port", "0")


async def start(folder: Path, *arguments: str, **environment: str) -> asyncio.subprocess.Process:
    """Start a command that takes `--logs`, with its env file and its logs in the folder."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "local", *arguments),
        *("--env-file", str(folder / "stack.env"), "--logs", str(folder / "logs")),
        cwd=ROOT,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def stack_up(
    folder: Path, *options: str, **environment: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[str]]]:
    """`up` on free ports, once it is ready, and its lines."""
    process = await start(folder, "up", *ANY_PORTS, *options, **environment)
    assert process.stdout is not None
    printed = []
    try:
        async with asyncio.timeout(WATCHDOG_S):
            async for line in process.stdout:
                printed.append(line.decode().strip())
                if "Ctrl-C" in printed[-1]:
                    break
        yield process, printed
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
