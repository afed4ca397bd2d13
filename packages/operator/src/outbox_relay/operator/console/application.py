"""The console as an aiohttp application. None of its own routes changes anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from outbox_relay.operator.console.formatting import Commands
from outbox_relay.operator.console.model import Checked, Problem, Snapshot, Timeline
from outbox_relay.operator.console.overview import Overview, StreamView, path_of
from outbox_relay.operator.console.page_query import EVERYTHING, PageQuery
from outbox_relay.operator.console.pages import ConsoleSettings, Pages
from outbox_relay.operator.console.ports import Check, Extension, View
from outbox_relay.operator.console.server import Access, guarded, set_headers
from outbox_relay.operator.console.stream import (
    CURRENT_WITHIN_S,
    Streams,
    encoded,
    events_of_key,
    overview_changes,
    page_changes,
    recent_events,
)
from outbox_relay.operator.console.timeline import Timelines
from relay.backends.findings import Level
from relay.core.errors import RelayError, UsageError, first_line
from relay.core.remedy import CHECK, Sentence

PAGES = web.AppKey("PAGES", Pages)

_EVENTS_OF_KEY = 100
_MOST_EVENTS_OF_KEY = 1000

# The order in which findings are shown.
_LEVELS = (Level.ERROR, Level.UNKNOWN, Level.WARNING, Level.OK)


def application(
    view: View,
    access: Access,
    *,
    name: str = "",
    settings: ConsoleSettings | None = None,
    commands: Commands | None = None,
    check: Check | None = None,
    extensions: Sequence[Extension] = (),
) -> web.Application:
    """Return the console of a view.

    Args:
        view: The values on the page.
        access: Who may see it.
        name: The topic's, for the title.
        settings: By default, it has neither links to traces nor the data of events.
        commands: By default, those for the only outbox.
        check: The function of `/check`; None for a page without checks.
        extensions: Blocks and routes of others, which may be other routes than GET.
    """
    chosen = settings or ConsoleSettings()
    app = _guarded(access)
    app[PAGES] = Pages(name, chosen, commands or Commands(), extensions)
    _add_page(app, view, chosen, Checks(check) if check else None, extensions)
    _add_static(app, extensions)
    return app


def application_of_streams(
    streams: Sequence[StreamView],
    access: Access,
    *,
    settings: ConsoleSettings | None = None,
    check: Check | None = None,
) -> web.Application:
    """Return the console of several streams: a line for each at `/`, and the page of each at `/streams/NAME/`.

    Args:
        streams: Each with its view.
        access, settings, check: As of `application`.
    """
    chosen = settings or ConsoleSettings()
    app = _guarded(access)
    app[PAGES] = Pages("", chosen, Commands(), (), streams)
    checks, overview = Checks(check) if check else None, Overview(streams)
    open_streams = Streams()
    app.on_shutdown.append(open_streams.close)
    console = _OverviewConsole(overview, app[PAGES], open_streams, checks)
    app.router.add_routes(
        [
            web.get("/", console.index),
            web.get("/check", console.check),
            web.get("/stream", console.stream),
            web.get("/state.json", console.state),
        ]
    )
    for each in streams:
        page = web.Application()
        page[PAGES] = Pages(each.title, chosen, each.commands, each.extensions, streams, each.name)
        _add_page(page, each.view, chosen, checks, each.extensions)
        app.add_subapp(path_of(each.name), page)
    _add_static(app, [extension for each in streams for extension in each.extensions])
    return app


def _guarded(access: Access) -> web.Application:
    app = web.Application(middlewares=[guarded(access)])
    app.on_response_prepare.append(set_headers)
    return app


def _add_page(
    app: web.Application,
    view: View,
    settings: ConsoleSettings,
    checks: Checks | None,
    extensions: Sequence[Extension],
) -> None:
    """Add the routes of the page of one view, whose pages the application has, and those of its extensions."""
    streams, pages = Streams(), app[PAGES]
    app.on_shutdown.append(streams.close)
    timelines = Timelines(
        view, lambda key: _read_timeline(view, key, _EVENTS_OF_KEY, settings.show_data), pages.timeline
    )
    console = _Console(view, pages, streams, timelines, States(), checks, settings.show_data)
    app.router.add_routes(
        [
            web.get("/", console.index),
            web.get("/key", console.key),
            web.get("/check", console.check),
            web.get("/stream", console.stream),
            web.get("/state.json", console.state),
            web.get("/timeline.json", console.timeline_document),
            web.get("/events.json", console.events),
        ]
    )
    for extension in extensions:
        app.router.add_routes(extension.routes)


def _add_static(app: web.Application, extensions: Sequence[Extension]) -> None:
    """Add the files of the console and of extensions, of which several pages may have the same one."""
    for name, folder in {each.name: each.static for each in extensions}.items():
        if folder is not None:
            app.router.add_static(f"/static/{name}/", folder)
    app.router.add_static("/static/", Path(__file__).parent / "static")


@dataclass(frozen=True, slots=True)
class _Console:
    """The handlers."""

    view: View
    pages: Pages
    streams: Streams
    timelines: Timelines
    states: States
    checks: Checks | None
    show_data: bool

    async def index(self, request: web.Request) -> web.Response:
        return self._page(_query_of(request))

    async def key(self, request: web.Request) -> web.Response:
        partition_key = request.query.get("key", "")
        if not partition_key:
            raise web.HTTPFound(self.pages.root)
        query = _query_of(request)
        timeline = await self._timeline(partition_key, _EVENTS_OF_KEY)
        return self._page(query, partition_key, self.pages.timeline(timeline))

    async def check(self, request: web.Request) -> web.Response:
        """Return the findings: alone for htmx, in the whole page without it."""
        return await _checked(request, self.checks, self.pages) or self._page(EVERYTHING)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        partition_key, query = request.query.get("key", ""), _query_of(request)
        if not partition_key:
            return await self.streams.serve(request, page_changes(self.view, self.pages, None, query))
        with self.timelines.open(partition_key) as timeline:
            return await self.streams.serve(request, page_changes(self.view, self.pages, timeline, query))

    async def state(self, request: web.Request) -> web.Response:
        """Return the latest snapshot, with the recent events that the query chooses.

        It waits for a look: a view looks only while somebody waits.
        """
        query, snapshot = _query_of(request), await self.view.current(CURRENT_WITHIN_S)
        if query.events:
            return _json(encoded(query.events.chosen(snapshot)))
        return _json(self.states.encoded(snapshot))

    async def timeline_document(self, request: web.Request) -> web.Response:
        partition_key, limit = request.query.get("key", ""), request.query.get("limit", str(_EVENTS_OF_KEY))
        if not partition_key:
            raise web.HTTPBadRequest(text="Name the partition key: /timeline.json?key=…\n")
        digits = len(str(_MOST_EVENTS_OF_KEY))
        is_number = limit.isascii() and limit.isdecimal() and len(limit) <= digits
        if not (is_number and 0 < int(limit) <= _MOST_EVENTS_OF_KEY):
            raise web.HTTPBadRequest(text=f"limit: a whole number from 1 to {_MOST_EVENTS_OF_KEY}\n")
        return _json(encoded(await self._timeline(partition_key, int(limit))))

    async def events(self, request: web.Request) -> web.StreamResponse:
        partition_key, query = request.query.get("key", ""), _query_of(request)
        if not partition_key:
            return await self.streams.serve(request, recent_events(self.view, query.events))

        async def read() -> Timeline:
            return await _read_timeline(self.view, partition_key, _EVENTS_OF_KEY, data=False)

        with self.view.follow(partition_key) as state:
            return await self.streams.serve(request, events_of_key(self.view, state, read))

    def _page(self, query: PageQuery, partition_key: str = "", timeline: str = "") -> web.Response:
        check, checks = self.checks.last if self.checks else None, self.checks is not None
        return _html(self.pages.page(self.view.latest, partition_key, timeline, checks, check, query))

    async def _timeline(self, partition_key: str, limit: int) -> Timeline:
        return await _read_timeline(self.view, partition_key, limit, self.show_data)


@dataclass(frozen=True, slots=True)
class _OverviewConsole:
    """The handlers of the page of all streams."""

    overview: Overview
    pages: Pages
    streams: Streams
    checks: Checks | None

    async def index(self, request: web.Request) -> web.Response:
        return self._page()

    async def check(self, request: web.Request) -> web.Response:
        """Return the findings of the check, which is the same for all streams.

        They come alone for htmx, in the whole page without it.
        """
        return await _checked(request, self.checks, self.pages) or self._page()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        return await self.streams.serve(request, overview_changes(self.overview, self.pages))

    async def state(self, request: web.Request) -> web.Response:
        """Return the latest snapshot of each stream, after waiting until the view of each was read or failed."""
        return _json(self.overview.encoded(await self.overview.current(CURRENT_WITHIN_S)))

    def _page(self) -> web.Response:
        check = self.checks.last if self.checks else None
        return _html(self.pages.overview(self.overview.states, self.checks is not None, check))


def _query_of(request: web.Request) -> PageQuery:
    """Return what the query of an address chooses; a wrong one is answered with what is wrong."""
    try:
        return PageQuery.of(request.query, request.query.getall("record", []))
    except UsageError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error


async def _checked(request: web.Request, checks: Checks | None, pages: Pages) -> web.Response | None:
    """Return the findings of a check that has run, alone for htmx; None for a whole page."""
    if checks is None:
        raise web.HTTPNotFound(text="This console runs no checks.\n")
    checked = await checks.run()
    if request.headers.get("HX-Request") == "true":
        return _html(pages.fragment("findings.html", check=checked))
    return None


async def _read_timeline(view: View, partition_key: str, limit: int, data: bool) -> Timeline:
    try:
        return await view.timeline(partition_key, limit, data=data)
    except RelayError as error:
        return Timeline(partition_key, (), problems=[Problem("The outbox", first_line(error))])


class States:
    """The latest snapshot as JSON, which is made once for all who ask for it."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._encoded = b""

    def encoded(self, snapshot: Snapshot) -> bytes:
        if snapshot is not self._snapshot:
            self._snapshot, self._encoded = snapshot, encoded(snapshot)
        return self._encoded


