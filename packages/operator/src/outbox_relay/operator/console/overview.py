"""The page of all streams of an app: a line for each, with its state and the age of what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from outbox_relay.operator.console.formatting import Commands, plural
from outbox_relay.operator.console.model import Snapshot, members
from outbox_relay.operator.console.ports import Extension, View
from outbox_relay.operator.console.status import Headline, headline, stale_since
from relay.backends.findings import Level
from relay.core import jsontext

# Maximum number of streams that the headline names.
_NAMED = 5


@dataclass(frozen=True, slots=True, eq=False)
class StreamView:
    """A stream, as the console shows it.

    Attributes:
        name: Of the stream.
        outbox, destination: What it reads and where it sends, in words.
        view: Of this stream alone, so that nothing that happens to another one changes it.
        commands: Those of its page.
        extensions: Blocks and routes of others on its page; static files are served once for all pages.
    """

    name: str
    outbox: str
    destination: str
    view: View
    commands: Commands = field(default_factory=Commands)
    extensions: Sequence[Extension] = ()

    @property
    def title(self) -> str:
        """Of its page."""
        return f"{self.name} → {self.destination}"


@dataclass(frozen=True, slots=True)
class StreamState:
    """The line of a stream.

    Attributes:
        name, outbox, destination: As of `StreamView`.
        status: Its state in one sentence.
        stale_since: Since when some figure is not current, in words; empty if all are.
        snapshot: Everything that is known of it.
    """

    name: str
    outbox: str
    destination: str
    status: Headline
    stale_since: str
    snapshot: Snapshot

    @classmethod
    def of(cls, stream: StreamView, snapshot: Snapshot) -> StreamState:
        return cls(
            stream.name,
            stream.outbox,
            stream.destination,
            headline(snapshot),
            stale_since(snapshot),
            snapshot,
        )

    @property
    def dead_lettered(self) -> int | None:
        """Dead letters of every subscription; None if these were never read."""
        if self.snapshot.known_of("subscriptions").at is None:
            return None
        return sum(each.dead_lettered for each in self.snapshot.subscriptions)


class Overview:
    """The views of all streams, each of which is read independently of the others."""

    def __init__(self, streams: Sequence[StreamView]) -> None:
        self._streams = streams

    @property
    def states(self) -> Sequence[StreamState]:
        """The last known state of each stream, in the order of the streams."""
        return [StreamState.of(each, each.view.latest) for each in self._streams]

    async def current(self, timeout_s: float) -> Sequence[StreamState]:
        """Return the state of each stream. Waits until its view was read or failed, for this time at most."""
        found = await asyncio.gather(*(each.view.current(timeout_s) for each in self._streams))
        return [StreamState.of(*each) for each in zip(self._streams, found, strict=True)]

    @staticmethod
    def encoded(states: Sequence[StreamState]) -> bytes:
        """Return the streams as a JSON object.

        Each has its line, and its snapshot in the form of `/state.json` of its page.
        """
        return jsontext.encode({"streams": [_members(each) for each in states]})

    async def wait(self, states: Sequence[StreamState], timeout_s: float) -> None:
        """Wait until one of the views has changed since, or for this many seconds."""
        waiting = [
            asyncio.ensure_future(stream.view.changed(state.snapshot.number))
            for stream, state in zip(self._streams, states, strict=True)
        ]
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


def overall(states: Sequence[StreamState]) -> Headline:
    """Return the state of all streams in one sentence: as serious as the most serious one."""
    wanting = [each for each in states if each.status.level in (Level.ERROR, Level.WARNING)]
    if wanting:
        worst = any(each.status.level is Level.ERROR for each in wanting)
        more = f" and {len(wanting) - _NAMED} more" if len(wanting) > _NAMED else ""
        names = ", ".join(each.name for each in wanting[:_NAMED])
        verb = "needs" if len(wanting) == 1 else "need"
        return Headline(
            Level.ERROR if worst else Level.WARNING,
            f"{len(wanting)} of {plural(len(states), 'stream', 'streams')} {verb} attention: {names}{more}.",
        )
    if unread := [each for each in states if each.status.level is Level.UNKNOWN]:
        return Headline(Level.UNKNOWN, f"{plural(len(unread), 'outbox is', 'outboxes are')} being read.")
    # Events of a stream that needs nobody may still wait, or may have been discarded or expired: its line says so.
    return Headline(Level.OK, f"None of the {len(states)} streams needs attention.")


def path_of(stream: str) -> str:
    """Return the address of a stream's page, without the slash at its end."""
    return f"/streams/{stream}"


def _members(state: StreamState) -> dict[str, Any]:
    status = {"level": state.status.level, "text": state.status.text, "section": state.status.section}
    return {
        "name": state.name,
        "outbox": state.outbox,
        "destination": state.destination,
        "status": status,
        "stale_since": state.stale_since,
        "snapshot": members(state.snapshot),
        "path": f"{path_of(state.name)}/",
    }
