"""`python -m relay replay` on the local stack: what arrives again, what does not, and in which order."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from local.stack.environment import CONTAINERS, container_argument
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.testing import ManualClock
from outbox_relay.operator.cli.replay_run import ReplayState
from outbox_relay.operator.cli.sender import OrderedSender
from relay.backends.cosmos import feed
from relay.backends.cosmos.feed import CosmosReading
from relay.backends.outbox import Range
from relay.core.documents import SourceDocument, StoredDocument
from relay.routes.selection import BY_DEFAULT
from tests.integration.conftest import RelayMaker
from tests.support.broker import admin, inject, refuse, set_topic_status, stop_refusing, topic_counts
from tests.support.leases import TriggerLeases
from tests.support.operators import relay_command, relay_process, relay_subprocess
from tests.support.quarantine import quarantined
from tests.support.subscriber import Subscriber, properties
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

START = 1_770_634_800  # 2026-02-09T11:00:00Z
HOUR = ("--from", "2026-02-09T10:30:00Z", "--to", "2026-02-09T11:30:00Z")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START - 10.0)


@pytest.fixture
async def cosmos(clock: ManualClock) -> AsyncIterator[CosmosServer]:
    async with CosmosServer(clock=clock) as server:
        provision(server.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        yield server


@pytest.fixture
async def data(trigger: TriggerLeases, clock: ManualClock) -> ContainerProxy:
    clock.now = START - 1.0
    # The relay has passed whatever the tests commit, unless they say otherwise.
    await trigger.reach(1_000_000)
    return trigger.data


def new(identifier: str, key: str, action: str = "Named", **more: Any) -> dict[str, Any]:
    return {"id": identifier, "partitionKey": key, "type": "domainEvent", "data": {"action": action}, **more}


async def commit(data: ContainerProxy, *documents: dict[str, Any]) -> None:
    """One transaction, whose documents say in which order they happened: the feed does not."""
    await data.execute_item_batch(
        [("create", ({"order": order, **document},)) for order, document in enumerate(documents)],
        partition_key=documents[0]["partitionKey"],
    )


async def fill(data: ContainerProxy, keys: int, transactions: int, size: int) -> dict[str, list[str]]:
    """Transactions of several events each, all in one second; returns the ids by key, in commit order.

    In the order of their ids they would come the other way round.
    """
    ids: dict[str, list[str]] = {}
    for transaction in range(transactions):
        for key in (f"k{number}" for number in range(keys)):
            batch = [f"{key}-{9999 - transaction * size - number}" for number in range(size)]
            ids.setdefault(key, []).extend(batch)
            await commit(
                data,
                *(new(identifier, key, order=order) for order, identifier in enumerate(batch)),
                {"id": f"c{transaction}", "partitionKey": key, "type": "contact", "data": {"action": "Named"}},
            )
    return ids


async def until_noted(state: Path, chunks: int) -> None:
    """Wait until another process has recorded this many chunks in its state file."""

    def noted() -> bool:
        return state.exists() and state.read_bytes().count(b"\n") > chunks

    while not await asyncio.to_thread(noted):
        await look_again()  # what another process writes can only be looked at again and again


async def slow_down(servicebus: ServiceBusServer) -> int:
    """Have transfers take so long that a process does not end before it is stopped; the fault's id."""
    return await inject(servicebus.admin_port, kind="delay-ack", entity="domain-events", count=10_000, ms=100)


async def received(servicebus: ServiceBusServer, count: int) -> dict[str, list[str]]:
    """A subscriber's messages, exactly `count`."""
    subscriber = Subscriber(servicebus.connection_string)
    await subscriber.receive(count)
    await subscriber.receive_rest(wait_s=0.3)
    assert subscriber.count == count
    return subscriber.ids()


async def read(environment: dict[str, str], data: ContainerProxy) -> list[dict[str, Any]]:
    """The container's documents as the trigger would deliver them, but for their places in the feed.

    By these the relay would see that they are old and that its leases have passed them, and publish nothing.
    """
    feed = data.query_items_change_feed(start_time="Beginning")
    return [{name: value for name, value in item.items() if name != "_lsn"} async for item in feed]


async def test_events_are_published_in_commit_order_though_their_second_is_the_same(
    environment: dict[str, str], data: ContainerProxy, servicebus: ServiceBusServer
) -> None:
    ids = await fill(data, keys=12, transactions=4, size=5)

    run = await relay_command(environment, "replay", *HOUR, "--json")

    assert run.code == 0
    assert (run.json["matched"], run.json["published"], run.json["unread"]) == (240, 240, 0)
    assert await received(servicebus, 240) == ids


