"""`python -m local wait`."""

from __future__ import annotations

import asyncio
import sys
import time
from json import dumps

import aiohttp

from local.stack import lock
from local.stack.arguments import EnvFile, Seconds

_POLL_EVERY_S = 0.1
_REQUEST_TIMEOUT_S = 5.0
# `up` takes its lock within a second or two after its start.
_APPEARS_WITHIN_S = 5.0


async def run(*, timeout: Seconds = 60.0, json: bool = False, env_file: EnvFile = lock.DEFAULT_ENV_FILE) -> int:
    """Wait until every part is ready: 0; 1 when it is not in time; 2 when no stack runs.

    Args:
        timeout: seconds to wait
        json: print one JSON object
    """
    started = time.monotonic()
    until = started + timeout
    appears_until = min(until, started + _APPEARS_WITHIN_S)
    seen = False
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S)) as http:
        while True:
            stack = lock.running(env_file)
            seen = seen or stack is not None
            if stack is not None and stack.ready_url and await _is_ready(http, stack.ready_url):
                said = dumps({"ready": True, "url": stack.ready_url})
                print(said if json else f"The local stack is ready: {stack.ready_url}")
                return 0
            if stack is None and (seen or time.monotonic() > appears_until):
                break
            if time.monotonic() > until:
                if json:
                    print(dumps({"ready": False, "url": stack.ready_url if stack else None}))
                print(f"The local stack is not ready after {timeout:g} s; see its logs.", file=sys.stderr)
                return 1
            await asyncio.sleep(_POLL_EVERY_S)
    print(lock.none_runs(env_file), file=sys.stderr)
    return 2


async def _is_ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
