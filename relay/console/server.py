"""An application on a port, for as long as it is served."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from relay.errors import UsageError

# Streams end at once; this is for an answer under way.
_SHUTDOWN_S = 3.0


@asynccontextmanager
async def serving(app: web.Application, host: str, port: int) -> AsyncIterator[str]:
    """Serve it, and yield its address: `http://127.0.0.1:8080/`. Port 0 takes a free one.

    Raises:
        UsageError: Nothing can listen there.
    """
    # No access log: the addresses contain partition keys, which may be personal.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be listened on ({error.strerror})"
            raise UsageError(f"port {port} of {host} {why}: choose another with --port, or --port 0") from error
        bound = runner.addresses[0][1]
        yield f"http://[{host}]:{bound}/" if ":" in host else f"http://{host}:{bound}/"
    finally:
        await runner.cleanup()
