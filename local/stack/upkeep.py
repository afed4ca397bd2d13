"""Starts a part of a stack again when it ends, and remembers what ended: how, when and how often.

A part that ends again and again is given up, which ends the stack: every part is one that the relay needs, so that
nothing else of it could be used, and a stack in the background would stay broken without anybody seeing it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from local.stack.parts import Part, PartFailed

EARLY_S = 10.0
"""A part that ends within this time after it was ready, in seconds, has ended early."""

MOST_EARLY = 5
"""The number of early ends in a row with which a part is given up."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The unexpected ends of a part, or of a program that it runs.

    Attributes:
        name: The part.
        how: How it ended last, as the rest of a sentence about it.
        at: When that was, in seconds since 1970.
        times: How often it has ended so far.
        restored_at: When it was ready again; None if it is not yet.
        successor: The part in its place; None if that has the same name.
        loses: What is gone with it, as the subject of a sentence; None if nothing is.
    """

    name: str
    how: str
    at: float
    times: int = 1
    restored_at: float | None = None
    successor: str | None = None
    loses: str | None = None

    @property
    def text(self) -> str:
        """One sentence, without its full stop."""
        times = "" if self.times == 1 else f" ({self.times} times so far)"
        what = f"{self.name} {self.how} at {_clock(self.at)}{times}"
        if self.restored_at is None:
            return f"{what}; it is being started again"
        again = "it was started again" if self.successor is None else f"{self.successor} was started in its place"
        lost = "" if self.loses is None else f"; {self.loses} are lost"
        return f"{what}; {again} at {_clock(self.restored_at)}{lost}"


class Upkeep:
    """Starts parts again.

    Attributes:
        ended: What has ended unexpectedly so far, by its name: of hosts, by their kind.
    """

    def __init__(
        self,
        *,
        early_s: float = EARLY_S,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.ended: dict[str, Ended] = {}
        self._early_s = early_s
        self._pause = pause
        self._wall = wall
        self._early: dict[str, int] = {}
        self._listeners: list[Callable[[Ended], None]] = []

    def listen(self, listener: Callable[[Ended], None]) -> None:
        """Call this with each end, and again when the part is ready."""
        self._listeners.append(listener)

    @property
    def sentences(self) -> Sequence[str]:
        """A sentence for everything that has ended so far."""
        return [each.text for each in self.ended.values()]

    async def keep(self, part: Part) -> None:
        """Start a part again whenever it ends; until cancelled. Raises PartFailed if it is given up."""

        async def start() -> Part:
            await part.start_again()
            return part

        while True:
            await self.end_of(part)
            await self.start_again(part, start)

    async def end_of(self, part: Part) -> None:
        """Wait until a part ends; notes the programs that it starts again meanwhile."""
        following = asyncio.create_task(self._note_programs(part))
        try:
            await part.wait()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _note_programs(self, part: Part) -> None:
        async for program, how in part.programs_ended():
            name, at = f"{program} of {part.name}", self._wall()
            self._note(name, Ended(name, how, at, restored_at=at))

    async def start_again(self, part: Part, start: Callable[[], Awaitable[Part]], kind: str | None = None) -> None:
        """Start a part again that has ended.

        Args:
            part: The part.
            start: Starts it, or another one in its place, which is returned; may raise PartFailed.
            kind: The parts that count as the same one; the name of the part if None.

        Raises:
            PartFailed: It is given up: it has ended early too often in a row. The message has the end of its log.
        """
        kind = kind or part.name
        self._note(kind, Ended(part.name, part.end, self._wall(), loses=part.loses))
        failure = part.failure(part.end)
        early = time.monotonic() - part.ready_at < self._early_s
        self._early[kind] = self._early.get(kind, 0) + 1 if early else 0
        while self._early[kind] < MOST_EARLY:
            # One that ends at once again is not started again at once.
            await self._pause(2.0 ** max(self._early[kind] - 1, 0) - 1)
            try:
                started = await start()
            except PartFailed as error:
                failure = error
                self._early[kind] += 1
            else:
                successor = None if started.name == part.name else started.name
                self._change(kind, replace(self.ended[kind], restored_at=self._wall(), successor=successor))
                return
        raise PartFailed(
            f"{failure}\nIt is given up: it ended {MOST_EARLY} times in a row before it was ready, or within "
            f"{self._early_s:g} s after that."
        )

    def _note(self, kind: str, ended: Ended) -> None:
        before = self.ended.get(kind)
        self._change(kind, ended if before is None else replace(ended, times=before.times + 1))

    def _change(self, kind: str, ended: Ended) -> None:
        self.ended[kind] = ended
        for listener in self._listeners:
            listener(ended)


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"
