"""The open connections of a broker, and what is done to all of them that match."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from proton import Link

from outbox_relay.emulators.servicebus.errors import ServiceBusError
from outbox_relay.emulators.servicebus.link_table import LinkTable
from outbox_relay.emulators.servicebus.role import Role

Covers = Callable[[str], bool]
"""Returns whether a path is covered."""


class Connection(Protocol):
    """The broker's view of a connection. `gone` is set once its socket is closed."""

    links: LinkTable
    gone: asyncio.Event

    @property
    def is_open(self) -> bool:
        """True while the client can still be reached."""

    @property
    def is_silent(self) -> bool:
        """True while a fault keeps the connection from being answered."""

    def close(self, error: ServiceBusError | None) -> None:
        """Close the connection in an orderly way, with a reason or without one."""

    def abort(self, *, reset: bool = False) -> None:
        """Cut the connection at once; with `reset` by a TCP reset."""

    def begin_session(self) -> None:
        """Begin a session on this side."""


class Connections:
    """The open connections. Iterating is safe while connections end."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> None:
        self._open.add(connection)

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)

    def have_link_to(self, path: str) -> bool:
        """Return whether there is a link to a path or to something below it."""
        below = path.lower() + "/"
        return any(
            (endpoint.path.lower() + "/").startswith(below)
            for connection in self
            for endpoint in connection.links.endpoints()
            if endpoint.path is not None
        )

    def check_entities(self) -> None:
        """Detach the links whose entity is gone, or disabled for sending or receiving."""
        for connection in self:
            connection.links.check_entities()

    def cut_all(self) -> None:
        for connection in self:
            connection.abort()

    def cut_receivers(self, covers: Covers, *, reset: bool) -> int:
        """Cut the connections that receive from a path; returns how many."""
        found = [connection for connection in self if connection.links.receives_from(covers)]
        for connection in found:
            connection.abort(reset=reset)
        return len(found)

    def begin_sessions(self, covers: Covers) -> int:
        """Begin a session on each connection that sends to a path; returns how many."""
        found = [connection for connection in self if connection.links.sends_to(covers)]
        for connection in found:
            connection.begin_session()
        return len(found)

    def detach_idle(self, covers: Covers, role: Role, error: ServiceBusError | None) -> int:
        """Detach the links of clients in a role that have nothing under way; returns how many."""
        found = self._idle(covers, role)
        for connection, link in found:
            connection.links.detach(link, error)
        return len(found)

    def close_idle(self, covers: Covers, role: Role, error: ServiceBusError | None) -> int:
        """Close the connections of such links; returns how many."""
        found = {connection for connection, _ in self._idle(covers, role)}
        for connection in found:
            connection.close(error)
        return len(found)

    def _idle(self, covers: Covers, role: Role) -> list[tuple[Connection, Link]]:
        return [
            (connection, link)
            for connection in self
            for link, endpoint in connection.links.items()
            if endpoint.role is role and endpoint.path and covers(endpoint.path) and not endpoint.is_busy
        ]