class Checks:
    """Runs a check at most once a `pause_s`, and for everybody who waits at once."""

    def __init__(self, check: Check, *, pause_s: float = 30.0, timeout_s: float = 60.0) -> None:
        self._check = check
        self._pause_s = pause_s
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._ended = 0.0
        self.last: Checked | None = None

    async def run(self) -> Checked:
        """Return a new result, or the last one if it is younger than the pause."""
        async with self._lock:
            if self.last is None or time.monotonic() - self._ended >= self._pause_s:
                self.last = await self._new()
                self._ended = time.monotonic()
            return self.last

    async def _new(self) -> Checked:
        try:
            async with asyncio.timeout(self._timeout_s):
                findings = await self._check()
        except TimeoutError:
            text = Sentence(f"it took more than {self._timeout_s:g} s: run `", CHECK, "` in a shell")
            return Checked(time.time(), (), Problem("The check", text))
        except RelayError as error:
            return Checked(time.time(), (), Problem("The check", first_line(error)))
        return Checked(time.time(), sorted(findings, key=lambda each: _LEVELS.index(each.level)))


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _html(text: str) -> web.Response:
    # A lone surrogate, which JSON can name, has no bytes in UTF-8.
    body = text.encode("utf-8", "replace")
    return web.Response(body=body, content_type="text/html", charset="utf-8")
