"""A Cosmos DB account on an address of this machine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from aiohttp import web

from outbox_relay.emulators.access import Access
from outbox_relay.emulators.addresses import LOOPBACK, reachable
from outbox_relay.emulators.cosmos.account import Account
from outbox_relay.emulators.cosmos.authorization import EMULATOR_KEY, Authorization
from outbox_relay.emulators.cosmos.clock import Clock
from outbox_relay.emulators.cosmos.edges import DEFAULT_SEED, Edges
from outbox_relay.emulators.cosmos.faults import Faults
from outbox_relay.emulators.cosmos.gateway import Gateway
from outbox_relay.emulators.cosmos.offers import RU_PER_PARTITION
from outbox_relay.emulators.cosmos.storage import IN_MEMORY
from outbox_relay.emulators.recording import Recording

DEFAULT_KEY = EMULATOR_KEY

_SWEEP_EVERY_S = 1.0
_MAX_LINE = 64 * 1024
_SWEEP_ITEMS = 2000

_log = logging.getLogger(__name__)


class CosmosServer:
    """Serves an account over plain HTTP, on the running asyncio loop.

    `host` is the address to listen on. Clients go on to the endpoint that the account names, which is the one that
    they asked (the Host header of their request), so that a mapped port or a machine's name needs no setting.
    `public_endpoint`, such as "https://cosmos.test:8443/", names another: that of a proxy that ends TLS.
    `allowed_hosts` are further names by which clients reach it: other names in the Host header get 403.
    `database` is a file that is kept between runs, or ":memory:". New containers have `physical_partitions`,
    or more if they have more than `ru_per_partition` request units per second for each.
    `clock` gives seconds since 1970; a test may control it. `edges` is the seed from which the behaviour is drawn
    that the service leaves open; None for the kindest. `recording` gets a line for each commit.
    """

    def __init__(
        self,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        public_endpoint: str | None = None,
        allowed_hosts: Sequence[str] = (),
        database: str | Path = IN_MEMORY,
        key: str = DEFAULT_KEY,
        physical_partitions: int = 4,
        ru_per_partition: int = RU_PER_PARTITION,
        clock: Callable[[], float] = time.time,
        edges: int | None = DEFAULT_SEED,
        recording: Recording | None = None,
    ) -> None:
        if physical_partitions < 1:
            raise ValueError(f"physical_partitions is {physical_partitions}; it must be at least 1.")
        if ru_per_partition < 1:
            raise ValueError(f"ru_per_partition is {ru_per_partition}; it must be at least 1.")
        self._host = host
        self._public_endpoint = None if public_endpoint is None else _endpoint(public_endpoint)
        public_host = urlsplit(self._public_endpoint or "").hostname
        self._access = Access(host, public_host, *allowed_hosts)
        self._requested_port = port
        self._database = database
        self._key = key
        self._physical_partitions = physical_partitions
        self._ru_per_partition = ru_per_partition
        self._clock = Clock(clock)
        self._edges = edges
        self._recording = recording
        self._authorization = Authorization(key)
        self._account: Account | None = None
        self._faults = Faults()
        self._runner: web.ServerRunner | None = None
        self._port: int | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to serve. Raises RuntimeError if the file is in use, OSError if the port is."""
        self._account = Account(
            self._database,
            self._clock,
            self._physical_partitions,
            Edges(self._edges),
            self._ru_per_partition,
            self._recording,
        )
        self._faults = Faults()
        gateway = Gateway(self._account, self._authorization, self._endpoint_of, self._faults, self._access)
        self._runner = web.ServerRunner(
            web.Server(gateway, access_log=None, max_line_size=_MAX_LINE, max_field_size=_MAX_LINE)
        )
        try:
            await self._runner.setup()
            site = web.TCPSite(self._runner, self._host, self._requested_port)
            await site.start()
        except BaseException:
            await self.stop()
            raise
        self._port = self._runner.addresses[0][1]
        self._sweeper = asyncio.create_task(self._sweep(self._account))
        _log.info("Cosmos DB listens on %s", self.endpoint)

    async def stop(self) -> None:
        """Stop, and close the file. A server can be started again."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
            self._sweeper = None
        self._faults.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._account is not None:
            self._account.close()
            self._account = None
        self._port = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        if self._port is None:
            raise RuntimeError("The server is not started, so it has no port.")
        return self._port

    @property
    def endpoint(self) -> str:
        """Where clients on this machine reach the account, or the public endpoint."""
        return self._public_endpoint or f"http://{reachable(self._host)}:{self.port}/"

    def _endpoint_of(self, requested: str | None) -> str:
        """Return the endpoint for a client that sent this Host header.

        It has the client's own name for the account.
        """
        return f"http://{requested}/" if requested and not self._public_endpoint else self.endpoint

    @property
    def key(self) -> str:
        return self._key

    @property
    def connection_string(self) -> str:
        return f"AccountEndpoint={self.endpoint};AccountKey={self._key};"

    @property
    def account(self) -> Account:
        """The state of the account."""
        if self._account is None:
            raise RuntimeError("The server is not started, so it has no account.")
        return self._account

    async def _sweep(self, account: Account) -> None:
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            account.items.remove_expired(_SWEEP_ITEMS)


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        raise ValueError(f"The public endpoint is '{text}'; write it as https://cosmos.test:8443/")
    return f"{parts.scheme}://{parts.netloc}/"
