"""The result of a smoke test: what it found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from relay.canary import TTL_S
from relay.cli.comparison import Difference
from relay.cli.oversized import Oversized
from relay.cli.terminal import ExitCode, Result
from relay.quarantine.items import RecordSummary
from relay.settings import Settings

_SHOWN_DIFFERENCES = 10


@dataclass(slots=True)
class Smoke:
    """The result of a smoke test.

    Attributes:
        document: The canary as the outbox has stored it.
        latency_s: From the start of the write to the receipt of the message; None if none arrived.
        differences: Between what was stored and what arrived.
        quarantined: The canary's quarantine record, if there was one instead of a message.
        left_behind: What could not be cleaned up.
        oversized: The result of the oversized event; None if it was not sent.
    """

    subscription: str
    timeout_s: float
    document: dict[str, Any]
    latency_s: float | None = None
    differences: list[Difference] = field(default_factory=list)
    quarantined: RecordSummary | None = None
    left_behind: list[str] = field(default_factory=list)
    oversized: Oversized | None = None

    @property
    def unaltered(self) -> bool:
        """Whether the canary arrived unaltered."""
        return self.latency_s is not None and not self.differences


def result_of(smoke: Smoke, settings: Settings) -> Result:
    """What to print, and the exit code."""
    remedies = list(dict.fromkeys(difference.remedy for difference in smoke.differences))
    if smoke.latency_s is None:
        lines = _missing_lines(smoke, settings)
        remedies = lines[1:]
    elif smoke.differences:
        lines = _altered_lines(smoke, remedies)
    else:
        milliseconds = round(smoke.latency_s * 1000)
        lines = [f"ok: the event arrived on '{smoke.subscription}' unaltered, {milliseconds} ms after its write"]
    left_behind = list(smoke.left_behind)
    if smoke.oversized is not None:
        oversized_lines = smoke.oversized.lines()
        lines += oversized_lines
        remedies += oversized_lines[1:]
        left_behind += smoke.oversized.left_behind
    expires = f", expires within {TTL_S} s" if settings.sql is None else ""
    lines += [f"not deleted{expires}: {each}" for each in left_behind]
    passed = smoke.unaltered and (smoke.oversized is None or smoke.oversized.ok)
    data: dict[str, Any] = {
        "subscription": smoke.subscription,
        "id": smoke.document["id"],
        "partitionKey": smoke.document["partitionKey"],
        "arrived": smoke.latency_s is not None,
        "latencyMs": None if smoke.latency_s is None else round(smoke.latency_s * 1000),
        "differences": [difference.data() for difference in smoke.differences],
        "quarantined": None if smoke.quarantined is None else smoke.quarantined.reason,
        "remedies": [remedy.removeprefix("-> ") for remedy in remedies],
        "oversized": None if smoke.oversized is None else smoke.oversized.data(),
        "leftBehind": left_behind,
    }
    return Result(ExitCode.OK if passed else ExitCode.FINDINGS, data, lines)


def _altered_lines(smoke: Smoke, remedies: list[str]) -> list[str]:
    lines = [f"altered: the event arrived on '{smoke.subscription}', but {len(smoke.differences)} value(s) differ"]
    lines += [
        f"  {difference.path}: stored {difference.stored}, arrived {difference.arrived}"
        for difference in smoke.differences[:_SHOWN_DIFFERENCES]
    ]
    if len(smoke.differences) > _SHOWN_DIFFERENCES:
        lines.append(f"  and {len(smoke.differences) - _SHOWN_DIFFERENCES} more")
    return [*lines, *(f"-> {remedy}" for remedy in remedies)]


def _where_to_look(settings: Settings) -> list[str]:
    if settings.sql is not None:
        runs = (
            "-> Check that the relay runs, and what it logged last (action relay_failed, relay_feed_unavailable)."
        )
        outbox = f"SQL_FEED '{settings.sql.feed}', SQL_SHARDS '{settings.sql.shards}'"
    else:
        runs = "-> Check that the function app runs, and what it logged for the last invocation (action "
        runs += "relay_failed)."
        outbox = f"COSMOS_CONTAINER '{settings.cosmos_container}'"
    return [
        runs,
        f"-> Check that it has these settings: {outbox}, RELAY_EVENT_TYPE '{settings.event_type}', "
        f"SERVICEBUS_TOPIC '{settings.servicebus_topic}'.",
    ]


def _missing_lines(smoke: Smoke, settings: Settings) -> list[str]:
    if smoke.quarantined is not None:
        return [
            f"quarantined: {smoke.quarantined.reason}: {smoke.quarantined.detail}",
            "-> The canary is a valid event: check that the deployed app is this version of the relay.",
        ]
    return [
        f"missing: no message arrived on '{smoke.subscription}' within {smoke.timeout_s:g} s",
        *_where_to_look(settings),
        f"-> Check that the rules of '{smoke.subscription}' match an event with the subject SmokeTest.",
        "-> While the relay works through a backlog, the canary waits behind it: set a longer --timeout.",
    ]
