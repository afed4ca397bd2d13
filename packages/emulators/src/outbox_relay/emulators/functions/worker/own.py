"""The project's own worker library: loads and calls functions as azure-functions-runtime does, on any Python."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from azure.functions import get_binding_registry
from azure.functions.meta import Datum

from outbox_relay.emulators.functions.app import COSMOS_TRIGGER, TIMER_TRIGGER, Function, load_functions
from outbox_relay.emulators.functions.context import Context, TraceContext
from outbox_relay.emulators.functions.documents import from_text
from outbox_relay.emulators.functions.worker.interface import IndexedFunction, Invocation, InvocationFailed

_thread_local_storage = threading.local()


class OwnRuntime:
    """Keeps the functions of one app."""

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}

    async def load(self, app_directory: Path) -> Sequence[IndexedFunction]:
        """Execute and index the app, whose directory is on the import path already. Raises HostError."""
        functions = load_functions(app_directory)
        self._functions = {function.name: function for function in functions}
        return [IndexedFunction(function.name, function.trigger, function.retry_policy) for function in functions]

    async def invoke(self, invocation: Invocation) -> None:
        """Call the function once. Raises InvocationFailed; the caller's cancellation cancels the coroutine."""
        try:
            await self._call(self._functions[invocation.function], invocation)
        except Exception as error:
            raise InvocationFailed(
                f"{type(error).__name__}: {error}",
                source=type(error).__module__,
                stack_trace="".join(traceback.format_exception(error)),
            ) from error

    async def _call(self, function: Function, invocation: Invocation) -> None:
        arguments: dict[str, Any] = {function.parameter: _argument(function, invocation.value)}
        if function.takes_context:
            arguments["context"] = Context(
                function_name=function.name,
                function_directory=function.directory,
                invocation_id=invocation.invocation_id,
                thread_local_storage=_thread_local_storage,
                trace_context=TraceContext.new(),
                retry_context=invocation.retry,
            )
        if function.is_async:
            _thread_local_storage.invocation_id = invocation.invocation_id
            running = asyncio.ensure_future(function.call(**arguments))
        else:
            running = _in_thread(lambda: _call_in_thread(function, arguments, invocation.invocation_id))
        result = await _outcome(running)
        if result is not None:
            # The worker counts it as a failure if there is no `$return` binding.
            raise RuntimeError(f"function {function.name} without a $return binding returned a non-None value")


def _argument(function: Function, value: str) -> Any:
    if function.takes_text:
        return value
    if function.trigger["type"] == COSMOS_TRIGGER:
        return from_text(value)
    converter = get_binding_registry().get(TIMER_TRIGGER)  # type: ignore[no-untyped-call]
    return converter.decode(Datum(value, "json"), trigger_metadata={})


def _call_in_thread(function: Function, arguments: dict[str, Any], invocation_id: str) -> Any:
    _thread_local_storage.invocation_id = invocation_id
    return function.call(**arguments)


async def _outcome(running: asyncio.Future[Any]) -> Any:
    try:
        await asyncio.wait({running})
    except asyncio.CancelledError:
        running.add_done_callback(_retrieve)
        running.cancel()
        raise
    try:
        return running.result()
    except asyncio.CancelledError:
        # It must fail this attempt, and not look like a cancellation of the caller's own task.
        raise RuntimeError("the function was cancelled from within") from None


def _retrieve(finished: asyncio.Future[Any]) -> None:
    """Retrieve the outcome of an abandoned call, so that asyncio does not report it."""
    if not finished.cancelled():
        finished.exception()


def _in_thread(call: Callable[[], Any]) -> asyncio.Future[Any]:
    """Run the call in a daemon thread: one that never returns must not keep the process from ending."""
    loop = asyncio.get_running_loop()
    finished: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if finished.done():
            return
        if error is not None:
            finished.set_exception(error)
        else:
            finished.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(call)
        except BaseException as raised:  # noqa: BLE001 - set on the future, for its waiter
            # A future accepts any exception but StopIteration.
            error = RuntimeError("StopIteration") if isinstance(raised, StopIteration) else raised
        # With a closed loop there is no waiter any more.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="function", daemon=True).start()
    return finished
