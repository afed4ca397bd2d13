"""The endpoints by which Kubernetes and the like ask whether a worker is well: /livez and /readyz.

They are open to whoever reaches the worker, so a request has little time and little room, and nobody can hold all
connections: a probe is answered however many others are half sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from relay.core.errors import UsageError
from relay.core.health import Health

CONNECTIONS = 64
"""Maximum number of open connections; the oldest is closed for another one. A probe sends its request at once."""

HEAD_TIMEOUT_S = 5.0
"""Time limit for a request's head to arrive and its answer to be taken, in seconds."""

_HEAD_BYTES = 8192

_ANSWERS: Mapping[bytes, Callable[[Health], str | None]] = {b"/livez": Health.stalled, b"/readyz": Health.unready}


@asynccontextmanager
async def serving_probes(workers: Sequence[Health], port: int) -> AsyncIterator[int]:
    """Answer on every address of this machine about the process's workers, and yield the port. 0 takes a free one.

    `/livez` and `/readyz` answer 200, or 503 with the reason in words. They contain nothing of any event.

    Raises:
        UsageError: Nothing can listen there.
    """
    # In the order in which they were opened.
    open_connections: dict[asyncio.Task[None], None] = {}

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(open_connections) >= CONNECTIONS:
            oldest = next(iter(open_connections))
            del open_connections[oldest]
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(_serve(reader, writer, workers))
        open_connections[task] = None
        task.add_done_callback(lambda done: open_connections.pop(done, None))

    try:
        server = await asyncio.start_server(serve, "0.0.0.0", port, limit=_HEAD_BYTES)
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be listened on ({error.strerror}): choose another with --health-port"
        ) from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(open_connections):
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, workers: Sequence[Health]) -> None:
    """Answer the one request of a connection, and close it."""
    try:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(_answer(head, workers))
            await writer.drain()
    except (TimeoutError, EOFError, asyncio.LimitOverrunError, OSError):
        pass
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _answer(head: bytes, workers: Sequence[Health]) -> bytes:
    method, _, rest = head.partition(b" ")
    problem = _ANSWERS.get(rest.partition(b" ")[0].partition(b"?")[0])
    if problem is None:
        return _response(HTTPStatus.NOT_FOUND, "there are /livez and /readyz")
    if method not in (b"GET", b"HEAD"):
        return _response(HTTPStatus.METHOD_NOT_ALLOWED, "use GET")
    reason = next((found for each in workers if (found := problem(each))), None)
    status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
    return _response(status, reason or "ok", with_body=method == b"GET")


def _response(status: HTTPStatus, text: str, *, with_body: bool = True) -> bytes:
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
