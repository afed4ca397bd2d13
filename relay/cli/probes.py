"""The endpoints by which Kubernetes and the like ask whether a worker is well: /livez and /readyz."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from relay.errors import UsageError
from relay.health import Health


@asynccontextmanager
async def serving_probes(workers: Sequence[Health], port: int) -> AsyncIterator[int]:
    """Answer on every address of this machine about the process's workers, and yield the port. 0 takes a free one.

    `/livez` and `/readyz` answer 200, or 503 with the reason in words. They contain nothing of any event.

    Raises:
        UsageError: Nothing can listen there.
    """
    from aiohttp import web

    def answering(
        problem: Callable[[Health], str | None],
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(_: web.Request) -> web.StreamResponse:
            reason = next((found for each in workers if (found := problem(each))), None)
            return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")

        return answer

    app = web.Application()
    app.router.add_get("/livez", answering(Health.stalled))
    app.router.add_get("/readyz", answering(Health.unready))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, "0.0.0.0", port).start()
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be listened on ({error.strerror}): choose another with --health-port"
            ) from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
