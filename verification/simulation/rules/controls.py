"""Safeguards of rules that change, and what takes the place of each until a block ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from relay.backends.cosmos.source import CosmosSourceInTime, select
from relay.core.events import Received
from relay.routes import rulebook
from relay.routes.generations import Generation, Timeline
from relay.routes.rulebook import Rulebook
from verification.journal.checker import Wrong
from verification.simulation.controls import Control
from verification.simulation.rules.store import Store

# Behind every commit time.
_FOREVER = 1 << 40


async def _by_own_rules(self: CosmosSourceInTime, batch: Any) -> Received:
    """`CosmosSourceInTime.read` as it is where rules have no generations."""
    return select(batch, self._selection)


async def _as_known(self: Rulebook, latest: int) -> Timeline:
    """`Rulebook.timeline`, but what was read once is taken to be final."""
    if self._known is None:
        self._known = await self._look(latest)
    return self._known.extend(_FOREVER)


def _now(self: Timeline, rules: str, now: int) -> Timeline:
    """`Timeline.change`, but the rules begin at once, whatever is final."""
    if self.last.rules == rules:
        return self
    kept = tuple(each for each in self.generations if each.begins_at is None or each.begins_at < now)
    return replace(self, generations=(*kept, Generation(self.last.number + 1, now, rules)))


CONTROLS = {
    "RoutesByCommitTime": Control(
        lambda: patch.object(CosmosSourceInTime, "read", _by_own_rules), Wrong.MISSING, 3
    ),
    "RoutesWhatIsFinal": Control(lambda: patch.object(Rulebook, "timeline", _as_known), Wrong.MISSING, 5),
    "BeginsBehindTheBound": Control(lambda: patch.object(Timeline, "change", _now), Wrong.MISSING, 10),
    "ComparesAndSets": Control(lambda: patch.object(Store, "_is", lambda *_: True), Wrong.MISSING, 20),
    "AddsItsRulesAgain": Control(lambda: patch.object(rulebook, "RETURN_S", 1 << 30), Wrong.MISSING, 20),
}
