"""Turns on the link of the suspects: groups that are half as large as the last one that ended a link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from relay.errors import RetryableError


@dataclass(eq=False, slots=True)
class _Waiting:
    among: int
    admitted: asyncio.Future[None]


class Groups:
    """Admits one group of suspects at a time; the next one once all of it has left.

    The less suspicious go first: of a hundred in flight, fifty and fifty, then the half of those fifty that ended
    the link, and so on. So the sound ones are through after two groups, and the cause is alone after seven.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._admitted = 0
        self._is_due = False

    @asynccontextmanager
    async def turn(self, among: int, ends: float) -> AsyncIterator[None]:
        """Wait until the group of a transfer is admitted, one of `among` transfers of which one is the cause.

        Raises:
            RetryableError: It was not by the loop's time `ends`.
        """
        mine = _Waiting(among, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        self._look_soon()
        try:
            async with asyncio.timeout_at(ends):
                await mine.admitted
        except BaseException as error:
            if mine.admitted.done() and not mine.admitted.cancelled():
                self._leave()
            if isinstance(error, TimeoutError):
                raise _not_reached() from error
            raise
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        self._admitted -= 1
        self._look_soon()

    def _look_soon(self) -> None:
        # All whose link has ended come in the same turn of the loop.
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        self._is_due = False
        self._waiting = [each for each in self._waiting if not each.admitted.done()]
        if self._admitted or not self._waiting:
            return
        among = max(each.among for each in self._waiting)
        group = [each for each in self._waiting if each.among == among][: max(1, among // 2)]
        self._admitted = len(group)
        for each in group:
            self._waiting.remove(each)
            each.admitted.set_result(None)


def _not_reached() -> RetryableError:
    return RetryableError(
        "The link of this transfer has ended, and the attempt was over before it could be sent apart from the "
        "others that were in flight: the next attempt goes on from here."
    )
