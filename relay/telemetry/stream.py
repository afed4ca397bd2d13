"""The stream that a task works for: log records and metrics name it, and the remedies in them are about it.

Where the app has one stream, named `default`, everything is as if there were no streams.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from relay.core.remedy import Invocation
from relay.routes.selection import DEFAULT

_label: ContextVar[str | None] = ContextVar("stream", default=None)


@contextmanager
def working_for(label: str | None) -> Iterator[None]:
    """This task and those that it starts work for a stream; `label` is that of its settings (`Settings.label`)."""
    token = _label.set(label)
    try:
        yield
    finally:
        _label.reset(token)


def attributes() -> Mapping[str, str] | None:
    """Return the attributes that name the stream of this task, or None for `default`."""
    label = _label.get()
    return None if label is None else attributes_of(label)


def attributes_of(label: str | None) -> Mapping[str, str] | None:
    """Return the attributes that name the stream with this label, or None for `default`."""
    return None if label is None or label == DEFAULT else {"stream": label}


def as_logged() -> Invocation:
    """Return how to render a remedy in the log of this task: it is about the task's stream."""
    return Invocation(stream=_label.get())


def logger_of(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """Return the logger of a module, whose records name the stream of the task that logs."""
    return _StreamLog(logging.getLogger(name))


class _StreamLog(logging.LoggerAdapter[logging.Logger]):
    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger)
        # Each attempt asks.
        self.isEnabledFor = logger.isEnabledFor  # type: ignore[method-assign]

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        if (named := attributes()) is not None:
            options["extra"] = {**options.get("extra", {}), **named}
        # The record has the place that calls this.
        self.logger.log(level, msg, *args, **{"stacklevel": 2, **options})
