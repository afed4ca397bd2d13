"""The invocation context, which a function gets in a parameter called `context`.

The shapes are the Python worker's own (azure-functions-runtime, bindings/context.py), which differ from the
abstract classes in azure.functions in one name: the retry context has `rpc_exception`, not `exception`. Code that
relies on the other name fails when deployed, so it fails here too.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RpcException:
    """The failure of the previous attempt."""

    source: str = ""
    stack_trace: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class RetryContext:
    """`retry_count` is 0 in the first attempt; `max_retry_count` is 0 without a policy and -1 without a limit."""

    retry_count: int = 0
    max_retry_count: int = 0
    rpc_exception: RpcException = field(default_factory=RpcException)


@dataclass(frozen=True, slots=True)
class TraceContext:
    """W3C trace context of the invocation (https://www.w3.org/TR/trace-context/)."""

    trace_parent: str
    trace_state: str = ""
    attributes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def new(cls) -> TraceContext:
        return cls(f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01")


@dataclass(frozen=True, slots=True)
class Context:
    """One attempt of an invocation. Attempts of the same documents share their `invocation_id`."""

    function_name: str
    function_directory: str
    invocation_id: str
    thread_local_storage: threading.local
    trace_context: TraceContext
    retry_context: RetryContext
