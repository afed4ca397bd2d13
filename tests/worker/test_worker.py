"""function_app.py on the platform's own Python worker, azure-functions-runtime, without the host.

The host speaks protobuf with the worker; here plain objects with the same attributes stand in for its messages.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from local.servicebus.entities import Entities
from local.servicebus.server import ServiceBusServer
from tests.support.outbox import event
from tests.support.subscriber import Subscriber

azure_functions_runtime = pytest.importorskip("azure_functions_runtime")

ROOT = Path(__file__).resolve().parents[2]


class Record:
    """A protobuf message, as far as the worker looks: an object with the fields it was made with."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Protos(types.ModuleType):
    """The worker makes its answers from classes of this module, by name."""

    def __getattr__(self, name: str) -> type[Record]:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (Record,), {})
        setattr(self, name, made)
        return made


def protos() -> Protos:
    module = Protos("protos")
    enumerated: dict[str, dict[str, Any]] = {"StatusResult": {"Success": 1, "Failure": 0}}
    directions = {"in": 0, "out": 1, "inout": 2}
    kinds = {"undefined": 0, "string": 1, "binary": 2, "stream": 3}
    enums = {"Direction": SimpleNamespace(**directions), "DataType": SimpleNamespace(**kinds)}
    enumerated["BindingInfo"] = {**directions, **kinds, **enums}
    strategies = {"exponential_backoff": "exponential_backoff", "fixed_delay": "fixed_delay"}
    enumerated["RpcRetryOptions"] = {**strategies, "RetryStrategy": SimpleNamespace(**strategies)}
    for name, values in enumerated.items():
        setattr(module, name, type(name, (Record,), values))
    return module


async def index_app(folder: Path = ROOT) -> list[Any]:
    """What the worker tells the host of the functions it found in a folder."""
    request = SimpleNamespace(
        worker_init_request=SimpleNamespace(capabilities={}, function_app_directory=str(folder))
    )
    answer = await azure_functions_runtime.worker_init_request(
        SimpleNamespace(request=request, properties={"host": "127.0.0.1", "protos": protos()})
    )
    failure = getattr(answer.result, "exception", None)
    assert answer.result.status == 1, getattr(failure, "message", None)
    answer = await azure_functions_runtime.functions_metadata_request(SimpleNamespace(properties={}))
    functions: list[Any] = answer.function_metadata_results
    return functions


async def invoke(function_id: str, documents: list[dict[str, Any]]) -> Any:
    """Run one invocation as the host would ask for it."""
    payload = SimpleNamespace(WhichOneof=lambda _: "json", json=json.dumps(documents), string=None)
    trigger = SimpleNamespace(name="documents", data=payload, WhichOneof=lambda _: "data")
    request = SimpleNamespace(
        invocation_id="7a3e2c5e",
        function_id=function_id,
        input_data=[trigger],
        trigger_metadata={},
        trace_context=SimpleNamespace(trace_parent="", trace_state="", attributes={}),
        retry_context=SimpleNamespace(
            retry_count=0,
            max_retry_count=-1,
            exception=SimpleNamespace(message="", source="", stack_trace=""),
        ),
    )
    return await azure_functions_runtime.invocation_request(
        SimpleNamespace(request=SimpleNamespace(invocation_request=request), properties={})
    )


@pytest.fixture(autouse=True)
def fresh_app(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("COSMOS", "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;")
    sys.modules.pop("function_app", None)
    yield
    sys.modules.pop("function_app", None)


async def test_the_worker_indexes_the_app_with_its_trigger_and_its_unlimited_retry_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SERVICEBUS", "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA")

    (function,) = await index_app()

    (binding,) = (json.loads(raw) for raw in function.raw_bindings)
    assert binding["type"] == "cosmosDBTrigger"
    assert binding["connection"] == "COSMOS"
    assert binding["containerName"] == "data"
    assert binding["leaseContainerName"] == "leases"
    assert binding["startFromBeginning"] is True
    assert binding["createLeaseContainerIfNotExists"] is False
    assert function.retry_options.max_retry_count == -1
    assert function.retry_options.retry_strategy == "exponential_backoff"


async def test_the_worker_invokes_the_app_and_the_events_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    entities = Entities.from_file(ROOT / "infra" / "emulators" / "Config.json")
    async with ServiceBusServer(entities) as servicebus:
        monkeypatch.setenv("SERVICEBUS", servicebus.connection_string)
        (function,) = await index_app()

        answer = await invoke(
            function.function_id, [event("1", "a"), event("2", "a"), {"id": "c", "type": "contact"}]
        )

        assert answer.result.status == 1, getattr(answer.result, "exception", None)
        subscriber = Subscriber(servicebus.connection_string)
        await subscriber.receive(2)
        assert subscriber.ids() == {"a": ["1", "2"]}


async def test_an_invocation_whose_events_were_not_accepted_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens on the discard port: every send fails.
    monkeypatch.setenv(
        "SERVICEBUS",
        "Endpoint=sb://127.0.0.1:9;SharedAccessKeyName=k;SharedAccessKey=AAAA;UseDevelopmentEmulator=true;",
    )
    monkeypatch.setenv("RELAY_SEND_TIMEOUT_S", "1")
    (function,) = await index_app()

    answer = await invoke(function.function_id, [event("1", "a")])

    assert answer.result.status == 0
    assert "1 event(s) of 1 partition key(s) were not accepted" in answer.result.exception.message
