"""The ports of `up`: their options and defaults, and whether something else uses them."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from local.stack.environment import Source


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the stack.

    Attributes:
        option: Its option on the command line.
        default: The port without that option.
        what: The service on it.
        source: With which source only; None for both.
    """

    option: str
    default: int
    what: str
    source: Source | None = None

    @property
    def name(self) -> str:
        """The field of the options."""
        return self.option.removeprefix("--").replace("-", "_")


PAGE = Port("--port", 7070, "the console's page and the readiness probe")
COSMOS = Port("--cosmos-port", 8081, "Cosmos DB", Source.COSMOS)
POSTGRESQL = Port("--postgresql-port", 5432, "PostgreSQL, with --source sql", Source.SQL)
SERVICEBUS = Port("--servicebus-port", 5672, "Service Bus, AMQP")
SERVICEBUS_ADMIN = Port("--servicebus-admin-port", 5300, "Service Bus, HTTP")
FUNCTIONS = Port("--functions-port", 7071, "the Functions host's status", Source.COSMOS)
BLOBS = Port("--blobs-port", 10000, "Blob Storage")
PORTS = (PAGE, COSMOS, POSTGRESQL, SERVICEBUS, SERVICEBUS_ADMIN, FUNCTIONS, BLOBS)


class PortsInUseError(Exception):
    """Something else uses ports of the stack; the message names each with its option."""


def check(ports: Mapping[Port, int], source: Source, *, hosts: bool, blobs: bool = True) -> None:
    """Make sure that every port that this stack needs is free.

    Args:
        ports: The number of each.
        source: Where the events come from.
        hosts: Whether a Functions host is started.
        blobs: Whether Blob Storage is.

    Raises:
        PortsInUseError: Some are not; the message names them, and what to do.
    """
    absent = {*(() if hosts else (FUNCTIONS,)), *(() if blobs else (BLOBS,))}
    needed = [port for port in ports if port.source in (None, source) and port not in absent]
    taken = [port for port in needed if ports[port] and not _is_free(ports[port])]
    if taken:
        raise PortsInUseError(_message((port, ports[port]) for port in taken))


def _message(taken: Iterable[tuple[Port, int]]) -> str:
    lines = [
        f"Port {number} ({port.what}) is in use. Choose another with {port.option}, or stop what uses it."
        for port, number in taken
    ]
    return "\n".join([*lines, f"{PAGE.option} 0 takes free ports for everything."])


def _is_free(number: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", number)):
            return True
    except OSError:
        return False
