"""Functions hosts as separate processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Process = asyncio.subprocess.Process
Start = Callable[..., Awaitable[tuple[Process, dict[str, Any]]]]


async def run(*arguments: str, **environment: str) -> Process:
    timings = ["--lease-acquire-ms", "100", "--lease-renew-ms", "200", "--lease-expiration-ms", "600"]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "outbox_relay.emulators", "functions", "--port", "0", *timings, *arguments),
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
