"""The interface of a worker, in any process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from outbox_relay.emulators.functions.context import RetryContext
from outbox_relay.emulators.functions.retries import RetryPolicy


class InvocationFailed(Exception):
    """An attempt failed. The message begins with the name of the exception.

    `stack_trace` is the worker's; it is empty if the worker itself was the reason.
    """

    def __init__(self, message: str, *, source: str = "", stack_trace: str = "") -> None:
        super().__init__(message)
        self.source = source
        self.stack_trace = stack_trace


class FunctionTimeout(InvocationFailed):
    """The invocation took longer than functionTimeout."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"FunctionTimeout: Timeout value of {timeout_s} s was exceeded")


class WorkerDied(InvocationFailed):
    """The worker ended while it had the invocation."""


@dataclass(frozen=True, slots=True)
class IndexedFunction:
    """A function that the worker has indexed: its trigger as declared, and its retry policy."""

    name: str
    trigger: Mapping[str, Any]
    retry_policy: RetryPolicy | None


@dataclass(frozen=True, slots=True)
class Invocation:
    """One attempt: `value` is the trigger's, JSON as text: an array of documents, or a TimerInfo."""

    function: str
    invocation_id: str
    value: str
    retry: RetryContext = field(default_factory=RetryContext)


class Worker(Protocol):
    """Runs one function app."""

    async def start(self) -> Sequence[IndexedFunction]:
        """Load and index the app. Raises HostError, and then leaves nothing running."""

    async def invoke(self, invocation: Invocation, *, timeout_s: float | None) -> None:
        """Call the function; return when it has succeeded.

        Raises InvocationFailed, or its subclasses FunctionTimeout after `timeout_s` seconds (None: no limit) and
        WorkerDied.
        """

    def kill(self) -> None:
        """End at once, with all that is running, as by SIGKILL."""

    async def stop(self) -> None:
        """End; what is still running is lost."""
