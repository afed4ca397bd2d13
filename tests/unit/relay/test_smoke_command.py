"""`python -m relay smoke`: what it makes of what came back, and what it says to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.cosmos.aio import ContainerProxy
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
)

from outbox_relay.operator.backends.backend import open_backend
from outbox_relay.operator.backends.cosmos.reader import CosmosCanary
from outbox_relay.operator.cli import smoke_receiver as subscriptions
from outbox_relay.operator.cli.servicebus_checks import ServiceBusFacts
from outbox_relay.operator.cli.smoke import Oversized, Smoke, result_of
from outbox_relay.operator.cli.smoke_diff import Difference
from outbox_relay.operator.cli.smoke_receiver import Session, choose, open_session
from relay.backends.findings import Gap, Why
from relay.config.settings import Settings
from relay.core.documents import SourceDocument
from relay.core.errors import ServiceError, StoreError, UsageError
from relay.core.events import Event
from relay.quarantine.items import Filter, RecordSummary
from relay.routes.mapping import Long
from relay.servicebus import messages
from tests.support.closing import CloseLater
from tests.support.operators import relay_command
from tests.support.outbox import sound
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.accounts import FakeContainer
from tests.unit.relay.commands import ENVIRONMENT, InMemoryRecords, cosmos_error
from tests.unit.relay.deployments import subscription_properties
from tests.unit.relay.receivers import Receiver, Subscription, refusals

SETTINGS = Settings.from_environment(ENVIRONMENT)
DOCUMENT = {"id": "d", "partitionKey": "smoke-k"}


class App(FakeContainer):
    """The deployed app, the outbox and the subscription in one: what is written comes out, or does not.

    Attributes:
        kinds: What was written so far: "canary", "large" or "small".
        messages: What the session gives next.
        now: The time, in seconds: waiting for what does not come is all that takes some.
        arrives_at: When the first message comes.
        unreadable: How many looks into quarantine fail.
        held_s: For how long the session's lock was asked for.
        alters: What of an event the app alters on its way.
        quarantines: The kinds that go to quarantine, and the reason of each.
        swallows: The kinds that come out nowhere.
        refuses_to_create: What is raised instead of writing.
        refuses_to_delete: What is raised instead of deleting.
        records: The quarantine.
        pauses: For how long the command has slept each time, in seconds, which takes no time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Any] = []
        self.now = 1000.0
        self.arrives_at = 0.0
        self.unreadable = 0
        self.held_s = 0.0
        self.alters: dict[str, Any] = {}
        self.quarantines: dict[str, str] = {"large": "message-too-large"}
        self.swallows: set[str] = set()
        self.refuses_to_create: Exception | None = None
        self.refuses_to_delete: Exception | None = None
        self.records = InMemoryRecords()
        self.kinds: list[str] = []
        self.pauses: list[float] = []

    async def create_item(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.refuses_to_create is not None:
            raise self.refuses_to_create
        stored = await super().create_item(body)
        text = body["data"].get("text")
        kind = "canary" if text is None else "large" if len(text) > 1_000_000 else "small"
        self.kinds.append(kind)
        if kind in self.quarantines:
            self.records.put(stored, self.quarantines[kind])
        elif kind not in self.swallows:
            event = sound({**stored, "data": {**stored["data"], **self.alters}})
            self.messages.append(_received(event))
        return stored

    async def delete_item(self, item: str, partition_key: str) -> None:
        if self.refuses_to_delete is not None:
            raise self.refuses_to_delete
        await super().delete_item(item, partition_key)

    @property
    def written(self) -> dict[str, dict[str, Any]]:
        """The documents in the outbox now, by id."""
        return {item["id"]: item for item in self.items()}

    async def receive(self, within_s: float) -> Any:
        if self.messages and self.arrives_at <= self.now + within_s:
            self.now = max(self.now, self.arrives_at)
            return self.messages.pop(0)
        self.now += within_s
        return None

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def _received(event: Event) -> Any:
    message = messages.plain(event)
    return SimpleNamespace(
        message_id=message.id,
        session_id=message.partition_key,
        partition_key=event.partition_key,
        subject=message.subject,
        content_type=messages.CONTENT_TYPE,
        # As the SDK decodes them: a long is a plain int.
        application_properties={
            name: int(value) if isinstance(value, Long) else value
            for name, value in message.application_properties.items()
        },
        body=[message.body],
    )


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, close_later: CloseLater) -> App:
    app = close_later(App())

    @asynccontextmanager
    async def opened_session(_: Settings, subscription: str, key: str, hold_s: float) -> AsyncIterator[App]:
        assert (subscription, key.startswith("smoke-")) == ("all", True)
        app.held_s = hold_s
        yield app

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[CosmosCanary]:
        yield CosmosCanary(cast(ContainerProxy, app))

    @asynccontextmanager
    async def opened_records(_: Settings) -> AsyncIterator[InMemoryRecords]:
        yield app.records

    find = app.records.find

    async def looked_into(chosen: Filter, limit: int | None = None) -> list[RecordSummary]:
        if app.unreadable:
            app.unreadable -= 1
            raise StoreError("the container 'quarantine' cannot be read")
        return await find(chosen, limit)

    monkeypatch.setattr(app.records, "find", looked_into)
    monkeypatch.setattr("outbox_relay.operator.cli.smoke.time", SimpleNamespace(monotonic=lambda: app.now))
    monkeypatch.setattr("outbox_relay.operator.cli.smoke.asyncio", SimpleNamespace(sleep=app.sleep))
    monkeypatch.setattr("outbox_relay.operator.cli.smoke.open_session", opened_session)
    monkeypatch.setattr("outbox_relay.operator.backends.cosmos.backend.CosmosOperatorBackend.open_canary", opened)
    monkeypatch.setattr("outbox_relay.operator.cli.smoke.open_records", opened_records)
    return app


