"""The rules of one stream in time: for each commit time, which documents are its events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from relay.core.errors import RulesError, first_line
from relay.routes.generations import Generation, Timeline
from relay.routes.rulebook import Rulebook
from relay.routes.selection import Selection
from relay.telemetry.stream import logger_of

logger = logger_of(__name__)


@dataclass(frozen=True, slots=True)
class Selections:
    """The events of a stream within a span of commit times.

    Attributes:
        only: What counts for the whole span; None if several generations share it.
        at: Returns what counts for a commit time of the span.
    """

    only: Selection | None
    at: Callable[[int], Selection]


@dataclass(slots=True)
class StreamRules:
    """The rules of a stream. Create one per process and stream.

    Attributes:
        rulebook: The rules of its outbox.
        selection_of: Returns the stream's events by the rules of a generation. Raises RulesError.
    """

    rulebook: Rulebook
    selection_of: Callable[[str], Selection]
    _made: dict[str, Selection] = field(default_factory=dict)

    async def try_to_add(self) -> None:
        """Add the rules that this process was deployed with, if it has not yet. A failure is logged.

        Rules count from when they are added, so it should not take an event to do it.
        """
        try:
            await self.rulebook.timeline(0)
        except RulesError as error:
            logger.warning("relay_rules_unavailable: %s", first_line(error))

    async def within(self, earliest: int, latest: int) -> Selections:
        """Return the stream's events within a span of commit times, ends included. Raises RulesError."""
        timeline: Timeline = await self.rulebook.timeline(latest)
        only = timeline.of_span(earliest, latest)
        return Selections(None if only is None else self._of(only), lambda time: self._of(timeline.at(time)))

    def _of(self, generation: Generation) -> Selection:
        made = self._made.get(generation.rules)
        if made is None:
            made = self._made[generation.rules] = self.selection_of(generation.rules)
        return made
