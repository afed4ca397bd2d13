"""Loads each section independently; a failing section reports its problem."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from relay.console.model import Problem
from relay.errors import RelayError

logger = logging.getLogger(__name__)

_WITHIN_S = 20.0


class Parts:
    """The problems of parts that could not be read."""

    def __init__(self) -> None:
        self._problems: dict[str, Problem] = {}

    @property
    def problems(self) -> list[Problem]:
        """Of each part that could not be read when it was read last."""
        return list(self._problems.values())

    @asynccontextmanager
    async def reading(self, what: str, within_s: float = _WITHIN_S) -> AsyncIterator[None]:
        """Turn what goes wrong within, or takes too long, into the problem of this part."""
        try:
            async with asyncio.timeout(within_s):
                yield
        except RelayError as error:
            text = str(error)
        except TimeoutError:
            text = f"it was not read within {within_s:g} s: the service answers slowly, or not at all"
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
