"""`python -m relay check`: what it reads of the services, and what it prints and ends with."""

from __future__ import annotations

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

from outbox_relay.operator.cli.servicebus_checks import read_servicebus
from relay.backends.findings import Gap, Why
from relay.config.clients import administration_address
from relay.config.settings import Settings
from tests.support.operators import Run, relay_command
from tests.unit.relay.commands import ENVIRONMENT, token_error
from tests.unit.relay.deployments import Account, Namespace, serve_account, serve_namespace

SETTINGS = Settings.from_environment(ENVIRONMENT)


def http(status: int) -> HttpResponseError:
    error = HttpResponseError(message=f"status {status}")
    error.status_code = status
    return error


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account()
    serve_account(monkeypatch, account)
    return account


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> Namespace:
    namespace = Namespace()
    serve_namespace(monkeypatch, namespace)
    return namespace


# what is read


async def test_the_topic_and_its_subscriptions_are_read(namespace: Namespace) -> None:
    facts = await read_servicebus(SETTINGS, None)

    assert (facts.topic, facts.subscriptions) == (namespace.topic, namespace.subscriptions)
    assert facts.sending == 262_144


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
    assert (facts.sending.why, facts.topic) == (why, namespace.topic)


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
    found = administration_address(given, environment)

    assert (found and found.text) == address


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


@pytest.mark.usefixtures("account", "namespace")
async def test_it_says_how_events_are_sent() -> None:
    pool = await relay_command(ENVIRONMENT | {"RELAY_PIPELINED": "false"}, "check")

    assert "events are sent over one connection" in (await check()).out
    assert "events are sent by a pool of senders, as RELAY_PIPELINED is false" in pool.out


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
