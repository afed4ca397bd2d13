"""`python -m relay replay` from an SQL feed: what arrives again, what does not, and in which order."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from outbox_relay.changefeed import connect, prune
from outbox_relay.changefeed.ulid import at, to_text
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.operator.backends.sql.reader import SqlOutbox
from outbox_relay.operator.cli.sender import OrderedSender, Sent
from relay.backends.outbox import Range
from relay.config.settings import Settings
from relay.core.events import Event
from tests.support.broker import topic_counts
from tests.support.operators import Run, relay_command
from tests.support.sql_deployment import OUTBOX, TABLE, SqlDeployment, working
from tests.support.subscriber import Subscriber

HOUR = ("--from", "2026-02-09T10:30:00Z", "--to", "2026-02-09T11:30:00Z")
FINE = {"action": "Named"}
BEFORE, WITHIN = "2026-02-09T10:00:00Z", "2026-02-09T11:00:00Z"


@pytest.fixture
def sql(sql: SqlDeployment) -> SqlDeployment:
    sql.create()
    return sql


@pytest.fixture
def environment(sql: SqlDeployment, servicebus: ServiceBusServer) -> dict[str, str]:
    return {
        "SQL": sql.url,
        "SQL_CLAIM_S": "2",
        "SERVICEBUS": servicebus.connection_string,
        "RELAY_POLL_DELAY_MS": "50",
        "RELAY_SENDERS": "4",
    }


async def replay(environment: dict[str, str], *words: str) -> Run:
    return await relay_command(environment, "replay", *words)


async def received(servicebus: ServiceBusServer, count: int) -> dict[str, list[str]]:
    """A subscriber's messages, exactly `count`."""
    subscriber = Subscriber(servicebus.connection_string)
    await subscriber.receive(count)
    await subscriber.receive_rest(wait_s=0.3)
    assert subscriber.count == count
    return subscriber.ids()


async def test_pages_are_bounded_in_bytes(environment: dict[str, str], sql: SqlDeployment) -> None:
    data = {"action": "Named", "text": "x" * 400_000}
    sql.write(*((f"e{number}", "k", data) for number in range(5)), hint=WITHIN)
    feed = Settings.from_environment(environment | {"SQL_MAX_BYTES": "1048576"}).sql
    assert feed is not None
    outbox = SqlOutbox(feed)
    reading = await outbox.in_range(Range(0, 2**31))
    pages = [[document.fields["id"] for document in page] async for page in reading.pages()]
    await outbox.close()

    assert pages == [["e0", "e1"], ["e2", "e3"], ["e4"]]


