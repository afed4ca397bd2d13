"""The worker process: `python -m outbox_relay.emulators.functions.worker SOCKET APP`, started by the host."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from outbox_relay.emulators.functions.edges import Edges
from outbox_relay.emulators.functions.worker.child import serve


def main() -> None:
    """Serve until the host has gone, then finish the running invocations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket", type=int, help="the file descriptor of the socket to the host")
    parser.add_argument("app", type=Path, help="the function app")
    parser.add_argument("--own", action="store_true", help="not the platform's library, even if it is installed")
    parser.add_argument("--journal", type=Path, help="where edges are written")
    parser.add_argument("--orphan-limit-s", type=float, required=True, help="how long to live without the host")
    arguments = parser.parse_args()
    # Ctrl-C in a terminal reaches the host too, which decides when the worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # As in the platform's worker: every logger at Information.
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    edges = Edges(None, arguments.journal)
    limit_s = arguments.orphan_limit_s
    asyncio.run(serve(arguments.socket, arguments.app, edges, own=arguments.own, orphan_limit_s=limit_s))
    # Threads of the app must not keep a worker alive whose host has gone.
    os._exit(0)


if __name__ == "__main__":
    main()
