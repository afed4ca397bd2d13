"""Rules that change during a campaign: what is deployed when, and which rules count for a commit time.

What counts is read from the stored timeline in its stored form, without any code of the relay.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from local.chaos.streams import DEFAULT, FIRST_ROUTES, Layout, OutboxRoutes, Routes

_ROLLBACK = 0.3
_ENDLESS = 2**62


class Rollout(StrEnum):
    """The order in which the processes of a deployment are replaced."""

    ROLLING = "rolling"
    """One after the other: meanwhile, old and new ones run."""
    TOGETHER = "together"
    """All at once."""
    ONE = "one"
    """One of them alone: the others keep their rules until the next deployment, or until a fault ends them."""


@dataclass(frozen=True, slots=True)
class Change:
    """A deployment with another relay.toml.

    Attributes:
        after: Number of committed events at which it begins.
        routes: The rules of its file.
        rollout: How the processes are replaced.
        is_rollback: True if the rules are those before the last ones.
    """

    after: float
    routes: Routes
    rollout: Rollout
    is_rollback: bool


def draw_changes(seed: int, layout: Layout, *, events: int, changes: int) -> list[Change]:
    """Draw the changes of a campaign, spread over its events.

    A change moves actions between the destinations, may take a destination out of the rules, or is a rollback.
    """
    rng = random.Random(f"rules-{seed}")
    history = [FIRST_ROUTES]
    found = []
    for number in range(1, changes + 1):
        is_rollback = len(history) > 1 and rng.random() < _ROLLBACK
        routes = history[-2] if is_rollback else _other_routes(rng, layout, history[-1])
        history.append(routes)
        rollout = rng.choice(list(Rollout))
        found.append(Change(events * number / (changes + 1), routes, rollout, is_rollback))
    return found


def _other_routes(rng: random.Random, layout: Layout, than: Routes) -> Routes:
    while True:
        routes = {outbox: _routes_of(rng, layout, outbox) for outbox in layout.outboxes}
        if all(routes[outbox] != than[outbox] for outbox in layout.outboxes):
            return routes


def _routes_of(rng: random.Random, layout: Layout, outbox: str) -> OutboxRoutes:
    """Return routes of which one at least names `default`: its stream has the events that no route takes."""
    names = [each.destination.name for each in layout.streams if each.outbox == outbox]
    while True:
        routes = {
            action: tuple(rng.sample(names, rng.randint(1, min(2, len(names))))) for action in FIRST_ROUTES[outbox]
        }
        if any(DEFAULT in to for to in routes.values()):
            return routes


class RulesInTime:
    """Which routes of an outbox count for a commit time.

    Attributes:
        generations: Number of generations.
    """

    def __init__(self, beginnings: Sequence[tuple[int, OutboxRoutes]], final_until: int) -> None:
        """Create it from routes, each with the first commit time for which it counts, in order.

        Args:
            beginnings: Commit times are whole seconds since 1970.
            final_until: Which routes count is settled for commit times before this one.
        """
        self._beginnings = beginnings
        self._final_until = final_until
        self.generations = len(beginnings)

    @classmethod
    def stored(cls, item: Mapping[str, Any], outbox: str) -> RulesInTime:
        """Return what a stored timeline says (docs/decisions/0027-generations-of-rules.md)."""
        rules = [_routes_in(json.loads(text)["file"], outbox) for text in item["rules"]]
        beginnings = [(each["beginsAt"] or 0, rules[each["rules"]]) for each in item["generations"]]
        return cls(beginnings, item["finalUntil"])

    @classmethod
    def deployed(cls, deployments: Sequence[tuple[int, Routes]], outbox: str) -> RulesInTime:
        """Return what is expected where nothing is stored: each deployment counts from its time on."""
        return cls([(since, routes[outbox]) for since, routes in deployments], _ENDLESS)

    def at(self, committed_at: int) -> OutboxRoutes | None:
        """Return the routes for a commit time; None where it is not settled yet."""
        if committed_at >= self._final_until:
            return None
        return next(routes for since, routes in reversed(self._beginnings) if since <= committed_at)


def _routes_in(file: Mapping[str, Any], outbox: str) -> OutboxRoutes:
    return {each["when"]["action"]: each["to"] for each in file["routes"] if each["outbox"] == outbox}