async def smoke(*words: str, **settings: str) -> Any:
    return await relay_command(ENVIRONMENT | settings, "smoke", "--subscription", "all", *words)


# the canary


async def test_an_event_that_arrives_unaltered_is_all_that_is_asked_for(app: App) -> None:
    run = await smoke("--timeout", "30")
    data = (await smoke("--json")).json

    assert (run.code, run.err) == (0, "Waiting for the canary on 'all', at most 30 s.\n")
    assert run.out.startswith("ok: the event arrived on 'all' unaltered, ")
    assert (data["exitCode"], data["arrived"], data["differences"], data["remedies"]) == (0, True, [], [])
    assert 0 <= data["latencyMs"] < 10_000
    assert (app.written, app.kinds) == ({}, ["canary"] * 2)
    assert app.held_s == 60


async def test_an_event_that_was_altered_is_reported_with_the_remedy(app: App) -> None:
    app.alters = {"long": "x"}

    run = await smoke()
    data = (await smoke("--json")).json

    assert (run.code, data["exitCode"], data["arrived"]) == (1, 1, True)
    assert run.out.startswith("altered: the event arrived on 'all', but 1 value(s) differ\n  data.long: stored ")
    assert len(data["remedies"]) == 1
    assert app.written == {}


async def test_an_event_that_does_not_come_is_reported_with_where_to_look(app: App) -> None:
    app.swallows = {"canary"}

    run = await smoke("--timeout", "5")
    data = (await smoke("--json")).json

    lines = run.out.splitlines()
    assert (run.code, lines[0]) == (1, "missing: no message arrived on 'all' within 5 s")
    assert all(line.startswith("-> ") for line in lines[1:])
    assert (data["arrived"], data["latencyMs"], data["quarantined"]) == (False, None, None)
    assert data["remedies"] == [line[3:] for line in lines[1:]]
    assert app.written == {}


@pytest.mark.parametrize(("words", "waits_s"), [((), 60), (("--timeout", "30"), 30)])
async def test_it_waits_for_a_minute_by_default(app: App, words: tuple[str, ...], waits_s: int) -> None:
    app.arrives_at = app.now + waits_s - 1
    assert (await smoke(*words, "--json")).json["latencyMs"] == (waits_s - 1) * 1000

    began = app.now
    app.arrives_at = began + waits_s + 1
    assert (await smoke(*words)).code == 1
    assert app.now - began == waits_s


