"""The console's ports beside the outbox (`relay.backends.outbox`): a topic, the relay, additions to a page.

Nothing here writes, locks a session or settles a message. The adapter for Azure is in `servicebus`; a local stack
has further ones, which know more. Each part is read independently (`Parts`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aiohttp import web

from outbox_relay.operator.console.model import (
    DeadLetterGroup,
    Delivery,
    Problem,
    Snapshot,
    Subscription,
    Timeline,
)
from outbox_relay.operator.console.truncation import ERROR, both_ends
from relay.backends.findings import Finding
from relay.backends.outbox import Outbox
from relay.core.errors import RelayError
from relay.quarantine.items import Items

logger = logging.getLogger(__name__)

_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """A host's report on the current attempt of a partition.

    Attributes:
        number: Of the attempt, from 1.
        error: Why the last one failed.
        withheld: The host's own error if it cannot hand a page of this partition to the relay.
    """

    number: int = 1
    error: str | None = None
    withheld: str | None = None


class Topic(Protocol):
    """The topic and its subscriptions. Every method raises ServiceError if it cannot be read."""

    async def obstacles(self) -> Sequence[Finding]:
        """Return the findings that keep the topic from accepting events, such as that it is disabled."""

    async def subscriptions(self) -> Sequence[Subscription]:
        """Return all subscriptions, by name."""

    async def dead_letters(self, subscription: str, /) -> Sequence[DeadLetterGroup]:
        """Return the dead-lettered messages of a subscription by reason, as far as they were peeked."""

    async def deliveries(self, partition_key: str, ids: Collection[str], /) -> Sequence[Delivery]:
        """Return the known messages of a key; unknown ones are missing."""

    async def close(self) -> None:
        """Close every connection."""


class Hosts(Protocol):
    """The relay's processes, if they can be queried."""

    async def attempts(self) -> Mapping[str, Attempt]:
        """Return the current attempt of each partition that is being retried or withheld, by partition name."""

    async def obstacles(self) -> Sequence[Finding]:
        """Return the findings about processes that have ended, and what was lost with them."""

    def ended_at(self, owner: str, /) -> float | None:
        """Return when this owner of a partition has ended, in seconds since 1970; None if that is not known."""

    async def close(self) -> None:
        """Close every connection."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of an observer; no hosts if they cannot be queried, as in Azure."""

    outbox: Outbox
    topic: Topic
    items: Items
    hosts: Hosts | None = None

    async def close(self) -> None:
        """Close every connection, even if closing another one raises."""
        opened = [each for each in (self.outbox, self.topic, self.items, self.hosts) if each is not None]
        await asyncio.gather(*(each.close() for each in opened), return_exceptions=True)


class View(Protocol):
    """The view of the page. `observer.Observer` is one; tests have another."""

    @property
    def latest(self) -> Snapshot:
        """The latest snapshot, with what is stale by now."""

    async def changed(self, number: int, /) -> Snapshot:
        """Wait until there is a snapshot with a number above this one, and return the latest."""

    async def current(self, timeout_s: float, /) -> Snapshot:
        """Return the latest snapshot, as soon as each part was read or failed, at the latest after this time."""

    def follow(self, partition_key: str, /) -> AbstractContextManager[Callable[[], Hashable]]:
        """Yield a function whose result changes whenever the timeline of the key may have changed."""

    async def timeline(self, partition_key: str, limit: int, /, *, data: bool) -> Timeline:
        """Return the last events of a key, with their data if `data`."""


Check = Callable[[], Awaitable[Sequence[Finding]]]
"""The findings of `python -m relay check`."""


class Parts:
    """Reads parts independently: one that fails is a problem, and the others are still read."""

    def __init__(self) -> None:
        self._problems: dict[str, Problem] = {}

    @property
    def problems(self) -> list[Problem]:
        """Of each part that could not be read when it was read last."""
        return list(self._problems.values())

    @asynccontextmanager
    async def reading(self, what: str) -> AsyncIterator[None]:
        """Turn what goes wrong within, or takes longer than 20 seconds, into the problem of this part."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                yield
        except RelayError as error:
            text = both_ends(str(error), ERROR)
        except TimeoutError:
            text = f"it was not read within {_WITHIN_S:g} s: the service answers slowly, or not at all"
        except Exception as error:
            # A page that ends would hide everything else with it.
            logger.exception("console_part_failed what=%s", what)
            text = f"it cannot be read: {type(error).__name__}. See the console's log."
        else:
            self._problems.pop(what, None)
            return
        self._problems[what] = Problem(what, text)

    def forget(self, beginning: str, kept: set[str]) -> None:
        """Forget the problems of parts with this beginning that are not among those kept."""
        for what in [each for each in self._problems if each.startswith(beginning) and each not in kept]:
            del self._problems[what]


@dataclass(frozen=True, slots=True)
class Extension:
    """Blocks in the sections of a page, and further routes.

    Attributes:
        name: Of the part: its templates are included as `name/file.html`.
        templates: The folder of its templates. Those with the name of one of `pages.SLOTS` are blocks of the page.
        routes: Its routes, below the address of the page, which templates have in `base`. A handler makes its HTML
            with `request.app[PAGES].fragment("name/file.html", …)`.
        static: A folder that is served as `/static/name/`; None for none. `style.css` and `script.js` in it are
            included in the page.
    """

    name: str
    templates: Path
    routes: Sequence[web.AbstractRouteDef] = ()
    static: Path | None = None