async def test_a_dry_run_and_the_run_name_the_same_large_and_discarded_events(
    environment: dict[str, str],
    data: ContainerProxy,
    servicebus: ServiceBusServer,
    make_relay: RelayMaker,
    trigger: TriggerLeases,
) -> None:
    large = {"action": "Named", "text": "x" * 300_000}
    await commit(data, new("e1", "k"), new("discarded", "k") | {"data": large})
    await commit(data, new("quarantined", "k") | {"data": large}, new("e2", "k"))
    feed = [item async for item in data.query_items_change_feed(start_time="Beginning")]
    # The relay has not passed them: it sets aside what is too large.
    await trigger.reach(0)
    await make_relay().handle(feed, "i1")
    await trigger.reach(1_000_000)
    (record,) = [
        each["id"]
        for each in (await relay_command(environment, "quarantine", "list", "--json")).json["records"]
        if each["documentId"] == "discarded"
    ]
    await relay_command(environment, "quarantine", "discard", record, "--yes", "--why", "a test order")
    words = ("replay", *HOUR, "--as-new", "--json")

    dry = await relay_command(environment, *words, "--dry-run")
    run = await relay_command(environment, *words)

    assert (dry.json["partitionKeys"], run.json["published"]) == ({"k": 2}, 2)
    assert dry.json["invalid"] == run.json["invalid"]
    assert [(each["id"], each["reason"]) for each in run.json["invalid"]] == [("quarantined", "message-too-large")]
    assert dry.json["discarded"] == run.json["discarded"]
    assert [(each["id"], each["why"]) for each in run.json["discarded"]] == [("discarded", "a test order")]
    assert len((await received(servicebus, 4))["k"]) == 4


async def test_with_their_own_ids_only_gaps_are_filled(
    environment: dict[str, str], data: ContainerProxy, servicebus: ServiceBusServer, make_relay: RelayMaker
) -> None:
    ids = await fill(data, keys=2, transactions=3, size=4)
    had = [document for document in await read(environment, data) if document["id"] not in ("k0-9995", "k1-9990")]
    await make_relay().handle(had, "i1")

    run = await relay_command(environment, "replay", *HOUR)

    assert (run.code, run.out) == (0, "24 event(s) published, 0 invalid, 0 not sent\n")
    assert (await topic_counts(servicebus.admin_port))["duplicates_dropped"] == 22
    arrived = await received(servicebus, 24)
    assert {key: sorted(its) for key, its in arrived.items()} == {key: sorted(its) for key, its in ids.items()}
    assert [arrived[key][-1] for key in ("k0", "k1")] == ["k0-9995", "k1-9990"]


async def test_as_new_everything_arrives_again_with_its_own_id_beside_the_new_one(
    environment: dict[str, str], data: ContainerProxy, servicebus: ServiceBusServer, make_relay: RelayMaker
) -> None:
    long = "x" * 128
    await commit(data, new("e1", "k", order=0), new(long, "k", order=1))
    await make_relay().handle(await read(environment, data), "i1")
    cloud = environment | {"RELAY_MESSAGE_FORMAT": "cloudevents", "RELAY_CLOUDEVENTS_SOURCE": "/contacts"}

    run = await relay_command(cloud, "replay", *HOUR, "--as-new", "--json")

    subscriber = Subscriber(servicebus.connection_string)
    await subscriber.receive(4)
    first, second = subscriber.messages["k"][2:]
    assert first.message_id == f"e1:replay:{run.json['run']}"
    assert second.message_id is not None
    assert (len(second.message_id), second.message_id.endswith(run.json["run"])) == (128, True)
    assert [properties(message)["originalId"] for message in (first, second)] == ["e1", long]
    assert properties(first)["cloudEvents:id"] == first.message_id
    assert "originalId" not in properties(subscriber.messages["k"][0])
    assert (await topic_counts(servicebus.admin_port))["duplicates_dropped"] == 0


class Killed(BaseException):
    """The end of the process, at this very place."""


def kill_at(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, call: int, *, afterwards: bool) -> None:
    """Let the `call`-th call end the process, before or after it does its work."""
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not afterwards:
            raise Killed
        result = original(*arguments)
        if calls == call:
            raise Killed
        return result

    monkeypatch.setattr(owner, name, counted)