async def test_an_event_in_quarantine_is_reported_within_seconds_and_taken_out(app: App) -> None:
    app.quarantines, began = {"canary": "message-refused"}, app.now

    run = await smoke()
    data = (await smoke("--json")).json

    assert (run.code, run.out.splitlines()[0]) == (1, "quarantined: message-refused: said")
    assert (data["exitCode"], data["quarantined"]) == (1, "message-refused")
    assert (app.records.left, app.written) == ([], {})
    assert app.now - began <= 2 * 10


async def test_a_canary_that_parked_its_key_leaves_it_parked_no_more(app: App) -> None:
    app.quarantines, put = {"canary": "message-refused"}, app.records.put

    def park(document: dict[str, Any], *arguments: Any, **options: Any) -> str:
        app.records.parked_keys = [document["partitionKey"]]
        return put(document, *arguments, **options)

    app.records.put = park  # type: ignore[method-assign]

    assert (await smoke(RELAY_ON_POISON="park")).code == 1
    assert (app.records.left, app.records.parked_keys) == ([], [])


async def test_a_quarantine_that_cannot_be_read_is_reported_only_where_no_message_comes(app: App) -> None:
    app.arrives_at, app.unreadable = app.now + 50, 100
    assert (await smoke()).code == 0

    app.swallows = {"canary"}
    run = await smoke()

    assert run.code == 3
    assert "the container 'quarantine' cannot be read" in run.err
    assert app.written == {}


@pytest.mark.parametrize("error", [cosmos_error(500), TimeoutError()])
async def test_what_cannot_be_deleted_is_reported(app: App, error: Exception) -> None:
    app.refuses_to_delete = error

    run = await smoke()

    (identifier,) = app.written
    assert (run.code, f"not deleted, expires within 3600 s: document '{identifier}' of 'smoke-" in run.out) == (
        0,
        True,
    )


async def test_what_has_expired_meanwhile_is_not_left_behind(app: App) -> None:
    app.refuses_to_delete = cosmos_error(404)

    assert (await smoke("--json")).json["leftBehind"] == []


async def test_an_outbox_that_cannot_be_written_is_the_services_trouble(app: App) -> None:
    app.refuses_to_create = cosmos_error(403)
    app.refuses_to_delete = cosmos_error(404)

    assert (await smoke()).code == 3


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--timeout", "0"], 2),
        (["--timeout", "1800"], 0),
        (["--timeout", "1801"], 2),
        (["--pause", "1800"], 0),
        (["--pause", "1801"], 2),
    ],
)
async def test_durations_over_half_the_events_life_are_refused(app: App, words: list[str], code: int) -> None:
    assert (await smoke(*words)).code == code
    assert len(app.kinds) == (code == 0)


def result(**changes: Any) -> tuple[int, list[str], dict[str, Any]]:
    shown = result_of(Smoke("all", 60, SourceDocument.plain(DOCUMENT), **changes), open_backend(SETTINGS))
    return shown.code, list(map(str, shown.lines)), dict(shown.data)


def test_milliseconds_are_reported() -> None:
    code, lines, data = result(latency_s=1.2345)

    assert (code, data["latencyMs"]) == (0, 1234)
    assert lines == ["ok: the event arrived on 'all' unaltered, 1234 ms after its write"]


def test_of_many_differences_ten_are_shown_and_each_remedy_once() -> None:
    differences = [Difference(f"data.{number}", "1", "2", f"remedy {number % 2}") for number in range(12)]

    code, lines, data = result(latency_s=1.0, differences=differences)

    assert (code, len(data["differences"]), data["remedies"]) == (1, 12, ["remedy 0", "remedy 1"])
    assert lines == [
        "altered: the event arrived on 'all', but 12 value(s) differ",
        *(f"  data.{number}: stored 1, arrived 2" for number in range(10)),
        "  and 2 more",
        "-> remedy 0",
        "-> remedy 1",
    ]
    assert "more" not in " ".join(result(latency_s=1.0, differences=differences[:10])[1])


