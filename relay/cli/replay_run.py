"""Publishes the events of a replay, chunk by chunk, and counts them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Set
from contextlib import aclosing

from relay.cli.replay_report import ReplayCounts
from relay.cli.replay_state import Invalid, ReplayState
from relay.cli.sender import OrderedSender
from relay.cli.terminal import Terminal
from relay.events import MAX_KEY_LENGTH, Document, Event, Rejected
from relay.outbox import Outbox, Reading

_DIGEST_CHARACTERS = 16


class Replay:
    """One run of a replay: a dry run without a sender; without limits it may overtake the relay."""

    def __init__(
        self,
        outbox: Outbox,
        reading: Reading,
        sender: OrderedSender | None,
        parked: Set[str] | None,
        state: ReplayState,
        terminal: Terminal,
    ) -> None:
        """
        Args:
            outbox: The outbox.
            reading: Its events to publish.
            sender: Publishes them; None for a dry run.
            parked: The parked keys; None where nothing is left to the relay or to a release (--force).
            state: What was published before.
            terminal: Where progress is shown.
        """
        self._outbox = outbox
        self._reading = reading
        self._sender = sender
        self._parked = parked
        self._state = state
        self._terminal = terminal
        self._counts = ReplayCounts()

    async def run(self) -> ReplayCounts:
        """Publish what is not done yet, or count it. Raises ServiceError."""
        total = await self._reading.count()
        progress = self._terminal.progress("events read" if self._sender is None else "events done", total)
        async with aclosing(self._reading.pages()) as pages:
            async for documents in pages:
                await self._take(documents)
                progress.update(self._counts.matched)
                if self._sender is not None and self._sender.gave_up:
                    self._counts.unread = self._reading.unread
                    return self._counts
        self._counts.unread = self._reading.unread
        progress.finish(self._counts.matched)
        left_over = self._counts.unread or self._counts.left
        if self._sender is not None and not (self._sender.failures or left_over):
            self._state.finish()
        return self._counts

    async def _take(self, documents: list[Document]) -> None:
        self._counts.matched += len(documents)
        waiting = [document for document in documents if not self._state.covers(document)]
        self._counts.skipped += len(documents) - len(waiting)
        ready = [document for document in waiting if not await self._is_left(document)]
        events, invalid = self._validated(ready)
        invalid += [Invalid(each.id, "", each.reason, each.detail) for each in self._reading.gone]
        self._reading.gone = []
        self._counts.keys.update(event.partition_key for event in events)
        self._counts.actions.update(event.action for event in events)
        if self._sender is None:
            self._state.invalid |= {(each.partition_key, each.id): each for each in invalid}
            return
        if self._state.identity.as_new:
            events = [event._replace(id=new_id(event.id, self._state.identity.run)) for event in events]
        sent = await self._sender.send(events)
        invalid += map(_invalid, sent.rejected)
        dealt_with = {key: [event.document for event in through] for key, through in sent.through.items()}
        self._state.advance(dealt_with, len(sent.accepted), invalid)

    async def _is_left(self, document: Document) -> bool:
        """Whether a document is left to the relay, which has not or may not have passed it, or to a release."""
        if self._parked is None:
            return False
        key = document.get("partitionKey")
        if key in self._parked:
            self._counts.parked[str(key)] += 1
            return True
        if await self._outbox.passed(document):
            return False
        self._counts.ahead[str(key)] += 1
        return True

    def _validated(self, documents: Iterable[Document]) -> tuple[list[Event], list[Invalid]]:
        events: list[Event] = []
        invalid: list[Invalid] = []
        for document in documents:
            event = self._outbox.event_of(document)
            if isinstance(event, Event):
                events.append(event)
            else:
                invalid.append(_invalid(event))
        return events, invalid


def _invalid(rejected: Rejected) -> Invalid:
    key = str(rejected.document.get("partitionKey"))
    return Invalid(rejected.id, key, str(rejected.reason), rejected.detail)


def new_id(identifier: str, run: str) -> str:
    """The message id under which a run of a replay publishes an event as new; at most 128 characters.

    A longer id is cut, and a digest of it distinguishes it from others with the same beginning.
    """
    suffix = f":replay:{run}"
    # Service Bus counts UTF-16 code units, so a character beyond the basic plane counts twice.
    room = MAX_KEY_LENGTH - len(suffix)
    units = identifier.encode("utf-16-le", errors="surrogatepass")
    if len(units) > 2 * room:
        digest = hashlib.sha256(units).hexdigest()[:_DIGEST_CHARACTERS]
        kept = units[: 2 * (room - len(digest) - 1)].decode("utf-16-le", errors="ignore")
        identifier = f"{kept}~{digest}"
    return identifier + suffix
