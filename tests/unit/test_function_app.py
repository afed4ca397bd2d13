"""The app's options of its trigger: guarantees rest on each of them. On every Python, without the worker."""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.settings import settings as azure_settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan
from azure.functions import meta
from azure.functions.cosmosdb import CosmosDBTriggerConverter

from local.stack.parts import ROOT
from outbox_relay.emulators.functions.app import Function, load_functions
from outbox_relay.emulators.functions.retries import UNLIMITED, RetryPolicy
from relay.backends.cosmos.source import ChangeBatch
from relay.core.errors import SettingsError


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> dict[str, Function]:
    """The app's functions for an outbox in Cosmos DB, as a host indexes them."""
    monkeypatch.setenv("COSMOS", "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;")
    monkeypatch.setenv("SERVICEBUS", "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA")
    monkeypatch.setenv("COSMOS_DATABASE", "shop")
    monkeypatch.setenv("COSMOS_CONTAINER", "orders")
    monkeypatch.setenv("COSMOS_LEASE_CONTAINER", "orders-leases")
    monkeypatch.setenv("RELAY_MAX_ITEMS", "123")
    monkeypatch.setenv("RELAY_POLL_DELAY_MS", "250")
    return {each.name: each for each in load_functions(ROOT)}


@pytest.fixture
def function(functions: dict[str, Function]) -> Function:
    """The function that relays."""
    return functions["relay"]


def test_a_failed_batch_is_retried_without_end(function: Function) -> None:
    assert function.retry_policy == RetryPolicy(max_retry_count=UNLIMITED, minimum_s=1, maximum_s=60)


def test_the_trigger_begins_at_the_beginning_and_reads_what_the_settings_say(function: Function) -> None:
    assert function.trigger == {
        "direction": "IN",
        "type": "cosmosDBTrigger",
        "name": "documents",
        "connection": "COSMOS",
        "databaseName": "shop",
        "containerName": "orders",
        "leaseContainerName": "orders-leases",
        "createLeaseContainerIfNotExists": False,
        "startFromBeginning": True,
        "maxItemsPerInvocation": 123,
        "feedPollDelay": 250,
    }


def test_an_sql_outbox_is_read_by_a_timer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQL", "postgresql://127.0.0.1:1/shop")
    monkeypatch.setenv("SERVICEBUS", "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA")
    monkeypatch.delenv("COSMOS", raising=False)

    (found,) = indexed()

    assert found.get_function_name() == "relay_sql"
    trigger = found.get_trigger().get_dict_repr()
    assert (trigger["type"], trigger["schedule"]) == ("timerTrigger", "0 * * * * *")