# the oversized event


async def test_an_oversized_event_goes_to_quarantine_and_small_ones_after_a_pause_arrive(app: App) -> None:
    run = await smoke("--oversized", "--timeout", "20", "--pause", "7", RELAY_ON_POISON="park")
    data = (await smoke("--oversized", "--pause", "0", "--json")).json

    assert (run.code, run.out.splitlines()[1:]) == (
        0,
        ["ok: an oversized event was quarantined, and 5 small ones after it arrived"],
    )
    assert (data["exitCode"], data["remedies"]) == (0, [])
    assert data["oversized"] == {"reason": "message-too-large", "sent": 5, "arrived": 5, "quarantined": []}
    assert run.err.endswith("The canary arrived. Writing an event that is too large, and small ones after it.\n")
    assert app.kinds == ["canary", "large", *["small"] * 5] * 2
    assert (app.written, app.records.left, app.pauses) == ({}, [], [7, 0])


async def test_between_the_oversized_event_and_the_small_ones_lies_a_minute_by_default(app: App) -> None:
    assert (await smoke("--oversized")).code == 0
    assert app.pauses == [60]


async def test_the_quarantine_is_looked_into_now_and_then(app: App) -> None:
    app.quarantines, app.swallows = {}, {"large"}

    await smoke("--oversized", "--timeout", "20")

    assert 20 <= sum(app.pauses) <= 22
    assert all(0.1 <= seconds <= 2 for seconds in app.pauses)


async def test_the_sessions_lock_is_held_to_the_end(app: App) -> None:
    await smoke("--oversized", "--timeout", "20", "--pause", "0")
    # The canary, the oversized event and five small ones, each to its time-out.
    assert app.held_s >= 7 * 20
    await smoke("--oversized", "--timeout", "1", "--pause", "1")
    assert app.held_s >= 7 + 1


async def test_no_oversized_event_is_sent_where_the_canary_did_not_arrive(app: App) -> None:
    app.swallows = {"canary"}

    data = (await smoke("--oversized", "--json")).json

    assert (data["exitCode"], data["oversized"], app.kinds) == (1, None, ["canary"])


async def test_an_oversized_event_that_would_block_or_be_sent_is_not_written(app: App) -> None:
    assert (await smoke("--oversized", RELAY_ON_POISON="block")).code == 2
    account = "AccountName=a;AccountKey=YQ=="
    assert (await smoke("--oversized", RELAY_LARGE="claim-check", BLOBS=account)).code == 2
    assert app.kinds == []


@pytest.mark.parametrize(("reasons", "reason"), [({}, None), ({"large": "message-refused"}, "message-refused")])
async def test_an_oversized_event_that_is_not_quarantined_as_such_fails(
    app: App, reasons: dict[str, str], reason: str | None
) -> None:
    app.quarantines = reasons
    app.swallows = {"large"}

    data = (await smoke("--oversized", "--timeout", "20", "--json")).json

    assert (data["exitCode"], data["oversized"]["reason"], data["oversized"]["sent"]) == (1, reason, 0)
    assert len(data["remedies"]) == 1
    assert (app.written, app.records.left, app.kinds) == ({}, [], ["canary", "large"])


async def test_small_events_that_do_not_arrive_fail_and_are_taken_back(app: App) -> None:
    app.quarantines["small"] = "message-too-large"
    app.records.parked_keys = []

    data = (await smoke("--oversized", "--pause", "0", "--json")).json

    assert (data["exitCode"], data["oversized"]["arrived"]) == (1, 0)
    assert data["oversized"]["quarantined"] == ["message-too-large"] * 5
    assert (app.written, app.records.left) == ({}, [])


async def test_small_events_that_do_not_arrive_in_order_do_not_count(app: App) -> None:
    await smoke()
    app.swallows = {"small"}
    receive = app.receive

    async def another(within_s: float) -> Any:
        return await receive(within_s) or _received(sound(OTHER))

    app.receive = another  # type: ignore[method-assign]

    data = (await smoke("--oversized", "--pause", "0", "--json")).json

    assert (data["exitCode"], data["oversized"]["arrived"]) == (1, 0)


