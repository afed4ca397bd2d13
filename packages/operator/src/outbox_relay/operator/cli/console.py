"""`python -m relay console`: serves a page that shows where events are, until it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from outbox_relay.command_line import port_number, python, value
from outbox_relay.operator.backends.backend import OperatorBackend, open_backend
from outbox_relay.operator.cli import check
from outbox_relay.operator.cli.options import AllStreams, Session, Source, command_app
from outbox_relay.operator.cli.routes_report import target_of
from outbox_relay.operator.cli.terminal import ExitCode, Result, stop_signal
from outbox_relay.operator.console.ports import Check, View
from relay.backends.findings import Finding
from relay.config.settings import Settings
from relay.config.streams import names_of, read_streams
from relay.core.errors import SettingsError, UsageError
from relay.core.remedy import PLAIN, Invocation

if TYPE_CHECKING:
    from aiohttp import web

    from outbox_relay.operator.console.overview import StreamView
    from outbox_relay.operator.console.pages import ConsoleSettings
    from outbox_relay.operator.console.server import Access

EXAMPLES = """\
examples:
  python -m relay console
  python -m relay console --port 0 --from beginning
  python -m relay console --host 0.0.0.0
  python -m relay console --stream orders

Serves one page: the number of events at each stage and its rate, each partition, the recent events, the timeline
of a partition key, quarantine and dead letters by reason, and the findings of `check`. It only reads: it changes
nothing, locks no session and settles no message. docs/console.md describes it.

With several streams in relay.toml, the first page has a line for each, and each has a page of its own.

On an address of this machine, only this machine can open it. On any other address, every request must have passed
the authentication of Azure Container Apps or App Service; there is no option to do without.

SIGTERM or Ctrl-C ends it. The first line on standard output is its address."""


app = command_app("console", EXAMPLES)


@app.default
async def console(
    *,
    source: Source = None,
    host: str = "127.0.0.1",
    port: Annotated[int, value(port_number, help="port to listen on; 0 takes a free one")] = 8080,
    begin: Annotated[
        Literal["now", "beginning"],
        Parameter(
            name="--from",
            help="count the events from now on, or read the whole outbox first, which takes request units",
        ),
    ] = "now",
    options: AllStreams = AllStreams(),
    session: Session,
) -> Result:
    """Serve a page that shows where events are, until SIGINT or SIGTERM.

    Args:
        host: address to listen on
    """
    environment = session.environment
    streams = _with_source(options.streams(environment), source)
    if find_spec("jinja2") is None:
        raise UsageError(
            f"the console needs the package 'jinja2', which is missing from {sys.executable}. "
            f"Run {python()} -m pip install Jinja2."
        )
    # Here, as no other command needs what serves a page.
    from outbox_relay.operator.console.observer import observer_of
    from outbox_relay.operator.console.pages import ConsoleSettings
    from outbox_relay.operator.console.server import access_for, loopback, serving

    shown = ConsoleSettings.from_environment(environment)
    access, check = access_for(host), check_of(environment)
    stop = stop_signal()
    async with AsyncExitStack() as opened:
        views = []
        for each in streams:
            backend = open_backend(each, source)
            observer = observer_of(backend, environment, from_beginning=begin == "beginning")
            view = await opened.enter_async_context(observer)
            # Anyone who is not at this machine has another Python, and other files.
            reader = options.invocation if access is loopback else PLAIN
            views.append(stream_view(each, backend, view, reader))
        served = application_of_views(streams, views, access, settings=shown, check=check)
        async with serving(served, host, port) as address:
            print(f"The console is on {address}", flush=True)
            if access is not loopback:
                print("It answers only requests that the platform has authenticated.", file=sys.stderr)
            await stop.wait()
    return Result(ExitCode.OK, {"address": address}, ["Stopped."])


def _with_source(streams: list[Settings], source: str | None) -> list[Settings]:
    """Return the streams that have an outbox of the wanted kind. Raises UsageError if none has."""
    if len(streams) == 1 or source is None:
        return streams
    found = [each for each in streams if source in each.sources]
    if not found:
        raise UsageError(f"--source {source}: no stream has an outbox there; there are {names_of(streams)}")
    return found


def _name_of(settings: Settings) -> str:
    """Return the name of the only stream that is shown, for the title."""
    kind = "queue " if settings.servicebus.is_queue else ""
    of = "" if settings.label is None else f"{settings.stream} → "
    return f"{of}{kind}{settings.servicebus.entity}"


def stream_view(settings: Settings, backend: OperatorBackend, view: View, reader: Invocation) -> StreamView:
    """Return a stream as the console shows it.

    Args:
        settings: Those of the stream.
        backend: The outbox that is shown.
        view: Of that outbox and the stream's destination.
        reader: How the reader of the page starts commands; outbox and stream are added.
    """
    from outbox_relay.operator.console.formatting import Commands as PageCommands
    from outbox_relay.operator.console.overview import StreamView

    outbox, destination = (text.removeprefix("the ") for text in (backend.wording.source, target_of(settings)))
    by = replace(
        reader,
        source=backend.name if len(settings.sources) > 1 else None,
        stream=settings.stream if settings.several else None,
    )
    return StreamView(settings.stream, outbox, destination, view, PageCommands(by, settings.servicebus.is_queue))


def application_of_views(
    streams: Sequence[Settings],
    views: Sequence[StreamView],
    access: Access,
    *,
    settings: ConsoleSettings,
    check: Check,
) -> web.Application:
    """Return the console of these streams: the page of the only one, or the page of all and one of each.

    Args:
        streams: The settings of each.
        views: The view of each.
        access, settings, check: As of `application`.
    """
    from outbox_relay.operator.console.application import application, application_of_streams

    if len(views) > 1:
        return application_of_streams(views, access, settings=settings, check=check)
    [only] = views
    return application(
        only.view,
        access,
        name=_name_of(streams[0]),
        settings=settings,
        commands=only.commands,
        check=check,
        extensions=only.extensions,
    )


def check_of(environment: Mapping[str, str]) -> Check:
    """Return `python -m relay check` with these settings and without options, for the page."""

    async def findings() -> Sequence[Finding]:
        try:
            return await check.findings(read_streams(environment), environment)
        except SettingsError as error:
            return check.settings_findings(error)

    return findings
