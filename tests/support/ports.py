"""Reserve free ports for processes whose command line or page names the port."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path

# Below the ports that Linux (32768), macOS and Windows (49152) give to connections.
_NOT_EPHEMERAL = range(20_000, 32_000)


@contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Yield free ports that no other test on this machine reserves until the block ends."""
    with ExitStack() as stack:
        yield list(
            islice((port for port in _NOT_EPHEMERAL if _is_reserved(port, stack) and _is_free(port)), count)
        )


def _is_reserved(port: int, stack: ExitStack) -> bool:
    """Reserve a port by a lock, which ends with this process; returns whether nobody else has it."""
    import fcntl  # Windows lacks it, and the tests that need it

    with suppress(OSError):
        path = Path(tempfile.gettempdir(), f"outbox-relay-test-port-{port}")
        file = stack.enter_context(path.open("w", encoding="utf-8"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
