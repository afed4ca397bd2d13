"""The worker's side of the socket: index, invoke, and outlive the host until its invocations have ended."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from outbox_relay.emulators.functions.app import importable
from outbox_relay.emulators.functions.edges import Edge, Edges
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.worker import frames, platform
from outbox_relay.emulators.functions.worker.interface import IndexedFunction, Invocation, InvocationFailed
from outbox_relay.emulators.functions.worker.own import OwnRuntime


class Runtime(Protocol):
    """A library that loads and calls functions."""

    async def load(self, app_directory: Path) -> Sequence[IndexedFunction]: ...

    async def invoke(self, invocation: Invocation) -> None: ...


async def serve(descriptor: int, app_directory: Path, edges: Edges, *, own: bool, orphan_limit_s: float) -> None:
    """Answer the host on that socket until it has gone, then finish the running invocations within the limit."""
    connection = socket.socket(fileno=descriptor)
    reader, writer = await asyncio.open_connection(sock=connection)
    runtime: Runtime = OwnRuntime() if own or not platform.is_available() else platform.PlatformRuntime()
    with importable(app_directory):
        try:
            functions = await runtime.load(app_directory)
        except HostError as error:
            frames.write(writer, {"error": str(error)})
            await writer.drain()
            return
        frames.write(writer, frames.functions_header(list(functions)))
        running: set[asyncio.Task[bool]] = set()
        while (frame := await frames.read(reader)) is not None:
            header, text = frame
            task = asyncio.create_task(
                _answer(runtime, header["call"], frames.invocation_in(header, text), writer)
            )
            running.add(task)
            task.add_done_callback(running.discard)
        await _outlive(running, edges, orphan_limit_s)


async def _answer(runtime: Runtime, call: int, invocation: Invocation, writer: asyncio.StreamWriter) -> bool:
    """Invoke, and send the outcome to the host, which may have gone; returns whether the function succeeded."""
    failure: InvocationFailed | None = None
    try:
        await runtime.invoke(invocation)
    except InvocationFailed as error:
        failure = error
    frames.write(writer, frames.outcome_header(call, failure))
    return failure is None


async def _outlive(running: set[asyncio.Task[bool]], edges: Edges, limit_s: float) -> None:
    # The other end of standard output has gone with the host.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    edges.met(Edge.HOST_KILLED)
    if not running:
        return
    done, _ = await asyncio.wait(set(running), timeout=limit_s)
    for task in done:
        if task.exception() is None and task.result():
            edges.met(Edge.WORKER_OUTLIVED_HOST)
