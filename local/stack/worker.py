"""`python -m relay run` as a part of the stack: the relay of the SQL source as its own process.

This process starts the relay, says when it is ready, and passes SIGTERM on. It ends the relay when its standard
input ends, so that no relay outlives the stack.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from local.stack.parts import exit_code_of
from outbox_relay.emulators.process import announce, heed_signals, until_stopped

_RELAY = ("-m", "relay", "run")


async def work() -> int:
    """Run the relay until it ends or is stopped; returns its exit code."""
    heed_signals()
    # The seconds after which changed rules count, if they are given.
    command = ("-m", "local.stack.ahead", sys.argv[1], "run") if sys.argv[1:] else _RELAY
    relay = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    following = asyncio.create_task(_follow(relay))
    stopping = asyncio.create_task(until_stopped(exit_with_stdin=True))
    ending = asyncio.create_task(relay.wait())
    await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
    if not ending.done():
        with suppress(ProcessLookupError):
            relay.terminate()
    code = await ending
    await following
    stopping.cancel()
    return exit_code_of(code)


async def _follow(relay: asyncio.subprocess.Process) -> None:
    """Announce the relay at its first line, which says that it runs, and put what it prints into the log."""
    assert relay.stdout is not None
    ready = False
    async for line in relay.stdout:
        text = line.decode(errors="replace").rstrip()
        print(text, file=sys.stderr, flush=True)
        if not ready:
            ready = True
            announce({"part": "worker", "relay_pid": relay.pid})


if __name__ == "__main__":
    sys.exit(asyncio.run(work()))
