"""Every test with `backend` runs on each kind of database."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator

import pytest

from outbox_relay import changefeed
from tests.changefeed.backends import Backend
from tests.changefeed.journal import Journal
from tests.changefeed.postgresql import PostgresBackend, set_up
from tests.support.postgresql import PostgresServer

_SQLSERVER = "CHANGEFEED_TEST_SQLSERVER"


def fill(url: str) -> None:
    """Install changefeed in a template, and set up the feed of app.event."""
    session = changefeed.connect(url)
    changefeed.install(session)
    session.close()
    set_up(url)


@pytest.fixture
def postgresql(changefeed_database: str) -> Iterator[PostgresBackend]:
    """A fresh database of PostgreSQL with a feed of app.event, and the feed's roles."""
    set_up(changefeed_database, roles=True)
    backend = PostgresBackend(changefeed_database)
    yield backend
    backend.close()


@pytest.fixture(params=["postgresql", pytest.param("sqlserver", marks=pytest.mark.slow)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A fresh database with a feed of app.event."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        name = server.create_database(server.template("template_feed", fill))
        copied = PostgresBackend(server.url(name))
        yield copied
        copied.close()
        server.drop_database(name)
        return
    connection_string = os.environ.get(_SQLSERVER)
    if not connection_string:
        pytest.skip(f"{_SQLSERVER} holds no connection string")
    opened: Backend = importlib.import_module("tests.changefeed.sqlserver").open_backend(connection_string)
    yield opened
    opened.close()


@pytest.fixture
def journal() -> Journal:
    """The journal of this test."""
    return Journal()
