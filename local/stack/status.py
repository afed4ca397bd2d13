"""`python -m local status`."""

from __future__ import annotations

import sys
from json import dumps

import aiohttp

from local.stack import lock
from local.stack.arguments import EnvFile
from local.stack.lock import option
from outbox_relay.command_line import python

_REQUEST_TIMEOUT_S = 5.0


async def run(*, json: bool = False, env_file: EnvFile = lock.DEFAULT_ENV_FILE) -> int:
    """Print the addresses of the running stack: 0; 1 when a part of it is not ready; 2 when no stack runs.

    Args:
        json: print one JSON object
    """
    stack = lock.running(env_file)
    if stack is None:
        print(lock.none_runs(env_file), file=sys.stderr)
        return 2
    missing = await _problem(stack)
    title, *addresses = stack.lines or ("The local stack is starting.",)
    if json:
        found = {"ready": missing is None, "missing": missing, "url": stack.ready_url, "process": stack.pid}
        print(dumps({**found, "addresses": [line.strip() for line in addresses]}))
        return 0 if missing is None else 1
    print(title if missing is None else f"The local stack is not ready: {missing}.")
    for line in (*addresses, f"  Stop it: {python()} -m local down{option(env_file)}"):
        print(line)
    return 0 if missing is None else 1


async def _problem(stack: lock.Running) -> str | None:
    """Return the reason why the stack is not ready, or None if it is."""
    if stack.ready_url is None:
        return "it is starting"
    timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as http, http.get(stack.ready_url) as response:
            parts = (await response.json())["parts"]
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"{stack.ready_url} does not answer: {error or type(error).__name__}"
    waiting = [name for name, ready in parts.items() if not ready]
    return f"{', '.join(waiting)} does not answer" if waiting else None
