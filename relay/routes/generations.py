"""Generations of the rules: which content of relay.toml counts for an event, by the time of its commit.

The timeline of an outbox has a generation for each change of its rules, and a bound, `final_until`: which rules
count for commit times before the bound never changes again. An event is routed only if its commit time lies before
the bound, and a generation begins at the bound or later. So every process gives an event to the same destinations,
whichever rules it was deployed with, and whatever its clock says (docs/decisions/0027-generations-of-rules.md).

Commit times are whole seconds since 1970, as the outbox states them: `_ts` in Cosmos DB, and the time in the
event's position in an SQL feed. They are compared with one another, never with a clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from relay.core.errors import RulesError

FORMAT = 1
"""The version of the stored form. Another one is refused, as its meaning is unknown."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Rules, and the commit time from which they count.

    Attributes:
        number: Unique within its timeline, and growing; some are left out.
        begins_at: The first commit time for which it counts; None for the first generation.
        rules: The content of relay.toml, as `rules_text` writes it.
    """

    number: int
    begins_at: int | None
    rules: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The generations of one outbox.

    Attributes:
        generations: In the order of their numbers and of their beginnings. The first counts from the beginning.
        final_until: Which generation counts is final for commit times before this one.
    """

    generations: tuple[Generation, ...]
    final_until: int

    @classmethod
    def of(cls, rules: str) -> Timeline:
        """Return the timeline of an outbox that has had no other rules than these."""
        return cls((Generation(1, None, rules),), 0)

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Timeline:
        """Return the timeline that `item` has written; unknown members do not matter. Raises RulesError."""
        try:
            if item["format"] != FORMAT:
                raise ValueError(f"their format is {item['format']!r}, and this version knows {FORMAT}")
            generations = tuple(_generation(each, item["rules"]) for each in item["generations"])
            final_until = _whole(item["finalUntil"])
            _check(generations)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise RulesError(
                f"the generations of the rules cannot be read ({type(error).__name__}: {error}). If a later "
                "version of the relay has written them, deploy that version again."
            ) from error
        return cls(generations, final_until)

    def item(self) -> dict[str, Any]:
        """Return the stored form, in values that JSON has. Rules that return are stored once."""
        rules = list(dict.fromkeys(each.rules for each in self.generations))
        return {
            "format": FORMAT,
            "finalUntil": self.final_until,
            "rules": rules,
            "generations": [
                {"number": each.number, "beginsAt": each.begins_at, "rules": rules.index(each.rules)}
                for each in self.generations
            ],
        }

    @property
    def last(self) -> Generation:
        """The generation of the latest commit times."""
        return self.generations[-1]

    def at(self, committed_at: int) -> Generation:
        """Return the generation that counts for a commit time. Raises RulesError where that is not final yet."""
        if committed_at >= self.final_until:
            raise RulesError(
                f"an event was committed at {committed_at}, and which rules count is known for times before "
                f"{self.final_until} only. It is tried again."
            )
        return next(each for each in reversed(self.generations) if _has_begun(each, committed_at))

    def of_span(self, earliest: int, latest: int) -> Generation | None:
        """Return the one generation of all commit times from `earliest` to `latest`; None if there are several.

        Raises RulesError where that is not final yet.
        """
        found = self.at(latest)
        return found if _has_begun(found, earliest) else None

    def extend(self, until: int) -> Timeline:
        """Return the timeline whose rules are final for commit times before `until` too."""
        return replace(self, final_until=max(self.final_until, until))

    def change(self, rules: str, now: int) -> Timeline:
        """Return the timeline in which these rules count from a time on: now, or where the others are final until.

        A generation that would begin later than these rules is left out: no event was routed by it.
        """
        if self.last.rules == rules:
            return self
        begins_at = max(self.final_until, now)
        kept = tuple(each for each in self.generations if _has_begun(each, begins_at - 1))
        if kept[-1].rules == rules:
            return replace(self, generations=kept)
        return replace(self, generations=(*kept, Generation(self.last.number + 1, begins_at, rules)))

    def continues(self, earlier: Timeline) -> bool:
        """Return True if whatever is final in `earlier` is final here, and is the same."""
        bound = earlier.final_until
        return bound <= self.final_until and self._begun_before(bound) == earlier._begun_before(bound)

    def ends_of(self, destinations_of: Callable[[str], Iterable[str]]) -> dict[str, int | None]:
        """Return, for each destination of any generation, the commit time from which no event is its.

        The end is None if the last generation names the destination. `destinations_of` returns those of rules.
        """
        ends: dict[str, int | None] = {}
        for each, following in pairwise((*self.generations, None)):
            assert each is not None
            end = None if following is None else following.begins_at
            ends |= dict.fromkeys(destinations_of(each.rules), end)
        return ends

    def _begun_before(self, time: int) -> tuple[Generation, ...]:
        return tuple(each for each in self.generations if _has_begun(each, time - 1))


def rules_text(content: Mapping[str, Any]) -> str:
    """Return the parsed content of relay.toml as text that is equal for equal content, whatever its layout."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _has_begun(generation: Generation, time: int) -> bool:
    return generation.begins_at is None or generation.begins_at <= time


def _generation(item: Mapping[str, Any], rules: list[Any]) -> Generation:
    begins_at, text = item["beginsAt"], rules[_whole(item["rules"])]
    if not isinstance(text, str):
        raise TypeError("rules are no text")
    return Generation(_whole(item["number"]), None if begins_at is None else _whole(begins_at), text)


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no whole number")
    return value


def _check(generations: tuple[Generation, ...]) -> None:
    """Raise ValueError unless the first generation alone is without a beginning, and the others are in order."""
    if not generations or generations[0].begins_at is not None:
        raise ValueError("the first generation is missing")
    beginnings = [-1 if each.begins_at is None else each.begins_at for each in generations]
    numbers = [each.number for each in generations]
    for values in (beginnings, numbers):
        if any(one >= other for one, other in pairwise(values)):
            raise ValueError("generations are not in order")
    if any(each.begins_at is None for each in generations[1:]):
        raise ValueError("a later generation has no beginning")
