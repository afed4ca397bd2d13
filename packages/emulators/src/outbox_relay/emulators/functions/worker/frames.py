"""The protocol of host and worker process over their socket: frames of a JSON header and a text.

The text is the trigger's value, as `TypedData.string` carries it in the platform's gRPC protocol; it is neither
parsed nor escaped on its way.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from outbox_relay.emulators.functions.context import RetryContext, RpcException
from outbox_relay.emulators.functions.retries import RetryPolicy
from outbox_relay.emulators.functions.worker.interface import IndexedFunction, Invocation, InvocationFailed

_LENGTHS = struct.Struct(">II")

Header = Mapping[str, Any]


def write(writer: asyncio.StreamWriter, header: Header, text: str = "") -> None:
    """Write a whole frame to the stream; the caller drains it."""
    head, body = json.dumps(header).encode(), text.encode()
    writer.write(_LENGTHS.pack(len(head), len(body)) + head + body)


async def read(reader: asyncio.StreamReader) -> tuple[Header, str] | None:
    """Read the next frame, or return None if the other side has gone."""
    try:
        head, body = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
        return json.loads(await reader.readexactly(head)), (await reader.readexactly(body)).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def functions_header(functions: list[IndexedFunction]) -> Header:
    """Return the worker's first frame: the functions that it has indexed."""
    return {"functions": [asdict(function) for function in functions]}


def functions_in(header: Header) -> list[IndexedFunction]:
    return [
        IndexedFunction(
            function["name"],
            function["trigger"],
            RetryPolicy(**function["retry_policy"]) if function["retry_policy"] else None,
        )
        for function in header["functions"]
    ]


def invocation_header(call: int, invocation: Invocation) -> Header:
    """Return a frame of the host. Its text is the value; the answer refers to `call`."""
    return {
        "call": call,
        "function": invocation.function,
        "invocation_id": invocation.invocation_id,
        "retry": asdict(invocation.retry),
    }


def invocation_in(header: Header, value: str) -> Invocation:
    retry = dict(header["retry"])
    context = RetryContext(**{**retry, "rpc_exception": RpcException(**retry["rpc_exception"])})
    return Invocation(header["function"], header["invocation_id"], value, context)


def outcome_header(call: int, failure: InvocationFailed | None) -> Header:
    """Return a frame of the worker: the outcome of an invocation."""
    if failure is None:
        return {"call": call, "failure": None}
    return {
        "call": call,
        "failure": {"message": str(failure), "source": failure.source, "stack_trace": failure.stack_trace},
    }


def failure_in(header: Header) -> InvocationFailed | None:
    failure = header["failure"]
    if failure is None:
        return None
    return InvocationFailed(failure["message"], source=failure["source"], stack_trace=failure["stack_trace"])
