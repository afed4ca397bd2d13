"""Serves the console of a stack, with its readiness probe, on one port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from local.console.hosts import FunctionsHosts
from local.console.topic import EmulatorTopic
from local.stack.environment import TOPIC, Source
from local.stack.probe import Probe
from local.stack.supervisor import Stack
from relay.cli.console.checking import check_of
from relay.console.assembly import open_view
from relay.console.observer import Observer
from relay.console.servicebus import ServiceBusTopic
from relay.console.settings import ConsoleSettings
from relay.console.web.access import Loopback
from relay.console.web.application import application
from relay.console.web.extension import Extension
from relay.console.web.server import serving
from relay.servicebus.administration import ADMIN_VARIABLE
from relay.settings import Settings

_TEMPLATES = Path(__file__).parent / "templates"


@asynccontextmanager
async def open_observer(stack: Stack, *, always: bool = False) -> AsyncIterator[Observer]:
    """The observer of a stack, which knows what the emulators know; `always` as of relay.console.Observer."""
    admin_url = f"http://127.0.0.1:{stack.servicebus.details['admin_port']}"
    environment = {**stack.settings, ADMIN_VARIABLE: admin_url}
    settings = Settings.from_environment(environment)
    topic = EmulatorTopic(admin_url, ServiceBusTopic(settings, environment))
    hosts = FunctionsHosts(stack) if stack.source is Source.COSMOS else None
    async with open_view(
        settings, environment, from_beginning=True, topic=topic, hosts=hosts, always=always
    ) as observer:
        yield observer


@asynccontextmanager
async def serving_console(stack: Stack, port: int) -> AsyncIterator[str]:
    """Serve the page at `/` and the probe at `/ready`; yields the address, with a slash at its end.

    Raises:
        UsageError: Nothing can listen on the port.
    """
    admin_url = f"http://127.0.0.1:{stack.servicebus.details['admin_port']}"
    async with Probe(stack) as probe, open_observer(stack) as view:
        local = Extension("local", _TEMPLATES, routes=[web.get("/ready", probe.ready)])
        app = application(
            view,
            Loopback(),
            name=TOPIC,
            settings=ConsoleSettings(show_data=True),
            check=check_of({**stack.settings, ADMIN_VARIABLE: admin_url}),
            extensions=[local],
        )
        async with serving(app, "127.0.0.1", port) as address:
            yield address