def test_each_of_two_outboxes_has_a_trigger(function: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQL", "postgresql://127.0.0.1:1/shop")

    assert sorted(found.get_function_name() for found in indexed()) == ["relay", "relay_age", "relay_sql"]


FILE = """
[outboxes.default]

[outboxes.orders]
container = "sales"
lease_container = "order-leases"

[outboxes.old]
feed = "old.event"

[destinations.audit]
queue = "audit"

[[routes]]
outbox = "old"
to = ["audit"]

[[routes]]
to = ["audit", "default"]
"""


def test_each_stream_of_a_file_has_a_trigger_with_leases_of_its_own(
    function: Function, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "relay.toml").write_text(FILE)
    monkeypatch.setenv("RELAY_FILE", str(tmp_path / "relay.toml"))
    monkeypatch.setenv("SQL", "postgresql://127.0.0.1:1/shop")

    found = {each.get_function_name(): each.get_trigger().get_dict_repr() for each in indexed()}

    read = {name: trigger for name, trigger in found.items() if trigger["type"] == "cosmosDBTrigger"}
    assert {
        name: (each["containerName"], each["leaseContainerName"], each.get("leaseContainerPrefix"))
        for name, each in read.items()
    } == {
        "relay": ("orders", "orders-leases", None),
        "relay_audit": ("orders", "orders-leases", "audit."),
        "relay_orders": ("sales", "order-leases", "orders."),
        "relay_orders_audit": ("sales", "order-leases", "orders-audit."),
    }
    assert sorted(found.keys() - read.keys()) == [
        *("relay_age", "relay_age_audit", "relay_age_orders", "relay_age_orders_audit"),
        *("relay_sql", "relay_sql_audit", "relay_sql_old_audit"),
    ]


def test_the_leases_are_looked_at_once_a_minute_without_a_stored_status(functions: dict[str, Function]) -> None:
    assert functions.keys() == {"relay", "relay_age"}
    trigger = functions["relay_age"].trigger
    assert (trigger["type"], trigger["schedule"]) == ("timerTrigger", "0 * * * * *")
    assert (trigger["runOnStartup"], trigger["useMonitor"]) == (False, False)
    # A tick that fails has a successor.
    assert functions["relay_age"].retry_policy is None


async def test_each_tick_looks_once_with_what_the_process_has_once(
    functions: dict[str, Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []

    async def look(self: Any) -> None:
        looks.append(self)

    monkeypatch.setattr("relay.backends.cosmos.ages.LeaseWatch.look", look)
    tick = functions["relay_age"].call
    await tick(timer=None)
    await tick(timer=None)

    # What it has reported is kept from one tick to the next.
    assert len(looks) == 2
    assert looks[0] is looks[1]


def indexed() -> list[Any]:
    """The functions that the app registers with the current settings."""
    spec = importlib.util.spec_from_file_location("function_app_indexed_again", ROOT / "function_app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    functions: list[Any] = module.app.get_functions()
    return functions


@pytest.fixture
async def module(function: Function) -> Any:
    """The app's module, with what the process has once."""
    return sys.modules["function_app"]


async def test_the_process_has_one_relay_for_all_its_invocations(module: Any) -> None:
    # The ledger of what was accepted and the evidence of what is refused are the relay's: a new one forgets both.
    [backend] = module.backends
    relay = backend.relay

    assert backend.relay is relay
    assert relay._publisher.destination == "domain-events"
    await relay.close()


async def test_the_attempts_deadline_is_checked_against_the_hosts_time_out(
    function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_ATTEMPT_TIMEOUT_S", "541")
    (refusal,) = load_functions(ROOT)

    with pytest.raises(SettingsError, match="functionTimeout"):
        await refusal.call(timer=None)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("SERVICEBUS", None, "SERVICEBUS"),
        ("RELAY_MAX_ITEMS", "many", "RELAY_MAX_ITEMS is 'many'"),
        ("RELAY_FILE", 'unknown = "x"', "unknown"),
        (
            "RELAY_FILE",
            '[destinations.a]\nqueue = "a"\nconnection = "ORDERS_BUS"\n[[routes]]\nto = ["a"]',
            "ORDERS_BUS",
        ),
    ],
    ids=["missing", "wrong", "unknown field of the file", "namespace of the file missing"],
)
async def test_with_wrong_settings_one_function_fails_each_minute_and_names_them(
    function: Function, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str | None, text: str
) -> None:
    if name == "RELAY_FILE":
        (tmp_path / "relay.toml").write_text(str(value))
        value = str(tmp_path / "relay.toml")
    monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)

    (refusal,) = load_functions(ROOT)

    assert refusal.name == "relay_settings"
    assert (refusal.trigger["schedule"], refusal.trigger["runOnStartup"]) == ("0 * * * * *", True)
    with pytest.raises(SettingsError, match=text):
        await refusal.call(timer=None)


TWO_STREAMS = """
[destinations.default]
topic = "domain-events"

[destinations.orders]
queue = "orders"

[[routes]]
to = ["default", "orders"]
"""


@pytest.mark.parametrize(
    ("source", "names"), [("COSMOS", ["relay", "relay_orders"]), ("SQL", ["relay_sql", "relay_sql_orders"])]
)
def test_the_page_on_routes_names_the_functions_of_streams(
    function: Function, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, names: list[str]
) -> None:
    page = " ".join((ROOT / "docs/routes.md").read_text(encoding="utf-8").split())
    (tmp_path / "relay.toml").write_text(TWO_STREAMS)
    monkeypatch.setenv("RELAY_FILE", str(tmp_path / "relay.toml"))
    if source == "SQL":
        monkeypatch.delenv("COSMOS")
        monkeypatch.setenv("SQL", "postgresql://127.0.0.1:1/outbox")

    found = sorted(each.name for each in load_functions(ROOT) if not each.name.startswith("relay_age"))

    assert found == names
    # Names of streams with a hyphen are in the test of triggers.
    written = page.partition("FUNCTION is ")[2].partition("; a hyphen becomes an underscore")[0]
    assert [name for name in re.findall(r"`(\w+)`", written) if name in names] == names


def test_loading_the_app_quietens_the_sdks_traces_nothing_of_them_and_has_the_trigger_hand_over_text(
    function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CosmosDBTriggerConverter, "decode", None)
    monkeypatch.setattr(logging.getLogger("azure"), "level", logging.NOTSET)
    azure_settings.tracing_implementation = OpenTelemetrySpan

    load_functions(ROOT)

    assert azure_settings.tracing_implementation() is None

    assert logging.getLogger("azure").level > logging.INFO
    decoded = CosmosDBTriggerConverter.decode(meta.Datum('[{"n": 1E2}]', "string"), trigger_metadata=None)
    assert getattr(decoded, "text", None) == '[{"n": 1E2}]'


def test_the_function_has_the_name_that_runbook_and_alerts_know(function: Function) -> None:
    assert function.name == "relay"


async def test_an_invocation_is_handed_on_with_its_id_and_its_retries(
    function: Function, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[tuple[Any, ...]] = []

    async def handle(*given: Any) -> None:
        handled.append(given)

    [backend] = module.backends
    monkeypatch.setattr(backend, "relay", SimpleNamespace(handle=handle))
    context = SimpleNamespace(invocation_id="i", retry_context=SimpleNamespace(retry_count=4))

    batch = ChangeBatch('[{"id": "1"}]')
    await function.call(batch, context)

    assert [(given[0] is batch, *given[1:]) for given in handled] == [(True, "i", 4)]
