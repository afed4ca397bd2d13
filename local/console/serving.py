"""Serves the console of a stack, with its readiness probe, on one port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from local.console.actions import Actions
from local.console.hosts import StackHosts
from local.console.topic import EmulatorTopic
from local.stack.probe import Probe
from local.stack.supervisor import Stack
from relay.core.remedy import Invocation
from relay_operator.backends.backend import OperatorBackend, open_backend
from relay_operator.cli.console import check_of, name_of
from relay_operator.cli.shell import python
from relay_operator.console.application import application
from relay_operator.console.formatting import Commands
from relay_operator.console.observer import Observer
from relay_operator.console.pages import ConsoleSettings
from relay_operator.console.ports import Sources
from relay_operator.console.server import loopback, serving
from relay_operator.console.servicebus import ServiceBusTopic


def topic_of(stack: Stack) -> EmulatorTopic:
    """Return the stack's topic, not connected yet."""
    environment, settings = _environment(stack), backend_of_page(stack).settings
    return EmulatorTopic(
        environment[f"{settings.servicebus_setting}_ADMIN"],
        ServiceBusTopic(settings, environment),
        settings.servicebus_topic,
    )


def backend_of_page(stack: Stack) -> OperatorBackend:
    """Return the backend of the stream that the page shows: the first of the app."""
    return open_backend(stack.streams[0], stack.source)


def observer_of_stack(stack: Stack, topic: EmulatorTopic, *, always: bool = False) -> Observer:
    """Return the observer of a stack and its topic.

    It knows what the emulators know; `always` is that of Observer.
    """
    backend = backend_of_page(stack)
    outbox = backend.open_outbox(from_beginning=True)
    return Observer(Sources(outbox, topic, backend.open_store(), StackHosts(stack)), always=always)


@asynccontextmanager
async def serving_console(stack: Stack, port: int, *env_files: Path) -> AsyncIterator[str]:
    """Serve the page at `/` and the probe at `/ready`; yields the address, with a slash at its end.

    The commands that the page shows name these env files.

    Raises:
        UsageError: Nothing can listen on the port.
    """
    topic, environment = topic_of(stack), _environment(stack)
    async with Probe(stack) as probe, observer_of_stack(stack, topic) as view:
        local = Actions(stack, topic, environment).extension([web.get("/ready", probe.ready)])
        app = application(
            view,
            loopback,
            name=name_of(backend_of_page(stack).settings),
            settings=ConsoleSettings(show_data=True),
            commands=Commands(Invocation(python(), tuple(map(str, env_files)))),
            check=check_of(environment),
            extensions=[local],
        )
        async with serving(app, "127.0.0.1", port) as address:
            yield address


def _environment(stack: Stack) -> dict[str, str]:
    """Return the settings of an operator's command on this stack."""
    return {**stack.settings, **stack.administration}
