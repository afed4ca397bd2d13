"""When an attempt has to end, so that the host does not end it together with everything else in the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from relay.core.errors import RelayError, RetryableError

SLOWEST_BYTES_S = 250_000
"""Bytes a second that a line carries at least. A limit of time grows by the whole seconds that its bytes take.

At this rate, the largest message that a topic takes, of 100 MB, moves within an attempt of 480 s, the default.
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-premium-messaging#large-messages-support
"""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of one attempt.

    `functionTimeout` kills the worker process and with it every invocation that it runs, of other leases too; the
    host notices those only at their own time-outs (Azure/azure-functions-host, functionTimeout in host.json). An
    attempt that ends before that fails alone, and its next one continues where it stopped.

    Attributes:
        ends: By `time.monotonic()`, in seconds.
        lasts_s: Duration of the attempt in seconds: RELAY_ATTEMPT_TIMEOUT_S.
    """

    ends: float
    lasts_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline of an attempt that begins now."""
        return cls(time.monotonic() + seconds, seconds)

    def left_s(self, at_most: float) -> float:
        """Return the seconds that are left, `at_most` that many. Raises RetryableError when there are none."""
        left = self.ends - time.monotonic()
        if left <= 0:
            raise self.passed()
        return min(left, at_most)

    def passed(self) -> RetryableError:
        """Return the error of work that was not done by then."""
        return RetryableError(
            f"not sent in this attempt, which has lasted RELAY_ATTEMPT_TIMEOUT_S ({self.lasts_s:g} s): "
            "the next attempt goes on from here"
        )


@asynccontextmanager
async def within(seconds: float, error: type[RelayError], what: str) -> AsyncIterator[None]:
    """Bound a step of an attempt. Raises `error` if `what` takes longer than `seconds`."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError as timeout:
        if not limit.expired():
            raise
        raise error(f"{what} took longer than {seconds:g} s; the next attempt tries again") from timeout
