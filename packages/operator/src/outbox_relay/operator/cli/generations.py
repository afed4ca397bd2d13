"""The findings of `check` on rules with generations, and the generation that counts for an event."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from outbox_relay.operator.backends.backend import OperatorBackend, open_backend, open_backends
from relay.backends.findings import Finding
from relay.backends.outbox import Outbox
from relay.config.settings import Settings
from relay.config.streams import destinations_of, in_stream, selection_of
from relay.core.documents import SourceDocument
from relay.core.errors import RelayError, RulesError
from relay.core.place import ulid_time
from relay.core.remedy import Sentence
from relay.routes.generations import Generation, Timeline

# More changes than these within an hour are those of deployments that take turns.
_MOST_CHANGES = 5
_HOUR_S = 3600

# The clocks of physical partitions may differ, so what is committed next may have an earlier time.
_CLOCKS_DIFFER_S = 300


async def findings(streams: Sequence[Settings]) -> list[Finding]:
    """Return what there is to say of the generations of each outbox, and of changed rules where there are none."""
    first = {each.outbox: each for each in reversed(streams)}
    found: list[Finding] = []
    for settings in reversed(first.values()):
        if settings.rules is None:
            found += _without_generations(settings)
            continue
        for backend in open_backends(settings):
            found += await _of_outbox(backend, {each.stream for each in streams})
    return found


def _without_generations(settings: Settings) -> Iterator[Finding]:
    """Yield the finding on an outbox with several destinations, whose streams are at different positions."""
    destinations = {each for route in settings.selection.routes for each in route.to}
    if len(destinations) < 2:
        return
    subject = f"changed rules of the outbox {settings.outbox} count for all events that a stream has not read"
    lost = "those between the positions of the streams would be lost"
    if settings.says_which_count:
        yield Finding.ok(
            f"{subject}, as relay.toml says: move events to another destination in two steps, or {lost}"
        )
        return
    yield Finding.warning(
        f"{subject}: if a rule moves events to another destination in one step, {lost}, and nothing reports it",
        'Set changed_rules = "later" in relay.toml, in a deployment of its own. Or set changed_rules = "unread", '
        "and move events in two steps (docs/routes.md).",
    )


async def _of_outbox(backend: OperatorBackend, streams: set[str]) -> list[Finding]:
    settings = backend.settings
    subject = f"the rules of the outbox {settings.outbox}"
    try:
        timeline = await _read(backend)
    except RelayError as error:
        return [
            Finding.error(
                Sentence(f"{subject} have generations, and ", error.sentence),
                "Until then no event of it is published.",
            )
        ]
    if timeline is None:
        return [Finding.ok(f"{subject} have no generation yet: the first one counts for all events")]
    found = list(_of_timeline(timeline, subject, settings))
    for destination, end in timeline.ends_of(lambda rules: destinations_of(rules, settings.outbox)).items():
        if end is not None:
            found.append(await _of_stream(in_stream(settings, destination), end, streams))
    return found


def _of_timeline(timeline: Timeline, subject: str, settings: Settings) -> Iterator[Finding]:
    last = timeline.last
    since = (
        "for all events" if last.begins_at is None else f"for events committed since {format_time(last.begins_at)}"
    )
    if settings.rules is not None and last.rules == settings.rules.text:
        yield Finding.ok(f"{subject} are those of generation {last.number}, which counts {since}")
    else:
        yield Finding.ok(
            f"{subject} are not in force: generation {last.number} has others, and counts {since}. They become a "
            "generation when the app starts with them"
        )
    lately = sum(
        each.begins_at is not None and each.begins_at > time.time() - _HOUR_S for each in timeline.generations
    )
    if lately > _MOST_CHANGES:
        yield Finding.warning(
            f"{subject} have changed {lately} times within an hour: deployments with different files run at once",
            "Stop the one that is out of date.",
        )


async def _of_stream(settings: Settings, end: int, streams: set[str]) -> Finding:
    """Return what a stream that no rule of today feeds still has of the time before."""
    subject = f"the stream {settings.stream} was given up for events committed since {format_time(end)}"
    try:
        since = await open_backend(settings).waiting_since()
    except RelayError as error:
        return Finding.unknown(f"{subject}, and what it still has cannot be read", error.sentence)
    end += _CLOCKS_DIFFER_S
    waits = time.time() < end or (since is not None and since < end)
    if settings.stream not in streams and waits:
        return Finding.error(
            f"{subject}, and may still have earlier ones, which nobody reads",
            f"Put [destinations.{settings.selection.destination}] back into relay.toml, and deploy it.",
        )
    if waits:
        return Finding.ok(f"{subject}, and may still have earlier ones")
    return Finding.ok(f"{subject}, and has passed all earlier ones: its destination may be left out of relay.toml")


@dataclass(frozen=True, slots=True)
class Judged:
    """The settings by which an event is judged.

    Attributes:
        settings: Those of its stream, with the rules of its commit time.
        generation: The generation; None if the rules of the file count, as its commit time is not known.
    """

    settings: Settings
    generation: Generation | None = None

    @property
    def sentence(self) -> str:
        """Return the generation in words."""
        if self.generation is None:
            return "by the rules of the file: when it was committed is not known"
        since = self.generation.begins_at
        when = "the first one" if since is None else f"which counts since {format_time(since)}"
        return f"by generation {self.generation.number} of the rules, {when}"


async def judge(backend: OperatorBackend, outbox: Outbox, document: SourceDocument, key: str | None) -> Judged:
    """Return the settings by which a document is judged; `key` is that of a stored event. Raises RelayError."""
    settings = backend.settings
    committed_at = await _committed_at(outbox, document, key)
    timeline = None if committed_at is None else await _read(backend)
    if timeline is None or committed_at is None:
        return Judged(settings)
    try:
        generation = timeline.at(committed_at)
    except RulesError:
        # Nobody has routed it yet.
        generation = timeline.last
    selection = selection_of(generation.rules, settings.outbox, settings.selection.destination)
    return Judged(replace(settings, routed=selection), generation)


async def backend_of_event(backend: OperatorBackend, key: str, event_id: str) -> OperatorBackend:
    """Return the backend with the rules that count for an event of the outbox.

    It is the same one if the rules have no generations, or the outbox has no such event.

    Raises:
        RelayError: The outbox or the generations cannot be read.
    """
    if backend.settings.rules is None:
        return backend
    outbox = backend.open_outbox()
    try:
        document = await outbox.current(key, event_id)
        if document is None:
            return backend
        judged = await judge(backend, outbox, document, key)
    finally:
        await outbox.close()
    return open_backend(replace(judged.settings, rules=None))


async def _committed_at(outbox: Outbox, document: SourceDocument, key: str | None) -> int | None:
    if not document.is_row:
        stored = document.stored.get("_ts")
        return stored if type(stored) is int else None
    if key is None:
        # A record has the position with which its row was read.
        return None if document.place.ulid is None else ulid_time(document.place.ulid)
    found = await outbox.find(key, str(document.fields.get("id")))
    times = [ulid_time(each.ulid) for each in (found.places if found else ()) if each.ulid is not None]
    return max(times, default=None)


async def _read(backend: OperatorBackend) -> Timeline | None:
    timelines = backend.open_timelines()
    try:
        stored = await timelines.read()
    finally:
        await timelines.close()
    return None if stored is None else stored.timeline


def format_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