async def test_events_are_published_in_the_order_of_the_feed_from_page_to_page(
    environment: dict[str, str], sql: SqlDeployment, servicebus: ServiceBusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_relay.operator.backends.sql.reader._PAGE_ROWS", 7)
    ids: dict[str, list[str]] = {}
    for number in range(60):
        key, identifier = f"k{number % 3}", f"e{99 - number}"
        ids.setdefault(key, []).append(identifier)
        sql.named(identifier, key=key, shard_id=number % 3 % 2, hint=WITHIN)
    sql.pass_all(0, 1)

    run = await replay(environment | {"SQL_SHARDS": "2"}, *HOUR, "--json")

    assert (run.code, run.json["matched"], run.json["published"], run.json["invalid"]) == (0, 60, 60, [])
    assert await received(servicebus, 60) == ids


async def test_ids_and_a_shard_narrow_it(
    environment: dict[str, str], sql: SqlDeployment, servicebus: ServiceBusServer
) -> None:
    for shard_id, key in enumerate("ab"):
        sql.write(
            (f"{key}1", key, {"action": "Named"}),
            (f"{key}2", key, {"action": "Moved"}),
            shard_id=shard_id,
            hint=WITHIN,
        )
    sql.pass_all(0, 1)

    by_ids = await replay(environment | {"SQL_SHARDS": "2"}, *HOUR, "--id", "b2", "--id", "a1", "--json")
    assert await received(servicebus, 2) == {"a": ["a1"], "b": ["b2"]}
    by_shard = await replay(environment | {"SQL_SHARDS": "2"}, *HOUR, "--shard", "1", "--json")

    assert [(run.code, run.json["matched"]) for run in (by_ids, by_shard)] == [(0, 2), (0, 2)]
    # The topic drops what it has had.
    assert await received(servicebus, 1) == {"b": ["b1"]}


async def test_it_begins_behind_a_cursor_and_needs_no_end(
    environment: dict[str, str], sql: SqlDeployment, servicebus: ServiceBusServer
) -> None:
    sql.named("e1", "e2", "e3")
    sql.pass_all()
    cursor = to_text(sql.read()[0])

    run = await replay(environment, "--from-cursor", cursor, "--json")

    assert (run.code, run.json["published"]) == (0, 2)
    assert await received(servicebus, 2) == {"k": ["e2", "e3"]}


WRONG: list[tuple[tuple[str, ...], dict[str, str], str]] = [
    (("--from-cursor", "x"), {}, "'x' is no ULID"),
    (("--from-cursor", "0" * 26, "--from", "1"), {}, "either --from or --from-cursor"),
    (("--from-cursor", "0" * 26), {"SQL_SHARDS": "2"}, "add --shard"),
    (("--from-cursor", "0" * 26, "--to", "0"), {}, "the range is empty"),
    ((), {}, "give --from, or --from-cursor"),
    (HOUR, {"COSMOS": "AccountEndpoint=https://127.0.0.1:1/;AccountKey=YQ==;"}, "add --source cosmos or"),
]


async def test_what_makes_no_sense_is_wrong_usage(environment: dict[str, str]) -> None:
    for words, settings, says in WRONG:
        run = await replay(environment | settings, *words)

        assert (run.code, says in run.err) == (2, True), says


async def test_a_dry_run_and_the_run_name_the_same_large_and_discarded_events(
    environment: dict[str, str], sql: SqlDeployment, servicebus: ServiceBusServer
) -> None:
    large = {"action": "Named", "text": "x" * 300_000}
    sql.write(("e1", "k", FINE), ("discarded", "k", large), ("quarantined", "k", large), ("e2", "k", FINE))
    async with working(Settings.from_environment(environment)):
        await sql.until_passed()
    (record,) = [
        each["id"]
        for each in (await relay_command(environment, "quarantine", "list", "--json")).json["records"]
        if each["documentId"] == "discarded"
    ]
    await relay_command(environment, "quarantine", "discard", record, "--yes", "--why", "a test order")
    words = ("--from", "1h", "--as-new", "--json")

    dry, run = await replay(environment, *words, "--dry-run"), await replay(environment, *words)

    assert (dry.code, run.code) == (1, 1)
    assert (dry.json["partitionKeys"], run.json["published"]) == ({"k": 2}, 2)
    assert dry.json["invalid"] == run.json["invalid"]
    assert [(each["id"], each["reason"]) for each in run.json["invalid"]] == [("quarantined", "message-too-large")]
    assert dry.json["discarded"] == run.json["discarded"]
    assert [(each["id"], each["why"]) for each in run.json["discarded"]] == [("discarded", "a test order")]
    assert len((await received(servicebus, 4))["k"]) == 4


async def test_a_range_behind_the_last_position_is_empty(environment: dict[str, str], sql: SqlDeployment) -> None:
    sql.named("e1", hint=BEFORE)
    sql.pass_all()

    run = await replay(environment, *HOUR)

    assert (run.code, run.out) == (0, "0 event(s) published, 0 invalid, 0 not sent\n")


async def test_events_that_the_relay_has_not_passed_are_left_to_it(
    environment: dict[str, str], sql: SqlDeployment, servicebus: ServiceBusServer
) -> None:
    sql.named("e1", "e2", "e3", hint=WITHIN)
    sql.named("o1", key="other", hint=WITHIN)
    sql.pass_to(sql.read()[1])
    sql.named("e4", hint=WITHIN)

    people, data = await replay(environment, *HOUR), await replay(environment, *HOUR, "--json")

    assert (people.code, data.json["ahead"], data.json["published"]) == (1, {"k": 2, "other": 1}, 2)
    assert "3 event(s) of 2 partition key(s) were left to the relay, whose cursors have not passed" in people.out
    assert await received(servicebus, 2) == {"k": ["e1", "e2"]}


async def test_events_whose_row_is_gone_are_reported_and_those_of_smoke_tests_are_not(
    environment: dict[str, str], sql: SqlDeployment, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    canary = "736d6f6b-6500-8000-8000-000000000000"
    sql.named("e1", "gone", canary, "e2", hint=WITHIN)
    sql.pass_all()
    sql.connection.execute(f"delete from {TABLE} where id in ('gone', '{canary}')")
    words = (*HOUR, "--state", str(tmp_path / "state"))

    run = await replay(environment, *words)
    again = await replay(environment, *words, "--json")

    assert run.code == 1
    assert run.out.startswith("2 event(s) published, 1 invalid, 0 not sent\n")
    assert (
        f"invalid: document 'gone' of '': row-missing: {TABLE} has no such row any more (shard 0, posit" in run.out
    )
    assert [each["id"] for each in again.json["invalid"]] == ["gone"]
    assert await received(servicebus, 2) == {"k": ["e1", "e2"]}


@pytest.mark.parametrize("left", [["e2", "e3"], []])
async def test_what_retention_has_deleted_is_reported_and_what_is_left_is_published(
    environment: dict[str, str], sql: SqlDeployment, servicebus: ServiceBusServer, left: list[str]
) -> None:
    sql.named("e1", hint=WITHIN)
    sql.named(*left, hint="2026-02-09T11:15:00Z")
    sql.pass_all()
    session = connect(sql.url)
    prune(session, TABLE, datetime(2026, 2, 9, 11, 10, tzinfo=UTC))
    session.close()

    run = await replay(environment, *HOUR)
    exact = await replay(environment, "--from-cursor", to_text(at(datetime(2026, 2, 9, 10, tzinfo=UTC))))

    assert run.code == 1
    assert run.out.startswith(f"{len(left)} event(s) published, 1 invalid, 0 not sent\n")
    assert "invalid: document 'shard 0' of '': positions-deleted: the cursor" in run.out
    assert await received(servicebus, len(left)) == ({"k": left} if left else {})
    assert exact.code == 3
    assert "behind the low-water mark" in exact.err


async def test_events_of_another_type_are_left_out(
    environment: dict[str, str], sql: SqlDeployment, servicebus: ServiceBusServer
) -> None:
    sql.connection.execute(f"alter table {TABLE} add column type text default 'domainEvent'")
    sql.named("e1", "other", hint=WITHIN)
    sql.connection.execute(f"update {TABLE} set type = 'contact' where id = 'other'")
    sql.pass_all()

    assert (await replay(environment, *HOUR, "--json")).json["matched"] == 1
    assert await received(servicebus, 1) == {"k": ["e1"]}


class Killed(BaseException):
    """The end of the process, at this very place."""


@pytest.mark.parametrize("keys", [1, 2])
async def test_a_replay_that_was_cut_short_goes_on_where_it_was(
    environment: dict[str, str],
    sql: SqlDeployment,
    servicebus: ServiceBusServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: int,
) -> None:
    monkeypatch.setattr("outbox_relay.operator.backends.sql.reader._PAGE_ROWS", 4)
    for number in range(12):
        # One key may be written to two shards: each has positions of its own.
        sql.named(f"e{number}", key=f"k{number % keys}", shard_id=number // 6, hint=WITHIN)
    sql.pass_all(0, 1)
    words = (*HOUR, "--state", str(tmp_path / "state"), "--json")
    environment |= {"SQL_SHARDS": "2"}
    send, calls = OrderedSender.send, 0

    async def send_and_die(self: OrderedSender, events: list[Event], **options: bool) -> Sent:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Killed
        return await send(self, events, **options)

    monkeypatch.setattr(OrderedSender, "send", send_and_die)
    with pytest.raises(Killed):
        await replay(environment, *words)
    monkeypatch.setattr(OrderedSender, "send", send)

    run = await replay(environment, *words)
    finished = await replay(environment, *words)

    assert (run.code, run.json["skipped"], run.json["published"]) == (0, 6, 12)
    assert (finished.json["published"], finished.json["matched"]) == (12, 0)
    assert (await topic_counts(servicebus.admin_port))["duplicates_dropped"] == 0
    arrived = await received(servicebus, 12)
    assert sorted(name for ids in arrived.values() for name in ids) == sorted(f"e{number}" for number in range(12))


async def test_a_state_file_belongs_to_one_feed(
    environment: dict[str, str], sql: SqlDeployment, tmp_path: Path
) -> None:
    sql.named("e1", hint=WITHIN)
    sql.pass_all()
    words = (*HOUR, "--state", str(tmp_path / "state"))
    await replay(environment, *words)

    by_id = await replay(environment, *words, "--id", "e1")
    sql.connection.execute(f"select changefeed.drop_feed('{TABLE}'); select changefeed.setup_feed('{TABLE}')")
    set_up_again = await replay(environment, *words)

    assert (by_id.code, "differs in ids" in by_id.err) == (2, True)
    assert (set_up_again.code, "differs in container" in set_up_again.err) == (2, True)


async def test_a_database_that_is_away_is_an_error_of_the_service(environment: dict[str, str]) -> None:
    run = await replay(environment | {"SQL": "postgresql://relay:hidden@127.0.0.1:1/shop"}, *HOUR)

    assert (run.code, "cannot be read or written" in run.err, "hidden" in run.err) == (3, True, False)


async def test_the_role_of_readers_is_enough(
    environment: dict[str, str], sql: SqlDeployment, servicebus: ServiceBusServer
) -> None:
    sql.named("e1", hint=WITHIN)
    sql.pass_all()
    sql.connection.execute(
        f'create role app login; grant "changefeed.readers:{TABLE}" to app; '
        "grant usage on schema relay to app; grant select on relay.item to app"
    )

    run = await replay(environment | {"SQL": sql.url.replace("postgres@", "app@")}, *HOUR)

    assert run.code == 0
    assert sql.rows(f"select id from {OUTBOX}") == []
    assert await received(servicebus, 1) == {"k": ["e1"]}
