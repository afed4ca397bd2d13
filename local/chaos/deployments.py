"""Deployments during a campaign: another relay.toml is written, and processes are replaced."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from local.chaos.history import Histories
from local.chaos.hosts import replace_hosts
from local.chaos.rules import Change, Rollout
from local.chaos.streams import FIRST_ROUTES, Layout, Routes
from local.stack.environment import Source
from local.stack.supervisor import Stack


class Deployments:
    """Deploys the changes of a campaign, one after the other.

    Attributes:
        made: The rules of each deployment with the time at which its file was written, in seconds since 1970.
        done: Number of deployments by what they were: kinds of `Rollout`, and `rollback`.
    """

    def __init__(
        self, file: Path, layout: Layout, source: Source, changes: Sequence[Change], *, later: bool
    ) -> None:
        """Write the first file.

        Args:
            file: The relay.toml of the stack.
            layout: The outboxes and destinations.
            source: Where the events come from.
            changes: What is deployed, in order.
            later: Whether changed rules count for later events only: the option `changed_rules`.
        """
        self._file = file
        self._layout = layout
        self._source = source
        self._changes = changes
        self._later = later
        self.made: list[tuple[int, Routes]] = []
        self.done: Counter[str] = Counter()
        self._write(FIRST_ROUTES)

    async def work(self, stack: Stack, history: Histories) -> None:
        """Make all deployments. Processes that end have to be replaced by others."""
        wanted = len(stack.hosts)
        for change in self._changes:
            await history.until_committed(change.after)
            self._write(change.routes)
            await self._replace(stack, wanted, change.rollout)
            self.done[change.rollout] += 1
            self.done["rollback"] += change.is_rollback

    def _write(self, routes: Routes) -> None:
        """Replace the file in one step: a process may start at any time."""
        new = self._file.with_suffix(".new")
        new.write_text(self._layout.file(self._source, routes, later=self._later))
        new.replace(self._file)
        self.made.append((int(time.time()) if self.made else 0, routes))

    async def _replace(self, stack: Stack, wanted: int, rollout: Rollout) -> None:
        old = list(stack.hosts)
        if rollout is Rollout.TOGETHER:
            await replace_hosts(stack, old, wanted)
            return
        for each in old[:1] if rollout is Rollout.ONE else old:
            await replace_hosts(stack, [each], wanted)
