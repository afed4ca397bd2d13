"""What is logged of an error that nobody foresaw: where it happened, and none of its values."""

from __future__ import annotations

import traceback
from pathlib import Path

# Number of calls that are named, the innermost first.
_CALLS = 6


def described(error: BaseException) -> str:
    """An error's kind and the calls that led to it, without its message, which may show an event's content."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(described(each) for each in error.exceptions)
    calls = traceback.extract_tb(error.__traceback__)[: -_CALLS - 1 : -1]
    places = ", called at ".join(f"{Path(call.filename).name}:{call.lineno} ({call.name})" for call in calls)
    return f"{type(error).__name__} at {places}" if places else type(error).__name__
