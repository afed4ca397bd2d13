"""The report of `check` on relay.toml: its rules one by one, and the streams that they make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from outbox_relay.operator.backends.backend import open_backends
from relay.backends.findings import Finding
from relay.config.settings import SERVICEBUS, Settings


def explained(streams: Sequence[Settings]) -> Iterator[Finding]:
    """Yield the findings about the rules and the streams.

    There are none where the environment alone describes the only stream.
    """
    if len(streams) == 1 and streams[0].label is None and not streams[0].selection.routes:
        return
    by_outbox = {outbox: list(each) for outbox, each in groupby(streams, key=attrgetter("outbox"))}
    for outbox, of_outbox in by_outbox.items():
        prefix = f"outbox {outbox}: " if len(by_outbox) > 1 else ""
        for line in _rules(of_outbox):
            yield Finding.ok(f"{prefix}{line}")
    for each in streams:
        yield Finding.ok(f"stream {each.stream}: {_way(each)}")


def _rules(streams: Sequence[Settings]) -> Iterator[str]:
    """Yield the rules of one outbox, in the order in which they are tried, and the fate of all other events."""
    selection = streams[0].selection
    if selection.types:
        yield f"documents of the type {selection.types_text} are events"
    names = {each.selection.destination: each.servicebus.destination.removeprefix("the ") for each in streams}
    for route in selection.routes:
        yield f"{route.events} → {', '.join(names[each] for each in route.to if each in names)}"
    if selection.routes and all(route.when for route in selection.routes):
        yield _rest(streams)


def _rest(streams: Sequence[Settings]) -> str:
    """Describe the fate of an event that no rule takes."""
    keeper = next((each.stream for each in streams if each.selection.keeps_unrouted), None)
    if keeper is None:
        return "everything else → ignored"
    return f"everything else → quarantine (no-route), by the stream {keeper}"


def _way(settings: Settings) -> str:
    """Describe the source and the destination of a stream, and the resources of its own."""
    wording = open_backends(settings)[0].wording
    return f"{wording.source} → {target_of(settings)}, with {wording.own}"


def target_of(settings: Settings) -> str:
    """Describe the destination of a stream."""
    namespace = "" if settings.servicebus.setting == SERVICEBUS else f" of {settings.servicebus.setting}"
    return f"{settings.servicebus.destination}{namespace}"