OTHER = {"id": "another", "partitionKey": "k", "type": "domainEvent", "data": {"action": "A"}}


async def test_what_parked_a_key_leaves_it_parked_no_more(app: App) -> None:
    put = app.records.put

    def park(document: dict[str, Any], *arguments: Any, **options: Any) -> str:
        app.records.parked_keys = [document["partitionKey"]]
        return put(document, *arguments, **options)

    app.records.put = park  # type: ignore[method-assign]

    assert (await smoke("--oversized", "--pause", "0")).code == 0
    assert app.records.parked_keys == []


async def test_what_cannot_be_deleted_of_the_oversized_test_is_reported_too(app: App) -> None:
    app.refuses_to_delete = cosmos_error(500)

    left = (await smoke("--oversized", "--pause", "0", "--json")).json["leftBehind"]

    assert len(left) == 7
    assert sorted(each.split("'")[1] for each in left) == sorted(app.written)
    app.refuses_to_delete = cosmos_error(404)
    assert (await smoke("--oversized", "--pause", "0", "--json")).json["leftBehind"] == []


async def test_a_clean_up_that_hangs_is_given_up_and_reported(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    app.delete_item = hang  # type: ignore[method-assign]
    monkeypatch.setattr("outbox_relay.operator.backends.cosmos.reader.CLEAN_UP_S", 0.01)

    async with asyncio.timeout(WATCHDOG_S):
        data = (await smoke("--oversized", "--pause", "0", "--json")).json

    assert (data["exitCode"], len(data["leftBehind"])) == (0, 7)


@pytest.mark.parametrize(
    ("reason", "sent", "arrived", "quarantined", "ok", "says"),
    [
        ("message-too-large", 5, 5, [], True, "ok: an oversized event was quarantined, and 5 small ones"),
        ("message-too-large", 5, 4, [], False, "only 4 of 5 small ones arrived (none quarantined)"),
        ("message-too-large", 5, 3, ["x", "y"], False, "only 3 of 5 small ones arrived (x, y)"),
        ("message-too-large", 0, 0, [], False, "only 0 of 0"),
        ("set-aside", 5, 5, [], False, "quarantined: the oversized event, as set-aside, not as message-too-large"),
        (None, 0, 0, [], False, "missing: the oversized event was not quarantined"),
    ],
)
def test_what_became_of_the_oversized_event_is_reported(
    reason: str | None, sent: int, arrived: int, quarantined: list[str], ok: bool, says: str
) -> None:
    found = Oversized(reason, sent, arrived, quarantined)

    code, lines, data = result(latency_s=1.0, oversized=found)

    assert (found.ok, code, data["oversized"]["arrived"]) == (ok, 0 if ok else 1, arrived)
    assert says in lines[1]
    assert [line[3:] for line in lines[2:]] == data["remedies"]
    assert len(data["remedies"]) == (0 if ok else 1)


# the subscription


@pytest.mark.parametrize(
    ("wanted", "found", "chosen", "says"),
    [
        ("all", None, "all", ""),
        (None, [subscription_properties("one")], "one", ""),
        (None, [], None, "the subscriptions of 'domain-events' are none"),
        (
            None,
            [subscription_properties(name) for name in "ab"],
            None,
            "the subscriptions of 'domain-events' are 'a'",
        ),
        (None, Gap(Why.FORBIDDEN, "said"), None, "cannot be listed with these rights (said)"),
    ],
)
async def test_the_subscription_is_the_one_named_or_the_only_one(
    wanted: str | None, found: Any, chosen: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*_: Any) -> ServiceBusFacts:
        return ServiceBusFacts(Gap(Why.FORBIDDEN, ""), found, 1)

    monkeypatch.setattr("outbox_relay.operator.cli.smoke_receiver.read_servicebus", read)

    if chosen is None:
        with pytest.raises(UsageError) as raised:
            await choose(SETTINGS, wanted, None)
        assert says in str(raised.value)
    else:
        assert await choose(SETTINGS, wanted, None) == chosen


def session_of(*receivers: Receiver) -> Session:
    """A session that is locked by each of these in turn."""
    waiting = list(receivers)

    async def lock() -> Any:
        return await waiting.pop(0).__aenter__()

    return Session(lock)


async def test_a_session_gives_its_next_message_completed() -> None:
    receiver = Receiver(Subscription.of("m1", "m2"), quiet=1)
    session = session_of(receiver)

    for completed in (["m1"], ["m1", "m2"]):
        message = await session.receive(30)
        assert message is not None
        assert (message.message_id, receiver.completed) == (completed[-1], completed)
    # A long wait is made of short ones, so that its end is met.
    assert all(0 < wait <= 10 for wait in receiver.waits)


async def test_a_session_without_a_message_is_waited_for_no_longer_than_asked() -> None:
    receiver = Receiver()

    assert await session_of(receiver).receive(0.05) is None
    assert receiver.waits
    assert all(0 < wait <= 0.05 for wait in receiver.waits)


@pytest.mark.parametrize("error", [ServiceBusConnectionError(message="lost"), OSError("lost")])
async def test_a_session_that_is_lost_is_the_services_trouble(error: Exception) -> None:
    with pytest.raises(ServiceError, match="could not be received from"):
        await session_of(Receiver(fails=error)).receive(30)


async def test_a_session_whose_lock_is_lost_is_locked_again() -> None:
    subscription = Subscription.of("m1")
    lost, again = Receiver(subscription), Receiver(subscription)
    session = session_of(lost, again)
    await session.locked()
    lost.lose_lock()

    message = await session.receive(30)

    assert message is not None
    assert (message.message_id, lost.closed, again.completed) == ("m1", True, ["m1"])


def opens(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the subscription's receiver be this one."""

    @asynccontextmanager
    async def client(*_: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(get_subscription_receiver=lambda *_, **__: receiver)

    monkeypatch.setattr(subscriptions, "servicebus_client", client)


class Renewer:
    """Keeps for how long each lock is renewed."""

    renewed_s: dict[object, float] = {}  # noqa: RUF012

    async def __aenter__(self) -> Renewer:
        return self

    async def __aexit__(self, *_: object) -> None:
        """There is nothing to end."""

    def register(self, receiver: Receiver, session: object, max_lock_renewal_duration: float) -> None:
        assert receiver.session is session
        self.renewed_s[session] = max_lock_renewal_duration


async def test_a_sessions_lock_is_held_somewhat_longer_than_asked_and_then_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = Receiver(Subscription.of("m1"))
    opens(receiver, monkeypatch)
    monkeypatch.setattr(subscriptions, "AutoLockRenewer", Renewer)

    async with open_session(SETTINGS, "all", "k", 100) as session:
        message = await session.receive(1)
        assert message is not None
        assert (message.message_id, receiver.closed) == ("m1", False)

    assert 110 <= Renewer.renewed_s[receiver.session] <= 400
    assert receiver.closed


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (refusals()["no subscription"], UsageError, "does not exist"),
        (MessagingEntityNotFoundError(message="none"), UsageError, "does not exist"),
        (MessagingEntityDisabledError(message="closed"), UsageError, "is disabled for receiving"),
        (refusals()["no sessions"], UsageError, "does not require sessions"),
        (ServiceBusAuthorizationError(message="no"), ServiceError, "may not be received from"),
        (refusals()["wrong key"], ServiceError, "the namespace refused the credentials"),
        (ClientAuthenticationError("no"), ServiceError, "Could not acquire a token"),
        (refusals()["held"], ServiceError, "cannot be received from"),
        (refusals()["unreachable"], ServiceError, "cannot be received from"),
        (OSError("lost"), ServiceError, "cannot be received from"),
    ],
)
async def test_why_a_session_cannot_be_opened(
    error: Exception, kind: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver(refuses=error)
    opens(receiver, monkeypatch)

    with pytest.raises(kind) as raised:
        async with open_session(SETTINGS, "all", "k", 1):
            pytest.fail("it was opened")
    assert says in str(raised.value)
    assert "the subscription 'all' of the topic 'domain-events'" in str(raised.value)
    assert receiver.closed
