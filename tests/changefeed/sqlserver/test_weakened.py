"""A weaker procedure, judged by the interleaving and the checker that the real one passes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.changefeed.history import kinds
from tests.changefeed.interleavings import two_readers_at_the_head
from tests.changefeed.journal import Journal
from tests.changefeed.reading import observer
from tests.changefeed.sqlserver import open_backend
from tests.changefeed.sqlserver.backend import TsqlBackend
from tests.changefeed.sqlserver.conftest import VARIABLE

pytestmark = pytest.mark.timeout(300)

_LOCK = """exec @granted = sp_getapplock @Resource = @resource, @LockMode = 'Exclusive',
        @LockOwner = 'Transaction', @LockTimeout = 10000;"""


@pytest.fixture
def backend() -> Iterator[TsqlBackend]:
    """A feed of app.event on the server with T-SQL."""
    url = os.environ.get(VARIABLE)
    if not url:
        pytest.skip(f"{VARIABLE} holds no connection string of a server with T-SQL")
    opened = open_backend(url)
    yield opened
    opened.close()


def test_without_the_lock_of_the_shard_an_event_is_numbered_twice(backend: TsqlBackend, journal: Journal) -> None:
    backend.change_procedures((_LOCK, "set @granted = 0;"))

    two_readers_at_the_head(backend, journal, observer)

    assert "twice" in kinds(journal.faults())
