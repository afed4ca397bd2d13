"""The rules of a stream by the time of a commit, for those who only read: they add no generation."""

from __future__ import annotations

from collections.abc import Callable

from relay.config.settings import Settings
from relay.config.streams import selection_of
from relay.routes.generations import Timeline
from relay.routes.rulebook import Timelines
from relay.routes.selection import Selection


class StoredRules:
    """The rules of a stream as the relay has stored their generations. Create one per outbox that is read.

    For commit times for which the rules are not final yet, those of the last generation count: nobody has routed
    such an event. They may change until then, also for an event that was read shortly before.
    """

    def __init__(self, settings: Settings, store: Timelines) -> None:
        """Prepare the rules of the settings' stream; nothing is read yet, and `store` is closed with them."""
        self._settings = settings
        self._store = store
        self._known: Timeline | None = None
        self._made: dict[str, Selection] = {}

    async def until(self, latest: int) -> Callable[[int], Selection]:
        """Return what says which events are the stream's, by the time of their commit.

        The store is read unless the rules are known to be final up to this time, which they are nearly always.

        Args:
            latest: In seconds since 1970; 0 for the rules that are known, however old they are.

        Raises:
            RulesError: The generations cannot be read.
        """
        if self._known is None or latest >= self._known.final_until:
            self._known = await self._read()
        known = self._known
        return lambda committed_at: self._of(known.extend(committed_at + 1).at(committed_at).rules)

    async def last(self) -> Selection:
        """Return the events by the last generation that is known, for those without a time. Raises RulesError."""
        await self.until(0)
        assert self._known is not None
        return self._of(self._known.last.rules)

    async def all(self) -> list[Selection]:
        """Return the events by each generation that is known. Raises RulesError."""
        await self.until(0)
        assert self._known is not None
        return [self._of(each) for each in dict.fromkeys(each.rules for each in self._known.generations)]

    async def close(self) -> None:
        """Close the connection, if there is one."""
        await self._store.close()

    async def _read(self) -> Timeline:
        stored = await self._store.read()
        if stored is not None:
            return stored.timeline
        rules = self._settings.rules
        assert rules is not None
        # Before the relay has started with generations, the rules of the file count for all events.
        return Timeline.of(rules.text)

    def _of(self, rules: str) -> Selection:
        if rules not in self._made:
            settings = self._settings
            self._made[rules] = selection_of(rules, settings.outbox, settings.selection.destination)
        return self._made[rules]


def stored_rules(settings: Settings, open_timelines: Callable[[], Timelines]) -> StoredRules | None:
    """Return the rules of a stream by the time of a commit; None where those of its settings count for all."""
    return None if settings.rules is None else StoredRules(settings, open_timelines())
