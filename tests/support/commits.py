"""The time at which a test's documents were committed."""

from __future__ import annotations

import os
import time
from functools import cache


def commit_time() -> int:
    """Return the second in which the running test asked first.

    A document that is made twice is one version of one event: with the present time it would be two, if a second
    ends in between.
    """
    return _first_asked(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0])


@cache
def _first_asked(test: str) -> int:
    return int(time.time())
