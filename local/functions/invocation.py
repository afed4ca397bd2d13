"""One attempt of an invocation: the function called as the Python worker calls it, within functionTimeout."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from local.functions.app import Function
from local.functions.context import Context, RetryContext, TraceContext
from local.functions.documents import from_text


class FunctionTimeout(Exception):
    """The invocation took longer than functionTimeout."""


_thread_local_storage = threading.local()


async def invoke(
    function: Function, documents: str, *, invocation_id: str, retry: RetryContext, timeout_s: float | None
) -> None:
    """Run the function once over the documents (the JSON array as text); return when it succeeded.

    Raises what the function raises, FunctionTimeout, or RuntimeError if it returns a value, which the worker
    counts as a failure where there is no `$return` binding.

    After a timeout the real host restarts the worker process, which takes the other invocations in it down too
    and empties the app's globals. Here the coroutine is cancelled, or the thread left behind, and the app's state
    stays.
    """
    arguments: dict[str, Any] = {
        function.document_parameter: documents if function.takes_text else from_text(documents)
    }
    if function.takes_context:
        arguments["context"] = Context(
            function_name=function.name,
            function_directory=function.directory,
            invocation_id=invocation_id,
            thread_local_storage=_thread_local_storage,
            trace_context=TraceContext.new(),
            retry_context=retry,
        )
    if function.is_async:
        _thread_local_storage.invocation_id = invocation_id
        running = asyncio.ensure_future(function.call(**arguments))
    else:
        running = _in_thread(lambda: _call(function, arguments, invocation_id))
    result = await _within(running, timeout_s)
    if result is not None:
        raise RuntimeError(f"function {function.name} without a $return binding returned a non-None value")


def _call(function: Function, arguments: dict[str, Any], invocation_id: str) -> Any:
    _thread_local_storage.invocation_id = invocation_id
    return function.call(**arguments)


async def _within(running: asyncio.Future[Any], timeout_s: float | None) -> Any:
    try:
        done, _ = await asyncio.wait({running}, timeout=timeout_s)
    except asyncio.CancelledError:
        _abandon(running)
        raise
    if done:
        try:
            return running.result()
        except asyncio.CancelledError:
            # It must fail this attempt, not look as if somebody had cancelled the host's own task.
            raise RuntimeError("the function was cancelled from within") from None
    _abandon(running)
    raise FunctionTimeout(f"Timeout value of {timeout_s} s was exceeded")


def _abandon(running: asyncio.Future[Any]) -> None:
    running.add_done_callback(_retrieve)
    running.cancel()


def _retrieve(finished: asyncio.Future[Any]) -> None:
    """Take note of how an abandoned call ended, so that asyncio does not report it as forgotten."""
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
        except BaseException as raised:  # noqa: BLE001 - handed to whoever awaits the future
            # A future takes anything but a StopIteration.
            error = RuntimeError("StopIteration") if isinstance(raised, StopIteration) else raised
        # A closed loop means that nobody waits any more.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="function", daemon=True).start()
    return finished
