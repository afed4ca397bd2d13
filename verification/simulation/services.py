"""The parts of every simulated world: a topic, the quarantine's store, the ways to them, and the journal."""

from __future__ import annotations

from collections.abc import Sequence

from relay.servicebus.messages import Message
from verification.journal import entries
from verification.journal.entries import Entry, digest_of
from verification.simulation.channel import RpcChannel
from verification.simulation.journal_keeper import Notes
from verification.simulation.plan import Plan, Result
from verification.simulation.store import NotedItems
from verification.simulation.topic import Topic
from verification.simulation.verdict import judged
from verification.simulation.world import World

WINDOW_S = 600.0


class Services(Notes):
    """The services of one world."""

    def __init__(self, world: World, plan: Plan, window_s: float = WINDOW_S) -> None:
        """`window_s` is the topic's duplicate detection window, in seconds."""
        super().__init__(world, plan.policy)
        self.topic = Topic(window_s, self._taken)
        self.store = NotedItems(self.stored)
        self.to_topic = RpcChannel(world, "topic")
        self.to_store = RpcChannel(world, "store")

    @property
    def lines(self) -> dict[str, RpcChannel]:
        """The ways, by the names of the services."""
        return {line.name: line for line in vars(self).values() if isinstance(line, RpcChannel)}

    def judged(self, plan: Plan, *, is_over: bool) -> Result:
        """Return the result of a plan's universe; `is_over` says whether everything was published in time."""
        return judged(
            plan,
            self.judged_journal(),
            window_s=self.topic.window_s,
            learned=self.topic.learned,
            virtual_s=self.world.now,
            is_over=is_over,
        )

    def judged_journal(self) -> Sequence[Entry]:
        """Return the entries for the judge: the journal, unless a kind of world adds to it."""
        return self.journal

    def _taken(self, message: Message, by: str, number: int, is_repeat: bool) -> None:
        kind = entries.Duplicate if is_repeat else entries.Accepted
        digest = digest_of(message.body.decode(), message.subject)
        self.journal.append(
            kind(at=self.at, by=by, key=message.partition_key, id=message.id, digest=digest, number=number)
        )