@pytest.mark.parametrize(
    ("owner", "name", "afterwards", "sent_twice", "as_new"),
    [
        (OrderedSender, "send", False, False, ()),
        (ReplayState, "advance", False, True, ()),
        (ReplayState, "advance", False, True, ("--as-new",)),
        (ReplayState, "advance", True, False, ("--as-new",)),
    ],
    ids=["before a chunk", "accepted but not noted", "accepted but not noted, as new", "after noting it, as new"],
)
async def test_an_interrupted_replay_goes_on_where_it_was(
    environment: dict[str, str],
    data: ContainerProxy,
    servicebus: ServiceBusServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    afterwards: bool,
    sent_twice: bool,
    as_new: tuple[str, ...],
) -> None:
    monkeypatch.setattr(feed, "_PAGE_ITEMS", 6)
    ids = await fill(data, keys=5, transactions=4, size=3)
    words = ("replay", *HOUR, *as_new, "--state", str(tmp_path / "replay.state"), "--json")
    with monkeypatch.context() as patch:
        kill_at(patch, owner, name, 4, afterwards=afterwards)
        with pytest.raises(Killed):
            await relay_command(environment, *words)
    before = (await topic_counts(servicebus.admin_port))["accepted"]
    assert 0 < before < 60

    run = await relay_command(environment, *words)

    assert (run.code, run.json["published"], run.json["matched"]) == (0, 60, 60)
    assert 0 < run.json["skipped"] < 60
    dropped = (await topic_counts(servicebus.admin_port))["duplicates_dropped"]
    assert (dropped > 0) is sent_twice
    assert dropped == before - run.json["skipped"]
    arrived = await received(servicebus, 60)
    assert {key: [identifier.partition(":")[0] for identifier in its] for key, its in arrived.items()} == ids


