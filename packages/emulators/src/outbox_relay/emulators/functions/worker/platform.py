"""The platform's own worker library, azure-functions-runtime (Python 3.13 and later), driven without its gRPC.

The host sends it protobuf messages; here plain objects with the same attributes replace them. The attributes are
those that azure-functions-runtime 1.3.0 reads.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import logging
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from outbox_relay.emulators.functions.app import TIMER_TRIGGER, TRIGGERS, is_served, without_the_librarys_advice
from outbox_relay.emulators.functions.context import RetryContext, TraceContext
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.retries import RetryPolicy
from outbox_relay.emulators.functions.worker.interface import IndexedFunction, Invocation, InvocationFailed

_LIBRARY = "azure_functions_runtime"
_SUCCESS = 1

logger = logging.getLogger(__name__)


def is_available() -> bool:
    """Return True if the library is installed, on a Python that it serves."""
    return sys.version_info >= (3, 13) and importlib.util.find_spec(_LIBRARY) is not None


class Message:
    """A protobuf message to the library: an object with the given fields."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Protos(types.ModuleType):
    """The library creates its answers from the classes of this module, by name."""

    def __init__(self) -> None:
        super().__init__("protos")
        directions = {"in": 0, "out": 1, "inout": 2}
        kinds = {"undefined": 0, "string": 1, "binary": 2, "stream": 3}
        enums = {"Direction": SimpleNamespace(**directions), "DataType": SimpleNamespace(**kinds)}
        strategies = {"exponential_backoff": "exponential_backoff", "fixed_delay": "fixed_delay"}
        self._define("StatusResult", Success=_SUCCESS, Failure=0)
        self._define("BindingInfo", **directions, **kinds, **enums)
        self._define("RpcRetryOptions", **strategies, RetryStrategy=SimpleNamespace(**strategies))

    def _define(self, name: str, **values: Any) -> type[Message]:
        made = type(name, (Message,), values)
        setattr(self, name, made)
        return made

    def __getattr__(self, name: str) -> type[Message]:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._define(name)


async def index(app_directory: Path) -> list[Any]:
    """Return the functions of a directory, which is on the import path already, as the library describes them.

    Raises HostError if it cannot load the app.
    """
    library = importlib.import_module(_LIBRARY)
    logger.info("The app runs on %s %s", _LIBRARY, importlib.metadata.version("azure-functions-runtime"))
    request = SimpleNamespace(
        worker_init_request=SimpleNamespace(capabilities={}, function_app_directory=str(app_directory))
    )
    answer = await library.worker_init_request(
        SimpleNamespace(request=request, properties={"host": "127.0.0.1", "protos": Protos()})
    )
    if answer.result.status != _SUCCESS:
        raise HostError(f"{app_directory} cannot be loaded: {answer.result.exception.message}")
    with without_the_librarys_advice():
        answer = await library.functions_metadata_request(SimpleNamespace(properties={}))
    return list(answer.function_metadata_results or ())


async def invoke(function_id: str, parameter: str, invocation: Invocation, *, kind: str = "string") -> Any:
    """Return the library's answer to one invocation.

    `parameter` is the name of the trigger's argument, and `kind` the type of its value: string or json.
    """
    library = importlib.import_module(_LIBRARY)
    value = SimpleNamespace(**{"WhichOneof": lambda _: kind, kind: invocation.value})
    trigger = SimpleNamespace(name=parameter, data=value, WhichOneof=lambda _: "data")
    trace = TraceContext.new()
    request = SimpleNamespace(
        invocation_id=invocation.invocation_id,
        function_id=function_id,
        input_data=[trigger],
        trigger_metadata={},
        trace_context=SimpleNamespace(
            trace_parent=trace.trace_parent, trace_state=trace.trace_state, attributes=trace.attributes
        ),
        retry_context=_retry_context(invocation.retry),
    )
    return await library.invocation_request(
        SimpleNamespace(request=SimpleNamespace(invocation_request=request), properties={})
    )


def _retry_context(retry: RetryContext) -> SimpleNamespace:
    return SimpleNamespace(
        retry_count=retry.retry_count, max_retry_count=retry.max_retry_count, exception=retry.rpc_exception
    )


class PlatformRuntime:
    """Keeps the library's ids of the functions of one app."""

    def __init__(self) -> None:
        self._targets: dict[str, tuple[str, str, str]] = {}

    async def load(self, app_directory: Path) -> Sequence[IndexedFunction]:
        """Index the app, whose directory is on the import path already. Raises HostError."""
        functions = []
        for found in await index(app_directory):
            bindings = [json.loads(binding) for binding in found.raw_bindings]
            trigger = next(binding for binding in bindings if str(binding["type"]).endswith("Trigger"))
            if not is_served(found.name, trigger["type"]):
                continue
            # The host sends a TimerInfo, an object, as JSON, and documents as text.
            kind = "json" if trigger["type"] == TIMER_TRIGGER else "string"
            self._targets[found.name] = found.function_id, trigger["name"], kind
            functions.append(IndexedFunction(found.name, trigger, _retry_policy(found.retry_options)))
        if not functions:
            raise HostError(f"{app_directory} has no function with a {' or a '.join(TRIGGERS)}")
        return functions

    async def invoke(self, invocation: Invocation) -> None:
        """Call the function once. Raises InvocationFailed."""
        function_id, parameter, kind = self._targets[invocation.function]
        answer = await invoke(function_id, parameter, invocation, kind=kind)
        if answer.result.status != _SUCCESS:
            failure = answer.result.exception
            raise InvocationFailed(failure.message, stack_trace=failure.stack_trace)


def _retry_policy(options: Any) -> RetryPolicy | None:
    if options is None:
        return None
    if options.retry_strategy == "fixed_delay":
        delay_s = options.delay_interval.total_seconds()
        return RetryPolicy(options.max_retry_count, delay_s, delay_s)
    return RetryPolicy(
        options.max_retry_count,
        options.minimum_interval.total_seconds(),
        options.maximum_interval.total_seconds(),
    )
