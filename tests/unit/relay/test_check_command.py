"""`python -m relay check`: what it reads of the services, and what it prints and ends with."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from relay.cli.topic import SubscriptionFacts, TopicFacts, read_servicebus
from relay.clients import administration_address
from relay.cosmos.inspection import ContainerFacts, LockFacts, read_cosmos
from relay.cosmos.scan import scan
from relay.errors import ServiceError
from relay.findings import Gap, Level, Why
from relay.settings import Settings
from tests.support.operators import Run, relay_command
from tests.unit.relay.commands import ENVIRONMENT, cosmos_error, token_error
from tests.unit.relay.deployments import Account, Namespace

SETTINGS = Settings.from_environment(ENVIRONMENT)


def http(status: int) -> HttpResponseError:
    error = HttpResponseError(message=f"status {status}")
    error.status_code = status
    return error


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account()

    monkeypatch.setattr("relay.cosmos.containers.cosmos_client", lambda _: account)
    return account


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> Namespace:
    namespace = Namespace()
    for client in ("servicebus_client", "servicebus_administration_client"):
        monkeypatch.setattr(f"relay.cli.topic.{client}", lambda *_: namespace)
    return namespace


# what is read


async def test_the_containers_are_read_by_the_settings_that_name_them(account: Account) -> None:
    account.items["leases"] = [{"id": "host.lock", "_ts": int(time.time()) - 100}]

    facts = await read_cosmos(SETTINGS)

    assert facts.database is None
    assert facts.containers == {
        "COSMOS_CONTAINER": ContainerFacts(("/partitionKey",), -1),
        "COSMOS_LEASE_CONTAINER": ContainerFacts(("/id",), -1),
        "COSMOS_QUARANTINE_CONTAINER": ContainerFacts(("/partitionKey",), None),
    }
    (lock,) = facts.locks if isinstance(facts.locks, list) else []
    assert isinstance(lock, LockFacts)
    assert (lock.id, 99 <= lock.age_s < 160) == ("host.lock", True)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (cosmos_error(404), Why.MISSING),
        (cosmos_error(403), Why.FORBIDDEN),
        (cosmos_error(401), Why.REFUSED),
        (cosmos_error(500), Why.UNREACHABLE),
        (ClientAuthenticationError("no token"), Why.REFUSED),
        (OSError("no way"), Why.UNREACHABLE),
        (TimeoutError(), Why.UNREACHABLE),
    ],
)
async def test_why_a_database_cannot_be_read(account: Account, error: Exception, why: Why) -> None:
    account.database = error

    facts = await read_cosmos(SETTINGS)

    assert isinstance(facts.database, Gap)
    assert facts.database.why is why
    # An identity that may not read the database may still read its containers.
    assert len(facts.containers) == (3 if why is Why.FORBIDDEN else 0)


@pytest.mark.parametrize("status", [404, 403])
async def test_a_container_that_cannot_be_read_leaves_the_others(account: Account, status: int) -> None:
    account.containers["data"] = cosmos_error(status)

    found = (await read_cosmos(SETTINGS)).containers

    assert [isinstance(facts, Gap) for facts in found.values()] == [True, False, False]


@pytest.mark.parametrize(("container", "gap"), [(None, True), (cosmos_error(404), False)])
async def test_locks_that_cannot_be_read_are_reported_unless_the_container_is(
    account: Account, container: Exception | None, gap: bool
) -> None:
    account.items["leases"] = cosmos_error(403)
    if container is not None:
        account.containers["leases"] = container

    assert isinstance((await read_cosmos(SETTINGS)).locks, Gap) is gap


async def test_an_account_that_cannot_be_reached_is_one_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    account.refuses = ClientAuthenticationError("no token")
    monkeypatch.setattr("relay.cosmos.containers.cosmos_client", lambda _: account)

    facts = await read_cosmos(SETTINGS)

    assert isinstance(facts.database, Gap)
    assert (facts.database.why, facts.containers) == (Why.REFUSED, {})


@pytest.mark.usefixtures("namespace")
async def test_the_topic_and_its_subscriptions_are_read() -> None:
    facts = await read_servicebus(SETTINGS, None)

    assert facts.topic == TopicFacts("Active", True, timedelta(minutes=10), True, timedelta(days=14))
    assert facts.subscriptions == [SubscriptionFacts("all", "Active", True, True, timedelta(days=14))]
    assert facts.sending == 262_144


async def test_what_the_endpoint_does_not_tell_is_not_made_up(namespace: Namespace) -> None:
    for name in vars(namespace.topic):
        setattr(namespace.topic, name, None)

    assert (await read_servicebus(SETTINGS, None)).topic == TopicFacts(None, None, None, None, None)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ResourceNotFoundError("none"), Why.MISSING),
        (http(401), Why.FORBIDDEN),
        (http(403), Why.FORBIDDEN),
        (http(500), Why.UNREACHABLE),
        (ClientAuthenticationError("no token"), Why.FORBIDDEN),
        (OSError("no way"), Why.UNREACHABLE),
        (ValueError("no answer of this kind"), Why.UNREACHABLE),
    ],
)
async def test_why_the_management_endpoint_does_not_tell(namespace: Namespace, error: Exception, why: Why) -> None:
    namespace.subscriptions = error
    subscriptions = (await read_servicebus(SETTINGS, None)).subscriptions
    namespace.topic = error
    topic = (await read_servicebus(SETTINGS, None)).topic

    assert [gap.why for gap in (subscriptions, topic) if isinstance(gap, Gap)] == [why, why]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (MessagingEntityNotFoundError(message="none"), Why.MISSING),
        (MessagingEntityDisabledError(message="closed"), Why.MISSING),
        (
            ServiceBusAuthenticationError(message="404", error=token_error(404)),
            Why.MISSING,
        ),
        (ServiceBusError("else", error=token_error(500)), Why.UNREACHABLE),
        (ServiceBusAuthenticationError(message="refused"), Why.REFUSED),
        (ServiceBusAuthorizationError(message="refused"), Why.REFUSED),
        (ClientAuthenticationError("no token"), Why.REFUSED),
        (ServiceBusConnectionError(message="no way"), Why.UNREACHABLE),
        (OSError("no way"), Why.UNREACHABLE),
    ],
)
async def test_why_the_topic_cannot_be_sent_to(namespace: Namespace, error: Exception, why: Why) -> None:
    namespace.link = error

    facts = await read_servicebus(SETTINGS, None)

    assert isinstance(facts.sending, Gap)
    assert (facts.sending.why, isinstance(facts.topic, TopicFacts)) == (why, True)


@pytest.mark.parametrize(
    ("given", "environment", "address"),
    [
        ("a", {"SERVICEBUS_ADMIN": "b"}, "a"),
        (None, {"SERVICEBUS_ADMIN": " b "}, "b"),
        (None, {"SERVICEBUS_ADMIN": " "}, None),
        (None, {}, None),
    ],
)
def test_the_option_outweighs_the_environment(
    given: str | None, environment: dict[str, str], address: str | None
) -> None:
    assert administration_address(given, environment) == address


# what is reported


async def check(*words: str) -> Run:
    return await relay_command(ENVIRONMENT, "check", *words)


@pytest.mark.usefixtures("account", "namespace")
async def test_a_sound_deployment_is_all_ok() -> None:
    run = await check("--strict")
    data = (await check("--json")).json

    *lines, summary = run.out.splitlines()
    assert run.code == 0
    assert lines[0] == "ok       the settings are complete and well-formed"
    assert all(line.startswith("ok ") for line in lines)
    assert summary == f"{len(lines)} ok, 0 warning, 0 unknown, 0 error"
    assert data["counts"] == {"ok": len(lines), "warning": 0, "unknown": 0, "error": 0}
    assert "scanned" not in data


async def test_each_level_counts_as_the_options_say(account: Account, namespace: Namespace) -> None:
    account.containers["data"]["defaultTtl"] = None
    assert [(await check(*words)).code for words in ([], ["--strict"])] == [0, 1]

    namespace.topic.status = None
    assert [(await check(*words)).code for words in ([], ["--allow-unknown"])] == [1, 0]

    namespace.topic.status = "Disabled"
    run = await check("--allow-unknown")
    assert run.code == 1
    assert "error    SERVICEBUS_TOPIC 'domain-events' is Disabled\n         -> Set its" in run.out


@pytest.mark.usefixtures("account")
async def test_a_service_that_cannot_be_reached_has_an_exit_code_of_its_own(namespace: Namespace) -> None:
    namespace.link = OSError("no way")

    assert (await check("--allow-unknown")).code == 3


@pytest.mark.usefixtures("account", "namespace")
@pytest.mark.parametrize(
    ("words", "settings", "says"),
    [
        (["--min-window", "601"], {}, "within PT10M only, not within PT10M1S"),
        (["--min-ttl", "P15D"], {}, "keeps messages for P14D"),
        ([], {"RELAY_DUPLICATE_WINDOW_S": "601"}, "RELAY_DUPLICATE_WINDOW_S is PT10M1S"),
    ],
)
async def test_what_is_asked_of_the_topic_can_be_more(
    words: list[str], settings: dict[str, str], says: str
) -> None:
    run = await relay_command(ENVIRONMENT | settings, "check", *words, "--strict")

    assert (run.code, says in run.out) == (1, True)


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("window", "ttl", "code"),
    [("PT10M", "P1D", 0), ("PT9M59S", "P1D", 1), ("PT10M", "PT23H59M59S", 1)],
)
async def test_ten_minutes_and_a_day_are_asked_for_by_default(
    namespace: Namespace, window: str, ttl: str, code: int
) -> None:
    namespace.topic.duplicate_detection_history_time_window = window
    namespace.topic.default_message_time_to_live = ttl
    settings = ENVIRONMENT | {"RELAY_DUPLICATE_WINDOW_S": "20"}

    assert (await relay_command(settings, "check", "--strict")).code == code


# the scan


def lease(token: str, lsn: int | None, bounds: tuple[str, str] = ("", "FF")) -> dict[str, Any]:
    return {
        "id": f"host.test_db_coll..{token}",
        "FeedRange": {"Range": {"min": bounds[0], "max": bounds[1]}},
        "ContinuationToken": None if lsn is None else f'"{lsn}"',
    }


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"x": value}
    return value


def item(identifier: str, lsn: int | None, **changes: Any) -> dict[str, Any]:
    found = {"id": identifier, "partitionKey": "k", "type": "contact", **changes}
    return found if lsn is None else {**found, "_lsn": lsn}


@pytest.mark.usefixtures("namespace")
async def test_what_the_host_cannot_hand_over_is_named(account: Account) -> None:
    account.items["leases"] = [lease("0", 5)]
    account.items["data"] = [
        *(item("passed", 5, data=nested(63)), item("flat", 6, data=nested(62)), item("deep", 7, data=nested(63))),
        *(
            item("long", 8, number=10**380),
            item("short", 9, number=10**379),
            item("nowhere", None, data=nested(70)),
        ),
    ]

    run = await check("--scan")
    data = (await check("--scan", "--json")).json

    assert (run.code, data["exitCode"], data["scanned"]) == (1, 1, 5)
    assert [(each["id"], each["depth"], each["integerCharacters"], each["lsn"]) for each in data["obstacles"]] == [
        ("deep", 64, 0, 7),
        ("long", 1, 381, 8),
        ("nowhere", 71, 0, None),
    ]
    assert {each["lease"] for each in data["obstacles"]} == {"host.test_db_coll..0"}
    deep, long, _ = [line for line in run.out.splitlines() if line.startswith("error ")]
    assert "document 'deep' with the partition key 'k' (type 'contact', _lsn 7) is nested 64 levels deep" in deep
    assert "document 'long' with the partition key 'k' (type 'contact', _lsn 8) has an integer of 381" in long
    assert account.reads_any_length
    assert sys.get_int_max_str_digits() > 0


async def test_each_lease_is_read_from_where_it_stands(account: Account) -> None:
    account.items["leases"] = [
        *(lease("0", 5, ("", "10")), lease("1", None, ("10", "20")), lease("0-1-2", 5, ("20", "FF"))),
    ]
    account.items["data"] = [item("e", 6)]

    found = await scan(SETTINGS)

    (finding,) = found.findings
    assert (found.documents, found.obstacles, finding.level) == (3, [], Level.OK)
    assert "can deliver all 3 document(s)" in finding.what
    shown, beginning, epk = account.read_from
    assert (shown["continuation"], list(shown["headers"].values())) == ('"5"', ["0"])
    for reading, bounds in ((beginning, ("10", "20")), (epk, ("20", "FF"))):
        assert reading["feed_range"] == {
            "Range": {"min": bounds[0], "max": bounds[1], "isMinInclusive": True, "isMaxInclusive": False}
        }
        assert (reading["start_time"], "continuation" in reading) == ("Beginning", False)


async def test_without_leases_the_feed_is_not_scanned(account: Account) -> None:
    found = await scan(SETTINGS)

    (finding,) = found.findings
    assert (found.documents, found.obstacles, finding.level) == (0, [], Level.UNKNOWN)
    assert "has no leases for the outbox container" in finding.what
    assert account.read_from == []


@pytest.mark.parametrize("error", [cosmos_error(403), OSError("no way"), ServiceError("said")])
async def test_a_feed_that_cannot_be_read_is_unknown(account: Account, error: Exception) -> None:
    account.items["leases"] = error

    found = await scan(SETTINGS)

    assert [(finding.level, "was not scanned" in finding.what) for finding in found.findings] == [
        (Level.UNKNOWN, True)
    ]
    assert sys.get_int_max_str_digits() > 0
