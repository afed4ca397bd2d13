"""Statements are counted at the session: of a list, of a reader, and of the relay's worker."""

from __future__ import annotations

from bench.counting import CountedSessions
from bench.feed_statements import between_stores, count_statements
from bench.offline import ENVIRONMENT
from bench.outbox import event
from bench.sql_outbox import SqlOutbox
from changefeed import MAX_PAGE_SIZE, AsyncFeed, connect_async
from tests.support.sql_outbox import TABLE, provisioned

STORE = "update claim set last_ulid = ? where epoch = ?"


def test_what_lies_between_two_stored_cursors_belongs_to_a_page() -> None:
    statements = ["connect", "read", STORE, "read", STORE, "read", "read", STORE, "wait"]

    assert between_stores(statements) == 2.5


async def test_a_read_is_one_statement_and_the_first_wait_two(postgres_database: str) -> None:
    provisioning = await provisioned(postgres_database)
    await provisioning.close()
    sessions = CountedSessions(lambda: connect_async(postgres_database))
    session = await sessions.connect()
    feed = AsyncFeed(session, TABLE)

    page = await feed.read(0)
    assert (page.entries, sessions.total) == ([], 1)

    # It asks for the channel, and looks for news.
    assert not await feed.wait(0, page.cursor, 0)
    assert sessions.total == 3
    await session.close()


async def test_the_worker_takes_two_statements_for_a_page_and_few_while_idle(postgres_database: str) -> None:
    provisioning = await provisioned(postgres_database)
    await provisioning.close()
    async with SqlOutbox(postgres_database, 1) as outbox:
        await outbox.fill([event(f"e{number}", f"k{number % 5}") for number in range(3 * MAX_PAGE_SIZE)])

    counted = await count_statements({**ENVIRONMENT, "SQL": postgres_database}, idle_s=2.0)

    assert counted.a_page == 2
    # A look every 150 ms and at both ends of two waits; one statement for the claim.
    assert 0 < counted.idle <= 12
