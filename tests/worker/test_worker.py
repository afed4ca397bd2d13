"""function_app.py on the platform's own Python worker, azure-functions-runtime, without the host.

The host speaks protobuf with the worker; here plain objects with the same attributes replace its messages.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from outbox_relay.emulators.functions.context import RetryContext
from outbox_relay.emulators.functions.documents import to_text
from outbox_relay.emulators.functions.worker import platform
from outbox_relay.emulators.functions.worker.interface import Invocation
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.support.outbox import event
from tests.support.subscriber import received

pytest.importorskip("azure_functions_runtime")

ROOT = Path(__file__).resolve().parents[2]


async def index_app(folder: Path = ROOT) -> list[Any]:
    """The worker's report to the host about the functions it found in a folder."""
    return await platform.index(folder)


async def index_relay() -> Any:
    """The worker's report about the function that relays."""
    (found,) = [function for function in await index_app() if function.name == "relay"]
    return found


def just_committed(identifier: str, key: str) -> dict[str, Any]:
    return event(identifier, key) | {"_ts": int(time.time())}


async def invoke(function_id: str, documents: list[dict[str, Any]]) -> Any:
    """Run one invocation as the host would ask for it."""
    text = to_text(documents, rewrite_dates=False)
    retry = RetryContext(max_retry_count=-1)
    return await platform.invoke(function_id, "documents", Invocation("relay", "7a3e2c5e", text, retry))


@pytest.fixture(autouse=True)
async def fresh_app(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Have each test import the app anew, and close its relay, which otherwise lives as long as its process."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("COSMOS", "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;")
    sys.modules.pop("function_app", None)
    yield
    app = sys.modules.pop("function_app", None)
    for backend in [] if app is None else app.backends:
        await backend.relay.close()


async def test_the_worker_indexes_the_app_with_its_trigger_and_its_unlimited_retry_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SERVICEBUS", "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA")

    function = await index_relay()

    (binding,) = (json.loads(raw) for raw in function.raw_bindings)
    assert binding["type"] == "cosmosDBTrigger"
    assert binding["connection"] == "COSMOS"
    assert binding["containerName"] == "data"
    assert binding["leaseContainerName"] == "leases"
    assert binding["startFromBeginning"] is True
    assert binding["createLeaseContainerIfNotExists"] is False
    assert function.retry_options.max_retry_count == -1
    assert function.retry_options.retry_strategy == "exponential_backoff"


def test_the_deployment_sets_the_variables_of_telemetry_that_this_worker_reads() -> None:
    deployed = (ROOT / "infra" / "modules" / "functions.bicep").read_text(encoding="utf-8")
    constants = importlib.import_module("azure_functions_runtime.utils.constants")
    read = [
        constants.PYTHON_ENABLE_OPENTELEMETRY,
        constants.PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY,
        constants.PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME,
    ]

    assert [name for name in read if f"\n  {name}: " not in deployed] == []


async def test_the_worker_invokes_the_app_and_the_events_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    entities = Entities.from_file(ROOT / "infra" / "emulators" / "Config.json")
    async with ServiceBusServer(entities) as servicebus:
        monkeypatch.setenv("SERVICEBUS", servicebus.connection_string)
        function = await index_relay()

        answer = await invoke(
            function.function_id,
            [just_committed("1", "a"), just_committed("2", "a"), {"id": "c", "type": "contact"}],
        )

        assert answer.result.status == 1, getattr(answer.result, "exception", None)
        subscriber = await received(servicebus.connection_string, 2)
        assert subscriber.ids() == {"a": ["1", "2"]}


async def test_an_invocation_whose_events_were_not_accepted_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens on the discard port: every send fails.
    monkeypatch.setenv(
        "SERVICEBUS",
        "Endpoint=sb://127.0.0.1:9;SharedAccessKeyName=k;SharedAccessKey=AAAA;UseDevelopmentEmulator=true;",
    )
    monkeypatch.setenv("RELAY_SEND_TIMEOUT_S", "1")
    function = await index_relay()

    answer = await invoke(function.function_id, [just_committed("1", "a")])

    assert answer.result.status == 0
    assert "1 event(s) of 1 partition key(s) were not accepted" in answer.result.exception.message
