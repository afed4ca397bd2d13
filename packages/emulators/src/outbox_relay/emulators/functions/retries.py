"""The retry policy a function declares, and the delays the host computes from it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outbox_relay.emulators.functions.errors import HostError

UNLIMITED = -1
_JITTER = 0.2
_LONGEST_S = 2_147_483_647.0
_INTERVAL = re.compile(r"(?P<hours>\d{1,2}):(?P<minutes>\d{1,2}):(?P<seconds>\d{1,2})")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`max_retry_count` retries after the first attempt, -1 for no limit; intervals are in seconds.

    A fixed delay is a policy with two equal intervals.
    """

    max_retry_count: int
    minimum_s: float
    maximum_s: float

    def exhausted(self, retries: int) -> bool:
        return self.max_retry_count != UNLIMITED and retries >= self.max_retry_count

    def delays(self, generator: random.Random) -> Iterator[float]:
        """Yield the seconds before each retry.

        They are the minimum, then grow from it by powers of two, ±20 %, to the maximum.

        As computed by RandomizedExponentialBackoffStrategy in Azure/azure-webjobs-sdk.
        """
        growth = 0.0
        while (delay := self.minimum_s + growth * generator.uniform(1 - _JITTER, 1 + _JITTER)) < self.maximum_s:
            yield delay
            growth = growth * 2 or self.minimum_s
        while True:
            yield self.maximum_s

    @classmethod
    def from_settings(cls, declared: Mapping[str, object] | None) -> RetryPolicy | None:
        """Return the policy that `@app.retry(…)` declared (`get_settings_dict("retry_policy")`), or None.

        Raises HostError.
        """
        if not declared:
            return None
        strategy = str(declared.get("strategy"))
        count = _count(declared.get("max_retry_count"))
        if strategy == "fixed_delay":
            delay = _interval(declared, "delay_interval", None)
            return cls(count, delay, delay)
        if strategy != "exponential_backoff":
            raise HostError(f"retry strategy {strategy!r}: write fixed_delay or exponential_backoff")
        # The defaults are the worker's (azure-functions-runtime, loader.build_variable_interval_retry).
        policy = cls(
            count,
            _interval(declared, "minimum_interval", 0.0),
            _interval(declared, "maximum_interval", _LONGEST_S),
        )
        if policy.minimum_s > policy.maximum_s:
            raise HostError("retry minimum_interval is greater than maximum_interval")
        return policy


def _count(value: object) -> int:
    try:
        count = int(str(value))
    except ValueError:
        count = UNLIMITED - 1
    if count < UNLIMITED:
        raise HostError(f"retry max_retry_count is {value!r}: write a number, or -1 for no limit")
    return count


def _interval(declared: Mapping[str, object], name: str, default: float | None) -> float:
    value = declared.get(name)
    if value is not None:
        return parse_retry_interval(str(value), name=f"retry {name}")
    if default is None:
        raise HostError(f"retry {name} is missing: the strategy needs it")
    return default


def parse_retry_interval(text: str, *, name: str) -> float:
    """Parse the seconds of an interval in a retry policy: only `hh:mm:ss`.

    The Python worker reads it with strptime('%H:%M:%S') (azure-functions-runtime, loader.convert_to_seconds), so
    the `d.hh:mm:ss` that other languages may write makes it fail to index the app. Raises HostError.
    """
    match = _INTERVAL.fullmatch(text)
    hours, minutes, seconds = (int(part) for part in match.groups()) if match else (24, 0, 0)
    if hours > 23 or minutes > 59 or seconds > 61:
        raise HostError(f"{name} is {text!r}: the Python worker takes hh:mm:ss below 24 hours, and nothing else")
    return float(hours * 3_600 + minutes * 60 + seconds)
