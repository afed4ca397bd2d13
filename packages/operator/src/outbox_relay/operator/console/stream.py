"""Server-sent events: the sections of the page that have changed, and events as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import asdict

from aiohttp import web

from outbox_relay.operator.console.model import Known, Problem, Snapshot, Timeline, Tracked, members
from outbox_relay.operator.console.overview import Overview, overall
from outbox_relay.operator.console.page_query import EVERYTHING, EventFilter, PageQuery
from outbox_relay.operator.console.pages import Pages
from outbox_relay.operator.console.ports import View
from outbox_relay.operator.console.timeline import OpenTimeline
from relay.core import jsontext

MOST_STREAMS = 200

# Minimum seconds between changes of a page: faster ones cannot be read.
_PAUSE_S = 0.25
_TOTALS_PAUSE_S = 10.0
_HEARTBEAT_S = 10.0
_HEARTBEAT = b": \n\n"
_TIMELINE_PAUSE_S = 0.75
_RETRY_S = 5.0

_NOW = "now"
_NOTHING = "{}"

CURRENT_WITHIN_S = 5.0
"""Maximum seconds until an answer that needs a look, after an idle time, says what is stale instead."""


class Streams:
    """The open streams of an application, which all end when it shuts down."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self, _: web.Application) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, request: web.Request, messages: AsyncIterator[bytes]) -> web.StreamResponse:
        """Answer with these messages until the client or the application ends it."""
        if len(self._tasks) >= MOST_STREAMS:
            return web.Response(status=503, text=f"{MOST_STREAMS} streams are open: close some pages.\n")
        # X-Accel-Buffering: for proxies that would collect the messages.
        headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        task = asyncio.create_task(_write(response, messages))
        self._tasks.add(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self._tasks.discard(task)
        return response


async def changes(
    sections: Callable[[], Awaitable[Mapping[str, str]]],
    totals: Callable[[], str],
    news: Callable[[float], Awaitable[None]],
    *,
    within_s: float = _HEARTBEAT_S,
) -> AsyncIterator[bytes]:
    """Yield the HTML of each section, when it has changed; first of all of them.

    Args:
        sections: The HTML of each section as it is now, by its name.
        totals: The totals in a sentence, which is sent at most every ten seconds.
        news: Waits until there is anything new, or for this many seconds.
        within_s: Seconds after which the sections are looked at without news.
    """
    yield b"retry: 1000\n\n"
    sent: dict[str, str] = {}
    said_at = heard_at = float("-inf")
    clock = asyncio.get_running_loop().time
    while True:
        found = await sections()
        if clock() - said_at >= _TOTALS_PAUSE_S:
            found, said_at = {**found, "totals": totals()}, clock()
        changed = {name: html for name, html in found.items() if sent.get(name) != html}
        sent |= changed
        for name, html in changed.items():
            yield message(html, name)
        if not changed and clock() - heard_at >= _HEARTBEAT_S:
            yield _HEARTBEAT
        if changed or clock() - heard_at >= _HEARTBEAT_S:
            heard_at = clock()
        await asyncio.sleep(_PAUSE_S)
        await news(within_s)


def page_changes(
    view: View, pages: Pages, timeline: OpenTimeline | None, query: PageQuery = EVERYTHING
) -> AsyncIterator[bytes]:
    """Yield the changes of the page of a view.

    Args:
        timeline: That of the key whose timeline is open; None if none is.
        query: That of the page's address.
    """
    snapshot = view.latest

    async def sections() -> Mapping[str, str]:
        found = pages.sections(snapshot, query)
        return found if timeline is None else {**found, "timeline": await timeline.html()}

    async def news(timeout_s: float) -> None:
        nonlocal snapshot
        snapshot = await later(view, snapshot, timeout_s)

    within_s = _HEARTBEAT_S if timeline is None else _TIMELINE_PAUSE_S
    return changes(sections, lambda: pages.totals(snapshot), news, within_s=within_s)


def overview_changes(overview: Overview, pages: Pages) -> AsyncIterator[bytes]:
    """Yield the changes of the page of all streams."""
    states = overview.states

    async def sections() -> Mapping[str, str]:
        return pages.overview_sections(states)

    async def news(timeout_s: float) -> None:
        nonlocal states
        await overview.wait(states, timeout_s)
        states = overview.states

    return changes(sections, lambda: overall(states).text, news)


async def recent_events(view: View, chosen: EventFilter | None = None) -> AsyncIterator[bytes]:
    """Yield each of the recent events as JSON: those that are there, and then whenever one is further.

    With `chosen`, those events alone, each from when it was among them on.

    A message `now` follows those that are there. A message `known` says that they are stale by now, or current
    again.
    """
    seen: dict[str, Tracked] = {}
    snapshot, said, is_past = await view.current(CURRENT_WITHIN_S), (False, False), True
    while True:
        stale = snapshot.known_of("recent").stale
        # Why they are stale may be known later.
        if (now := (stale, stale and bool(snapshot.problems))) != said:
            said = now
            yield message(_known(snapshot).decode(), "known")
        for tracked in reversed(snapshot.recent):
            if seen.get(tracked.id) != tracked and (chosen is None or chosen.matches(tracked)):
                yield message(encoded(tracked).decode())
        if is_past and not stale:
            is_past = False
            yield message(_NOTHING, _NOW)
        # An event that is no longer among the recent ones does not come back.
        seen = {each.id: each for each in snapshot.recent}
        found = await later(view, snapshot, _HEARTBEAT_S)
        if found is snapshot:
            yield _HEARTBEAT
        snapshot = found


async def events_of_key(
    view: View, state: Callable[[], Hashable], read: Callable[[], Awaitable[Timeline]]
) -> AsyncIterator[bytes]:
    """Yield each event of a key as JSON: those of its timeline, and then whenever one is further.

    The messages `now` and `known` are those of `recent_events`.

    Args:
        view: Whose changes are awaited.
        state: Its result changes whenever the timeline may have changed.
        read: Reads the timeline, which costs request units.
    """
    seen: dict[str, Tracked] = {}
    snapshot, shown, is_past, known = view.latest, None, True, Known(stale=False)
    problems: Sequence[Problem] = ()
    while True:
        if problems or is_past or state() != shown:
            shown, timeline = state(), await read()
            if timeline.problems != problems:
                problems = timeline.problems
                known = Known(known.at, stale=bool(problems))
                yield message(_encoded_known(known, problems).decode(), "known")
            for tracked in timeline.events:
                if seen.get(tracked.id) != tracked:
                    yield message(encoded(tracked).decode())
            seen = {each.id: each for each in timeline.events} or seen
            if not problems:
                known = Known(snapshot.at, stale=False)
                if is_past:
                    yield message(_NOTHING, _NOW)
                is_past = False
        else:
            yield _HEARTBEAT
        await asyncio.sleep(_TIMELINE_PAUSE_S)
        snapshot = await later(view, snapshot, _RETRY_S if problems else _HEARTBEAT_S)


async def later(view: View, snapshot: Snapshot, timeout_s: float) -> Snapshot:
    """Return the next snapshot after this one, or this one if there is none in time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await view.changed(snapshot.number)
    except TimeoutError:
        return snapshot


def _known(snapshot: Snapshot) -> bytes:
    """Return the times of the recent events as JSON.

    It has when they were known, if they are stale, and what could not be read.
    """
    return _encoded_known(snapshot.known_of("recent"), snapshot.problems)


def _encoded_known(known: Known, problems: Sequence[Problem]) -> bytes:
    return jsontext.encode({**asdict(known), "problems": [asdict(each) for each in problems]})


def encoded(value: Snapshot | Timeline | Tracked) -> bytes:
    """Encode a value as a JSON object with the names of its attributes.

    Times are in seconds since 1970, null is unknown.
    """
    return jsontext.encode(members(value))


def message(data: str, event: str | None = None) -> bytes:
    """Return a message in the format of server-sent events.

    https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """
    # A carriage return ends a line of the stream as well, and would begin a new field.
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = [f"event: {event}"] if event is not None else []
    return "\n".join([*head, *(f"data: {line}" for line in lines), "", ""]).encode("utf-8", "replace")


async def _write(response: web.StreamResponse, messages: AsyncIterator[bytes]) -> None:
    try:
        async for each in messages:
            await response.write(each)
    except ConnectionError:
        pass  # the client has gone
