"""The contact service's use cases on PostgreSQL, and what its commits leave in the outbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from outbox_relay import inbox
from outbox_relay.changefeed import AsyncFeed, connect_async
from outbox_relay.outbox import Unavailable
from samples.contacts.api import create_app
from samples.contacts.consumer.kept import open_directory
from samples.contacts.sql import unit_of_work
from samples.contacts.stores import open_contacts
from tests.integration.test_contacts_api import PERSON, is_problem
from tests.support.sql_outbox import TABLE, provisioned


@pytest.fixture
async def database(postgres_database: str) -> AsyncIterator[str]:
    session = await provisioned(postgres_database)
    yield postgres_database
    await session.close()


@pytest.fixture
async def api(database: str) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(lambda: open_contacts({"SQL": database}))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://contacts.example") as client,
    ):
        yield client


async def created(api: httpx.AsyncClient, **changes: Any) -> httpx.Response:
    answer = await api.post("/contacts", json={**PERSON, **changes})
    assert answer.status_code == 201, answer.text
    return answer


async def events(database: str) -> list[dict[str, Any]]:
    """The rows of the event table, in the order of the feed."""
    session = await connect_async(database)
    page = await AsyncFeed(session, TABLE).read(0, page_size=1000)
    await session.close()
    identifiers = [entry.row["id"] for entry in page.entries if entry.row is not None]
    async with await psycopg.AsyncConnection.connect(database, row_factory=dict_row) as connection:
        rows = await (await connection.execute(f"select * from {TABLE}")).fetchall()
    assert sorted(row["id"] for row in rows) == sorted(identifiers)
    return sorted(rows, key=lambda row: identifiers.index(row["id"]))


async def test_a_contact_can_be_created_read_changed_listed_and_deleted(api: httpx.AsyncClient) -> None:
    answer = await created(api)
    path, etag = answer.headers["Location"], answer.headers["ETag"]

    changed = await api.patch(path, json={"email": "a@contoso.com"}, headers={"If-Match": etag})
    read = await api.get(path)
    listed = (await api.get("/contacts")).json()["items"]
    unchanged = await api.get(path, headers={"If-None-Match": changed.headers["ETag"]})
    deleted = await api.delete(path, headers={"If-Match": changed.headers["ETag"]})

    assert changed.status_code == 200
    assert changed.headers["ETag"] != etag
    assert read.json() == changed.json()
    assert (read.json()["email"], read.headers["ETag"]) == ("a@contoso.com", changed.headers["ETag"])
    assert [contact["email"] for contact in listed] == ["a@contoso.com"]
    assert (unchanged.status_code, deleted.status_code) == (304, 204)
    assert is_problem(await api.get(path), 404, "no contact")
    assert (await api.get("/contacts")).json()["items"] == []


async def test_the_events_of_a_contact_stand_in_the_feed_in_order_with_every_documented_column(
    api: httpx.AsyncClient, database: str
) -> None:
    text = "№ 1\0 \u2028 \\ 2019-01-01T00:00:01.0000000Z"
    path = (await created(api, description=text)).headers["Location"]
    await api.patch(
        path, json={"email": "a@b.c", "name": {"firstName": "J", "lastName": "R"}}, headers={"If-Match": "*"}
    )
    await api.delete(path, headers={"If-Match": "*"})

    stored = await events(database)

    assert [row["action"] for row in stored] == [
        *("ContactCreatedEvent", "ContactNameUpdatedEvent", "ContactEmailUpdatedEvent", "ContactDeletedEvent")
    ]
    assert [row["sequence"] for row in stored] == [1, 2, 3, 4]
    assert [row["data"]["version"] for row in stored] == [1, 2, 2, 3]
    assert stored[0]["data"]["description"] == text
    for row in stored:
        assert row["partition_key"] == row["data"]["contactId"] == path.split("/")[-1]
        assert (row["id"], row["type"]) == (row["data"]["id"], "domainEvent")
        assert row["created_at"].astimezone(UTC).isoformat()[:19] == row["data"]["createdAt"][:19]


async def test_of_two_changes_of_one_version_one_is_refused(api: httpx.AsyncClient, database: str) -> None:
    answer = await created(api)
    path, same = answer.headers["Location"], {"If-Match": answer.headers["ETag"]}

    answers = await asyncio.gather(
        *(api.put(f"{path}/email", json={"email": f"{number}@b.c"}, headers=same) for number in range(8))
    )

    assert sorted(each.status_code for each in answers) == [200, *[412] * 7]
    assert [row["sequence"] for row in await events(database)] == [1, 2]


async def test_an_id_can_be_used_once(api: httpx.AsyncClient, database: str) -> None:
    chosen = str(uuid4())
    await created(api, id=chosen)

    again = await api.post("/contacts", json={**PERSON, "id": chosen})

    assert is_problem(again, 409, "already")
    assert len(await events(database)) == 1


async def test_pages_have_every_contact_once_and_a_foreign_continuation_is_refused(api: httpx.AsyncClient) -> None:
    ids = {(await created(api)).json()["id"] for _ in range(5)}

    found, continuation = [], ""
    while continuation is not None:
        page = (await api.get(f"/contacts?pageSize=2{continuation and f'&continuation={continuation}'}")).json()
        found += [contact["id"] for contact in page["items"]]
        continuation = page["continuation"]

    assert len(found) == 5
    assert set(found) == ids
    assert is_problem(await api.get("/contacts?continuation=%C3%BC"), 400, "not issued")


async def test_text_that_cannot_be_relayed_is_refused_and_nothing_is_written(
    api: httpx.AsyncClient, database: str
) -> None:
    body = '{"firstName": "\\ud800", "lastName": "Doe"}'
    path = (await created(api)).headers["Location"]

    answer = await api.put(
        f"{path}/name", content=body, headers={"If-Match": "*", "Content-Type": "application/json"}
    )

    assert answer.status_code == 400
    assert len(await events(database)) == 1


@pytest.mark.parametrize("committed", [True, False])
async def test_a_commit_whose_answer_is_lost_is_repeated_and_applied_once(
    api: httpx.AsyncClient, database: str, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    path = (await created(api)).headers["Location"]
    lost: list[Any] = []

    write = unit_of_work.SqlUnitOfWork._write

    async def cut(self: unit_of_work.SqlUnitOfWork, connection: AsyncConnection, change: Any) -> None:
        await write(self, connection, change)
        if not lost:
            lost.append(change)
            if committed:
                await connection.commit()
            raise OperationalError("commit", {}, OSError("the connection was lost"))

    monkeypatch.setattr(unit_of_work.SqlUnitOfWork, "_write", cut)

    answer = await api.put(f"{path}/email", json={"email": "a@b.c"}, headers={"If-Match": "*"})

    assert lost
    assert answer.status_code == 200
    assert (await api.get(path)).headers["ETag"] == answer.headers["ETag"]
    assert [row["sequence"] for row in await events(database)] == [1, 2]


async def test_a_database_that_does_not_answer_is_unavailable(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: AsyncEngine) -> None:
        raise OperationalError("connect", {}, OSError("refused"))

    monkeypatch.setattr(AsyncEngine, "connect", refuse)

    answer = await api.get(f"/contacts/{uuid4()}")

    assert is_problem(answer, Unavailable.http_status, "PostgreSQL did not answer")
    assert answer.headers["Retry-After"]


async def test_the_shard_of_a_contact_is_that_of_every_other_writer(database: str) -> None:
    """The feed has one hash: with two, events of a key are in two shards, and lose their order."""
    app = create_app(lambda: open_contacts({"SQL": database, "SQL_SHARDS": "7"}))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://contacts.example") as client,
    ):
        for _ in range(5):
            await created(client)

    async with await psycopg.AsyncConnection.connect(database) as connection:
        found = await connection.execute(
            f'select o.shard_id, changefeed.shard_of(e.partition_key, 7) from changefeed."outbox:{TABLE}" o '
            f"join {TABLE} e using (id)"
        )
        rows = await found.fetchall()

    assert len(rows) >= 5
    assert all(shard == expected for shard, expected in rows)


# The consumer's directory


def change(action: str, version: int, sequence: int, **content: Any) -> inbox.Message:
    event = {"action": action, "contactId": "c", "version": version, **content}
    return inbox.Message(
        id=f"e{sequence}", key="c", topic="t", sequence=sequence, action=action, body=json.dumps(event).encode()
    )


async def test_the_directory_applies_each_event_once_and_knows_what_is_missing(database: str) -> None:
    created = change("ContactCreatedEvent", 1, 1, **PERSON)
    late, newer = (
        change("ContactEmailUpdatedEvent", version, version, email=f"{version}@contoso.com") for version in (2, 3)
    )

    async with open_directory(database) as directory:
        for message in (created, newer, created):
            await directory.handle(message)
        assert await directory.missing() == [("c", 2)]
    async with open_directory(database) as directory:
        await directory.handle(late)

        assert await directory.contacts() == [{"id": "c", **PERSON, "email": "3@contoso.com"}]
        assert await directory.missing() == []


async def test_what_an_event_changes_is_stored_with_the_event_or_not_at_all(database: str) -> None:
    async with open_directory(database) as directory:
        # PostgreSQL's bigint ends before it.
        with pytest.raises(psycopg.Error):
            await directory.handle(change("ContactCreatedEvent", 2**63, 1, **PERSON))
        assert await directory.contacts() == []

        await directory.handle(change("ContactCreatedEvent", 1, 1, **PERSON))

        assert await directory.contacts() == [{"id": "c", **PERSON}]
