"""Serves the console of a stack, with its readiness probe, on one port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from local.console.actions import Actions
from local.console.hosts import StackHosts
from local.console.topic import EmulatorTopic
from local.stack.probe import Probe
from local.stack.supervisor import Stack
from outbox_relay.command_line import python
from outbox_relay.operator.backends.backend import open_backend
from outbox_relay.operator.cli.console import application_of_views, check_of, stream_view
from outbox_relay.operator.console.observer import Observer
from outbox_relay.operator.console.overview import StreamView
from outbox_relay.operator.console.pages import ConsoleSettings
from outbox_relay.operator.console.ports import Sources
from outbox_relay.operator.console.server import loopback, serving
from outbox_relay.operator.console.servicebus import ServiceBusTopic
from relay.config.settings import Settings
from relay.core.remedy import Invocation


def topic_of(stack: Stack, stream: Settings) -> EmulatorTopic:
    """Return the topic or queue of a stream, not connected yet."""
    environment = stack.operator_settings
    return EmulatorTopic(
        environment[f"{stream.servicebus.setting}_ADMIN"],
        ServiceBusTopic(stream, environment),
        stream.servicebus.entity,
        is_queue=stream.servicebus.is_queue,
    )


def observer_of_stream(stack: Stack, stream: Settings, topic: EmulatorTopic, *, always: bool = False) -> Observer:
    """Return the observer of a stream of a stack, and of its topic or queue.

    It knows what the emulators know; `always` is that of Observer.
    """
    backend = open_backend(stream, stack.source)
    hosts = StackHosts(stack, stream.function_name("relay"))
    outbox = backend.open_outbox(from_beginning=True)
    return Observer(Sources(outbox, topic, backend.open_store(), hosts), always=always)


def view_of_stream(stack: Stack, stream: Settings, observer: Observer, *env_files: Path) -> StreamView:
    """Return a stream of a stack as its page shows it. The commands on the page name these env files."""
    reader = Invocation(python(), tuple(map(str, env_files)))
    return stream_view(stream, open_backend(stream, stack.source), observer, reader)


def application_of(stack: Stack, streams: Sequence[Settings], views: Sequence[StreamView]) -> web.Application:
    """Return the console of all `streams` of a stack, with the view of each, for this machine alone."""
    return application_of_views(
        streams,
        views,
        loopback,
        settings=ConsoleSettings(show_data=True),
        check=check_of(stack.operator_settings),
    )


@asynccontextmanager
async def serving_console(stack: Stack, port: int, *env_files: Path) -> AsyncIterator[str]:
    """Serve the page, or those of several streams, at `/` and the probe at `/ready`.

    Yields the address, with a slash at its end. The commands that a page shows name these env files.

    Raises:
        UsageError: Nothing can listen on the port.
    """
    streams = stack.streams
    async with AsyncExitStack() as opened:
        probe = await opened.enter_async_context(Probe(stack))
        views = []
        for each in streams:
            topic = topic_of(stack, each)
            observer = await opened.enter_async_context(observer_of_stream(stack, each, topic))
            view = view_of_stream(stack, each, observer, *env_files)
            views.append(replace(view, extensions=[Actions(stack, streams, each, topic).extension]))
        app = application_of(stack, streams, views)
        app.router.add_get("/ready", probe.ready)
        yield await opened.enter_async_context(serving(app, "127.0.0.1", port))
