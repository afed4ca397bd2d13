"""`python -m local postgresql`: an embedded PostgreSQL, as a part of the stack."""

from __future__ import annotations

import asyncio
import shutil
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from local.stack.arguments import ExitWithStdin, Folder, Number
from outbox_relay.emulators.process import announce, announce_again, until_stopped


async def run(
    *,
    port: Number = 5432,
    data: Folder | None = None,
    temporary: bool = False,
    exit_with_stdin: ExitWithStdin = False,
) -> int:
    """Serve until stopped: 0; 1 when the server cannot be started, with the reason on standard error.

    Args:
        port: on 127.0.0.1; 0 takes a free one
        data: folder to keep the data in; a temporary one by default
        temporary: remove the folder of --data when it stops, unless it is killed
    """
    # Not before it is used: without the packages of an SQL source, its help can still be read.
    from local.database.server import PostgresFailed, PostgresServer

    with ExitStack() as closing:
        folder = data
        if folder is None:
            folder = Path(
                closing.enter_context(TemporaryDirectory(prefix="outbox-postgresql-", ignore_cleanup_errors=True))
            )
        kept = folder.resolve() / "data"
        server = PostgresServer(kept, port)
        keeping = None
        try:
            await server.start()
            announce({"part": "postgresql", "port": server.port, "url": server.url, "data": str(kept)})
            stopping = asyncio.create_task(until_stopped(exit_with_stdin=exit_with_stdin))
            keeping = asyncio.create_task(server.keep_running(partial(announce_again, "the server")))
            await asyncio.wait({stopping, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if keeping.done():
                keeping.result()
        except PostgresFailed as failure:
            print(failure, file=sys.stderr)
            return 1
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.wait({keeping})
            await server.stop()
        if temporary:
            shutil.rmtree(folder, ignore_errors=True)
    return 0
