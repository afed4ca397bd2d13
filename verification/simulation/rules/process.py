"""A process of the app: it reads the streams of the rules that it was deployed with, by the relay's own code."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, cast

from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.source import CosmosSourceInTime
from relay.config.streams import pairs_of, selection_of, text_of_rules
from relay.core.documents import StoredDocument
from relay.core.errors import SourceError
from relay.routes.file import RelayFile, parse
from relay.routes.history import StreamRules
from relay.routes.rulebook import Rulebook
from relay.routes.selection import Selection
from verification.simulation.rules.store import Place, Store, wait

DESTINATIONS = ("default", "a", "b")

# Changes of a page at most.
_PAGE = 5


def _file(*to: str) -> dict[str, Any]:
    """A file that sends the events of each action to a destination, or to all of them."""
    ways = [list(DESTINATIONS) if each == "all" else [each] for each in to]
    return {
        "changed_rules": "later",
        "destinations": {"default": {}, "a": {"topic": "a"}, "b": {"queue": "b"}},
        "routes": [
            *({"when": {"action": f"action-{number}"}, "to": way} for number, way in enumerate(ways[:-1])),
            {"to": ways[-1]},
        ],
    }


FILES = (
    _file("a", "b", "default"),
    _file("b", "a", "default"),
    _file("default", "b", "b"),
    _file("a", "all", "a"),
    _file("b"),
)
"""The files that are deployed, as parsed TOML. The events have three actions."""

RULES = tuple(text_of_rules(each, "domainEvent") for each in FILES)


@cache
def selection(rules: str, destination: str) -> Selection:
    """Return the events of a stream by the rules of a generation."""
    return selection_of(rules, "default", destination)


@cache
def _parsed(number: int) -> RelayFile:
    return parse(FILES[number])


class Process:
    """A process, from its start until it is killed.

    Attributes:
        name: Its name.
        deployed: The number of the file that it was deployed with.
        offset_s: How far its clock is ahead.
        frozen_until: It does nothing before this time.
    """

    def __init__(
        self,
        name: str,
        deployed: int,
        store: Store,
        entropy: random.Random,
        now: Callable[[], float],
        partitions: list[list[StoredDocument]],
        publish: Callable[[str, str, StoredDocument], None],
    ) -> None:
        self.name = name
        self.deployed = deployed
        self.offset_s = 0.0
        self.frozen_until = 0.0
        self._store = store
        self._entropy = entropy
        self._partitions = partitions
        self._publish = publish
        since = now()
        self._rules = {
            destination: StreamRules(
                Rulebook(store, RULES[deployed], lambda: now() + self.offset_s, since),
                lambda rules, destination=destination: selection(rules, destination),  # type: ignore[misc]
            )
            for _, destination in pairs_of(_parsed(deployed))
        }
        self._running: list[Coroutine[Any, Any, None]] = [self._start()]

    def step(self) -> None:
        """Go on with one of the things that it does at a time."""
        if len(self._running) < 2:
            self._running.append(self._work())
        one = self._entropy.choice(self._running)
        try:
            one.send(None)
        except StopIteration:
            self._running.remove(one)
        except SourceError:
            # Its next attempt begins from the checkpoint.
            self._running.remove(one)

    def kill(self) -> None:
        """End at once."""
        for each in self._running:
            each.close()
        self._running.clear()

    async def _start(self) -> None:
        for each in self._rules.values():
            await each.try_to_add()

    async def _work(self) -> None:
        """Take a place, and read a page of it."""
        destination = self._entropy.choice(list(self._rules))
        place: Place = destination, self._entropy.randrange(len(self._partitions))
        owner = self._store.take(place, self.name)
        position = self._store.state.positions.get(place, 0)
        page = self._partitions[place[1]][position : position + _PAGE]
        await wait()
        rules = self._rules[destination]
        source = CosmosSourceInTime(selection(RULES[self.deployed], destination), cast("Containers", None), rules)
        received = await source.read(page)
        for event in received.events:
            self._publish(self.name, destination, event.document.stored)
            await wait()
        self._store.checkpoint(place, owner, position + len(page))
