"""Reads one part of the page; where that fails, the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from relay.console.model import Problem
from relay.errors import RelayError

logger = logging.getLogger(__name__)

_WITHIN_S = 20.0


@dataclass(slots=True)
class Outcome:
    """How a part was read: its problem, or None."""

    problem: Problem | None = None


@asynccontextmanager
async def guarded(what: str, within_s: float = _WITHIN_S) -> AsyncIterator[Outcome]:
    """Turn what goes wrong within, or takes too long, into a problem."""
    outcome = Outcome()
    try:
        async with asyncio.timeout(within_s):
            yield outcome
    except RelayError as error:
        outcome.problem = Problem(what, str(error))
    except TimeoutError:
        outcome.problem = Problem(what, f"it was not read within {within_s:g} s: the service does not answer")
    except Exception as error:
        # A page that ends would hide everything else with it.
        logger.exception("console_part_failed what=%s", what)
        outcome.problem = Problem(what, f"it cannot be read: {type(error).__name__}. See the console's log.")
