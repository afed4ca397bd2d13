"""The behaviour that the service leaves open is drawn from a seed, at its worst, and counted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.program import PROGRAM
from outbox_relay.emulators.testing import RawClient
from packages.emulators.tests.cosmos.support import cannot_start

DOCS = "/dbs/outbox/colls/data/docs"
SIZES = (1, 5, 2, 1, 1, 8, 3, 1, 100, 4) * 3


@dataclass(frozen=True)
class Page:
    """One answer of the feed: where the reader stood, what it got, and where it stands then."""

    start: int
    items: list[dict[str, Any]]
    end: int

    @property
    def numbers(self) -> list[int]:
        return [item["number"] for item in self.items]


async def write_transactions(container: ContainerProxy, sizes: Iterable[int] = SIZES) -> None:
    """Documents with ascending numbers; each says which transaction it belongs to."""
    numbers = itertools.count()
    for transaction, size in enumerate(sizes):
        documents = [
            {"id": str(number), "pk": "a", "number": number, "transaction": transaction}
            for number in itertools.islice(numbers, size)
        ]
        await container.execute_item_batch([("create", (document,)) for document in documents], "a")


async def read_pages(raw: RawClient, max_items: int = 10) -> list[Page]:
    """The feed of the one logical partition, as a change feed processor reads it: by quoted numbers."""
    pages: list[Page] = []
    token = '"0"'
    while True:
        headers = {
            "a-im": "Incremental Feed",
            "if-none-match": token,
            "x-ms-max-item-count": str(max_items),
            "x-ms-documentdb-partitionkey": '["a"]',
        }
        answer = await raw.send("GET", DOCS, headers=headers)
        if answer.status == 304:
            assert answer.headers["etag"] == token
            return pages
        assert answer.status == 200
        start, token = int(token.strip('"')), answer.headers["etag"]
        pages.append(Page(start, answer.body["Documents"], int(token.strip('"'))))


async def edges_of(server: CosmosServer) -> dict[str, Any]:
    async with aiohttp.ClientSession(server.endpoint) as session, session.get("/admin/edges") as answer:
        assert answer.status == 200
        return dict(await answer.json())


def parts(pages: list[Page]) -> dict[int, list[list[int]]]:
    """The numbers of each transaction, a list for each page that holds some of them."""
    found: dict[int, list[list[int]]] = {}
    for page in pages:
        for transaction, items in itertools.groupby(page.items, key=lambda item: item["transaction"]):
            found.setdefault(transaction, []).append([item["number"] for item in items])
    return found


@pytest.mark.parametrize("edges", [1, 2, 3])
async def test_transactions_come_once_in_the_order_of_their_commits_cut_or_reordered(
    server: CosmosServer, container: ContainerProxy, raw: RawClient
) -> None:
    await write_transactions(container)

    passes = [await read_pages(raw, max_items) for max_items in (1, 10, 10, 10, 10, 10, 1000)]

    for pages in passes:
        assert sorted(number for page in pages for number in page.numbers) == list(range(sum(SIZES)))
        transactions = [item["transaction"] for page in pages for item in page.items]
        assert transactions == sorted(transactions)

    # A whole transaction is reordered, and the parts of one that is cut are not.
    found = [parts(pages) for pages in passes]
    whole = [each[0] for of in found for each in of.values() if len(each) == 1]
    cut = [each for of in found for each in of.values() if len(each) > 1]
    assert any(numbers != sorted(numbers) for numbers in whole)
    assert any(numbers == sorted(numbers) for numbers in whole if len(numbers) > 2)
    assert cut
    assert all(list(itertools.chain.from_iterable(each)) == sorted(itertools.chain(*each)) for each in cut)
    counted = (await edges_of(server))["edges"]
    assert counted["transaction-reordered"] == sum(numbers != sorted(numbers) for numbers in whole)
    assert counted["transaction-cut"] >= len(cut)

    # The documents of a transaction share an LSN, which no position within it has reached.
    every_page = [page for pages in passes for page in pages]
    assert any(page.items[-1]["_lsn"] > page.end for page in every_page)
    lsns: dict[int, set[int]] = {}
    for page in every_page:
        assert all(item["_lsn"] > page.start for item in page.items)
        assert all(item["_lsn"] <= page.end for item in page.items[:-1] if item["_lsn"] != page.items[-1]["_lsn"])
        for item in page.items:
            lsns.setdefault(item["transaction"], set()).add(item["_lsn"])
    assert all(len(each) == 1 for each in lsns.values())


async def test_a_page_ends_before_it_is_full(
    server: CosmosServer, container: ContainerProxy, raw: RawClient
) -> None:
    await write_transactions(container, [1] * 50)

    sizes = [len(page.items) for _ in range(10) for page in await read_pages(raw)]

    assert max(sizes) == 10
    assert sum(size < 10 for size in sizes) > 0
    assert (await edges_of(server))["edges"]["page-cut"] > 0


async def test_the_same_seed_draws_the_same_and_another_one_something_else() -> None:
    async def numbers(seed: int) -> list[list[int]]:
        async with (
            CosmosServer(edges=seed) as server,
            CosmosClient.from_connection_string(server.connection_string) as client,
            aiohttp.ClientSession() as session,
        ):
            database = await client.create_database("outbox")
            container = await database.create_container("data", PartitionKey(path="/pk"))
            await write_transactions(container)
            pages = await read_pages(RawClient(session, server.endpoint, server.key))
            return [page.numbers for page in pages]

    assert await numbers(7) == await numbers(7)
    assert await numbers(7) != await numbers(8)


async def test_a_read_without_the_writes_session_token_may_see_the_state_before(
    server: CosmosServer, container: ContainerProxy, stranger: RawClient
) -> None:
    key = {"x-ms-documentdb-partitionkey": '["a"]'}
    seen = set()
    for version in range(100):
        await container.upsert_item({"id": "1", "pk": "a", "version": version})
        answer = await stranger.send("GET", f"{DOCS}/1", headers=key)
        if answer.status == 404:
            seen.add(("nothing", int(answer.headers["lsn"]) < version + 1))
            continue
        lag = version - answer.body["version"]
        seen.add(("behind" if lag else "level", int(answer.headers["lsn"]) == version + 1 - lag))
        assert answer.headers["x-ms-session-token"].endswith(f"#{answer.headers['lsn']}")

    assert {("behind", True), ("level", True)} <= seen <= {("behind", True), ("level", True), ("nothing", True)}
    assert (await edges_of(server))["edges"]["stale-read"] > 0


async def test_a_read_with_the_writes_session_token_sees_the_write_and_a_deletion_too(
    server: CosmosServer, stranger: RawClient, container: ContainerProxy
) -> None:
    key = {"x-ms-documentdb-partitionkey": '["a"]'}
    for version in range(100):
        written = await stranger.send(
            "POST",
            DOCS,
            headers=key | {"x-ms-documentdb-is-upsert": "True"},
            body=json.dumps({"id": "1", "pk": "a", "version": version}),
        )
        token = {"x-ms-session-token": written.headers["x-ms-session-token"]}
        answer = await stranger.send("GET", f"{DOCS}/1", headers=key | token)
        assert answer.body["version"] == version

    gone = await stranger.send("DELETE", f"{DOCS}/1", headers=key)
    token = {"x-ms-session-token": gone.headers["x-ms-session-token"]}
    assert {(await stranger.send("GET", f"{DOCS}/1", headers=key | token)).status for _ in range(20)} == {404}


@pytest.mark.usefixtures("container")
async def test_a_deleted_item_may_still_be_read_without_the_token_of_its_deletion(stranger: RawClient) -> None:
    key = {"x-ms-documentdb-partitionkey": '["a"]'}
    statuses = set()
    for _ in range(100):
        await stranger.send("POST", DOCS, headers=key, body='{"id":"1","pk":"a"}')
        await stranger.send("DELETE", f"{DOCS}/1", headers=key)
        statuses.add((await stranger.send("GET", f"{DOCS}/1", headers=key)).status)

    assert statuses == {200, 404}


@pytest.mark.usefixtures("container")
async def test_a_token_ahead_of_its_partition_is_counted(server: CosmosServer, raw: RawClient) -> None:
    key = {"x-ms-documentdb-partitionkey": '["a"]'}
    ahead = {"x-ms-session-token": ",".join(f"{number}:-1#5" for number in range(4))}

    assert (await raw.send("GET", f"{DOCS}/1", headers=key | ahead)).status == 404

    assert (await edges_of(server))["edges"] == {"session-token-ahead": 1}


@pytest.mark.parametrize("edges", [None])
async def test_without_a_seed_nothing_is_drawn_and_nothing_counted(
    server: CosmosServer, container: ContainerProxy, raw: RawClient
) -> None:
    await write_transactions(container)

    for _ in range(5):
        assert [number for page in await read_pages(raw) for number in page.numbers] == list(range(sum(SIZES)))
    assert await edges_of(server) == {"seed": None, "edges": {}}


@pytest.mark.parametrize(("arguments", "seed"), [((), 1), (("--edges", "off"), None)])
def test_edges_are_drawn_unless_they_are_turned_off(arguments: tuple[str, ...], seed: int | None) -> None:
    assert PROGRAM.parse(["cosmos", *arguments]).options["options"].edges == seed


async def test_an_invalid_seed_is_reported() -> None:
    code, errors = await cannot_start("--edges", "harsh")

    assert code != 0
    assert "'harsh' is neither a whole number nor 'off'" in errors