@pytest.mark.slow
@pytest.mark.weekly
async def test_a_process_killed_in_the_middle_goes_on_where_it_was(
    environment: dict[str, str], data: ContainerProxy, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    ids = await fill(data, keys=12, transactions=2, size=99)
    state = tmp_path / "replay.state"
    one_by_one = environment | {"RELAY_SENDERS": "1"}
    words = ("replay", *HOUR, "--as-new", "--state", str(state), "--json")
    slow = await slow_down(servicebus)
    async with relay_process(one_by_one, *words) as process, asyncio.timeout(WATCHDOG_S):
        await until_noted(state, 2)
        process.send_signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
    await admin(servicebus.admin_port, "DELETE", f"faults/{slow}")

    run = await relay_subprocess(environment, *words)

    assert (run.code, run.json["matched"], run.json["published"]) == (0, 2376, 2376)
    assert run.json["skipped"] >= 500
    arrived = await received(servicebus, 2376)
    assert {key: [identifier.partition(":")[0] for identifier in its] for key, its in arrived.items()} == ids


async def test_a_key_that_fails_stops_there_the_others_go_on_and_the_rest_follows_later(
    environment: dict[str, str],
    data: ContainerProxy,
    servicebus: ServiceBusServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "_PAGE_ITEMS", 6)
    ids = await fill(data, keys=4, transactions=5, size=3)
    await refuse(servicebus.admin_port, ids["k2"][7], "amqp:internal-error")
    words = ("replay", *HOUR, "--state", str(tmp_path / "replay.state"), "--json")
    hasty = environment | {"RELAY_SEND_TIMEOUT_S": "2"}

    run = await relay_command(hasty, *words)

    assert (run.code, run.json["stopped"]) == (1, False)
    (failure,) = run.json["failures"]
    assert failure["partitionKey"] == "k2"
    assert run.json["published"] == 60 - failure["unsent"]

    await stop_refusing(servicebus.admin_port)
    again = await relay_command(environment, *words)

    assert (again.code, again.json["published"]) == (0, 60)
    assert (await topic_counts(servicebus.admin_port))["duplicates_dropped"] == 0
    assert await received(servicebus, 60) == ids


async def test_a_topic_that_refuses_everything_stops_it_with_exit_code_3(
    environment: dict[str, str],
    data: ContainerProxy,
    servicebus: ServiceBusServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "_PAGE_ITEMS", 6)
    await fill(data, keys=1, transactions=9, size=3)
    await set_topic_status(servicebus.admin_port, "SendDisabled")

    run = await relay_command(environment, "replay", *HOUR, "--json")

    assert (run.code, run.json["published"], run.json["stopped"]) == (3, 0, True)
    assert run.json["matched"] < 27
    assert "Set the topic's status to Active" in run.json["failures"][0]["error"]


async def test_documents_that_cannot_be_published_are_reported_and_hold_up_nobody(
    environment: dict[str, str],
    data: ContainerProxy,
    servicebus: ServiceBusServer,
    quarantine: ContainerProxy,
    tmp_path: Path,
) -> None:
    await commit(
        data,
        new("e1", "k"),
        new("bad", "k") | {"data": []},
        new("huge", "k") | {"data": {"action": "A", "text": "x" * 300_000}},
        new("half", "k", "half of a pair: \ud800"),
        new("half-traceparent", "k", traceparent="\udfff"),
        # Cosmos DB stores 128 levels; the Functions host would not deliver these.
        new("deep", "k") | {"data": {"action": "A", "deep": json.loads("[" * 120 + "]" * 120)}},
        new("verbatim", "k") | {"data": {"action": "A", "text": "\ud800"}},
        new("e2", "k"),
    )

    run = await relay_command(environment, "replay", *HOUR, "--state", str(tmp_path / "s"), "--json")
    again = await relay_command(environment, "replay", *HOUR, "--state", str(tmp_path / "s"), "--json")

    assert {each["id"]: each["reason"] for each in run.json["invalid"]} == {
        "bad": "data-not-object",
        "huge": "message-too-large",
        "half": "property-not-unicode",
        "half-traceparent": "property-not-unicode",
    }
    assert [(each.code, each.json["invalid"]) for each in (run, again)] == [(1, run.json["invalid"])] * 2
    assert await received(servicebus, 4) == {"k": ["e1", "deep", "verbatim", "e2"]}
    assert await quarantined(quarantine) == []


async def test_what_is_committed_after_the_start_is_not_part_of_it(
    environment: dict[str, str], data: ContainerProxy, clock: ManualClock, servicebus: ServiceBusServer
) -> None:
    await commit(data, new("e1", "k"))
    clock.now = 4_000_000_000.0
    await commit(data, new("later", "k"))

    run = await relay_command(environment, "replay", "--from", "0", "--to", "2099-01-01", "--json")

    assert (run.code, run.json["published"]) == (0, 1)
    assert await received(servicebus, 1) == {"k": ["e1"]}


async def test_an_event_that_expires_while_it_runs_is_not_missed(
    environment: dict[str, str], data: ContainerProxy, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(data, new("e1", "k"), new("e2", "k", ttl=60))
    pages = CosmosReading.pages_of

    def later(*arguments: Any) -> Any:
        clock.now = START + 100.0
        return pages(*arguments)

    monkeypatch.setattr(CosmosReading, "pages_of", later)

    run = await relay_command(environment, "replay", *HOUR, "--json")

    assert (run.code, run.json["matched"], run.json["unread"]) == (0, 1, 0)


async def test_events_that_the_feed_did_not_bring_are_reported_and_the_replay_is_not_finished(
    environment: dict[str, str], data: ContainerProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(data, new("e1", "k"))

    async def nothing(*_: Any) -> AsyncIterator[list[dict[str, Any]]]:
        for page in list[list[dict[str, Any]]]():
            yield page

    words = ("replay", *HOUR, "--state", str(tmp_path / "s"), "--json")
    with monkeypatch.context() as patch:
        patch.setattr(CosmosReading, "pages_of", nothing)
        run = await relay_command(environment, *words)

    assert (run.code, run.json["unread"]) == (1, 1)
    assert (await relay_command(environment, *words)).json["published"] == 1


async def test_reading_ends_when_everything_counted_has_come(
    data: ContainerProxy, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_PAGE_ITEMS", 2)
    for number in range(20):
        clock.now = START + 10.0 * number
        await commit(data, new(f"e{number}", "k"))
    reading = CosmosReading(data, BY_DEFAULT, Range(START + 40, START + 70, "k"))
    seen: list[str] = []
    held = CosmosReading._held

    def watched(self: CosmosReading, document: StoredDocument) -> SourceDocument | None:
        seen.append(document["id"])
        return held(self, document)

    monkeypatch.setattr(CosmosReading, "_held", watched)
    await reading.count()

    pages = [page async for page in reading.pages()]

    assert [item.fields["id"] for page in pages for item in page] == ["e4", "e5", "e6"]
    assert len(seen) <= 6


async def test_an_outbox_that_cannot_be_reached_is_exit_code_3(
    environment: dict[str, str], cosmos: CosmosServer
) -> None:
    missing = await relay_command(environment | {"COSMOS_CONTAINER": "nowhere"}, "replay", *HOUR, "--json")
    assert (missing.code, "the container 'nowhere' cannot be read" in missing.json["error"]) == (3, True)

    await cosmos.stop()
    assert (await relay_command(environment, "replay", *HOUR)).code == 3


@pytest.mark.slow
@pytest.mark.weekly
async def test_the_command_runs_as_a_process_with_an_env_file(
    environment: dict[str, str], data: ContainerProxy, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    ids = await fill(data, keys=2, transactions=2, size=2)
    env_file = tmp_path / "stack.env"
    env_file.write_text("".join(f"export {name}='{value}'\n" for name, value in environment.items()))

    dry = await relay_subprocess({}, "replay", *HOUR, "--dry-run", "--env-file", str(env_file), "--json")
    run = await relay_subprocess({}, "replay", *HOUR, "--env-file", str(env_file))

    assert (dry.code, json.loads(dry.out)["partitionKeys"]) == (0, {"k0": 4, "k1": 4})
    assert (run.code, run.out) == (0, "8 event(s) published, 0 invalid, 0 not sent\n")
    assert run.err == "events done: 8 of 8\n"
    assert await received(servicebus, 8) == ids


@pytest.mark.slow
@pytest.mark.weekly
async def test_ctrl_c_is_exit_code_130_and_the_replay_can_go_on(
    environment: dict[str, str], data: ContainerProxy, servicebus: ServiceBusServer, tmp_path: Path
) -> None:
    await fill(data, keys=12, transactions=2, size=99)
    state = tmp_path / "replay.state"
    words = ("replay", *HOUR, "--state", str(state), "--json")
    slow = await slow_down(servicebus)
    async with relay_process(environment | {"RELAY_SENDERS": "1"}, *words) as process, asyncio.timeout(WATCHDOG_S):
        await until_noted(state, 1)
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    await admin(servicebus.admin_port, "DELETE", f"faults/{slow}")

    assert (process.returncode, json.loads(out)["exitCode"]) == (130, 130)
    assert "Traceback" not in err.decode()
    assert "Interrupted." in err.decode()
    run = await relay_command(environment, *words)
    assert (run.code, run.json["published"]) == (0, 2376)


async def remove_leases(trigger: TriggerLeases) -> None:
    for lease in [item async for item in trigger.leases.read_all_items()]:
        await trigger.leases.delete_item(lease["id"], partition_key=lease["id"])


async def lagging(data: ContainerProxy, trigger: TriggerLeases) -> list[dict[str, Any]]:
    """Six events of one key, in three commits, of which the relay has passed the first one only."""
    await remove_leases(trigger)
    await commit(data, *(new(f"e{number}", "k", order=number) for number in (1, 2, 3)))
    await trigger.pass_all()
    await commit(data, new("e4", "k", order=0))
    await commit(data, *(new(f"e{number}", "k", order=number) for number in (5, 6)))
    feed_range = await data.feed_range_from_partition_key("k")
    feed = data.query_items_change_feed(feed_range=feed_range, start_time="Beginning")
    waiting = [item async for item in feed if item["id"] in ("e4", "e5", "e6")]
    return sorted(waiting, key=lambda item: item["id"])


async def test_what_the_relay_has_not_passed_is_left_to_it(
    environment: dict[str, str],
    data: ContainerProxy,
    servicebus: ServiceBusServer,
    make_relay: RelayMaker,
    trigger: TriggerLeases,
) -> None:
    waiting = await lagging(data, trigger)

    run = await relay_command(environment, "replay", *HOUR, "--json")
    await make_relay().handle(waiting, "i1")

    assert run.code == 1
    assert (run.json["matched"], run.json["published"], run.json["ahead"]) == (6, 3, {"k": 3})
    assert await received(servicebus, 6) == {"k": ["e1", "e2", "e3", "e4", "e5", "e6"]}


async def test_the_events_of_one_commit_go_in_their_own_order_wherever_the_feed_cuts_them(
    environment: dict[str, str],
    data: ContainerProxy,
    servicebus: ServiceBusServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "_PAGE_ITEMS", 1)
    for number in range(3):
        await commit(data, *(new(f"e{number}{place}", "k", order=9 - place) for place in range(10)))

    run = await relay_command(environment, "replay", *HOUR, "--json")

    assert run.code == 0
    expected = [f"e{number}{place}" for number in range(3) for place in reversed(range(10))]
    assert await received(servicebus, 30) == {"k": expected}
