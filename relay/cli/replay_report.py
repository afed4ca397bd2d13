"""What a replay counts, and what it prints."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from relay.cli.replay_state import ReplayState
from relay.cli.sender import OrderedSender
from relay.cli.terminal import ExitCode, Result
from relay.times import format_time

_KEYS_LISTED = 50


@dataclass(slots=True)
class ReplayCounts:
    """The counts of one run.

    Attributes:
        matched: Events of the range that were read.
        skipped: Those that an earlier run has handled.
        unread: Events of the range that a query counts, but that the change feed did not return.
        ahead: Events left to the relay, which has not passed them yet, by partition key.
        parked: Events left to a release, by parked partition key.
        keys: Events to publish, by partition key.
        actions: Events to publish, by action.
    """

    matched: int = 0
    skipped: int = 0
    unread: int = 0
    ahead: Counter[str] = field(default_factory=Counter)
    parked: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)

    @property
    def left(self) -> int:
        """Events of the range that this run left alone, as they would have overtaken others."""
        return self.ahead.total() + self.parked.total()


def finished_before(state: ReplayState) -> Result:
    """The result of a replay that an earlier run has finished."""
    data = {
        **_common_data(state, ReplayCounts()),
        "dryRun": False,
        "published": state.published,
        "failures": [],
        "stopped": False,
    }
    lines = [f"An earlier run has finished this replay: {state.published} event(s) published, nothing left to do."]
    return Result(ExitCode.FINDINGS if state.invalid else ExitCode.OK, data, lines + _invalid_lines(state))


def dry_result(state: ReplayState, counts: ReplayCounts) -> Result:
    """The result of a dry run."""
    lines = [
        f"{counts.keys.total()} event(s) of {len(counts.keys)} partition key(s) would be published; "
        "nothing was sent.",
        *(f"  {count:>8}  action {action!r}" for action, count in counts.actions.most_common()),
        *(f"  {count:>8}  partition key {key!r}" for key, count in counts.keys.most_common(_KEYS_LISTED)),
    ]
    if len(counts.keys) > _KEYS_LISTED:
        lines.append(f"  and {len(counts.keys) - _KEYS_LISTED} more partition keys; --json lists all")
    data = {
        **_common_data(state, counts),
        "dryRun": True,
        "actions": dict(counts.actions.most_common()),
        "partitionKeys": dict(counts.keys.most_common()),
    }
    code = _code(state, counts, ExitCode.OK)
    return Result(code, data, lines + _remarks(state, counts) + _invalid_lines(state))


def result_of(state: ReplayState, counts: ReplayCounts, sender: OrderedSender) -> Result:
    """The result of a run that has published events."""
    unsent = sum(failure.unsent for failure in sender.failures.values())
    run = f" as new, run {state.identity.run}" if state.identity.as_new else ""
    lines = [f"{state.published} event(s) published{run}, {len(state.invalid)} invalid, {unsent} not sent"]
    if sender.failures:
        lines += ["Sends failed for these partition keys:", *sender.failure_lines()]
    if sender.gave_up:
        lines.append("No send succeeds any more: stopped before the end of the range.")
    if sender.failures or sender.gave_up:
        again = "the same command continues from here" if state.file else "without --state it starts over"
        lines.append(f"Fix the cause and run the command again: {again}.")
    data = {
        **_common_data(state, counts),
        "dryRun": False,
        "published": state.published,
        "failures": sender.failures_data(),
        "stopped": sender.gave_up,
    }
    code = _code(state, counts, sender.exit_code)
    return Result(code, data, lines + _remarks(state, counts) + _invalid_lines(state))


def _code(state: ReplayState, counts: ReplayCounts, code: ExitCode) -> ExitCode:
    incomplete = state.invalid or counts.unread or counts.left
    return ExitCode.FINDINGS if code is ExitCode.OK and incomplete else code


def _common_data(state: ReplayState, counts: ReplayCounts) -> dict[str, Any]:
    identity = state.identity
    return {
        "from": format_time(identity.since),
        "to": format_time(identity.until),
        "asNew": identity.as_new,
        "run": identity.run,
        "matched": counts.matched,
        "skipped": counts.skipped,
        "unread": counts.unread,
        "ahead": dict(counts.ahead),
        "parked": dict(counts.parked),
        "invalid": [each.data() for each in state.invalid.values()],
    }


_LEFT_TO = {
    "cosmos": (
        "whose leases have not passed them yet: published now, they would overtake the events before them. Run "
        "the command again when the relay has caught up. If no relay uses this lease container, add --force."
    ),
    "sql": (
        "whose cursors have not passed them yet: published now, they would overtake the events before them. Run "
        "the command again when the relay has caught up. If no relay reads this feed, add --force."
    ),
}


def _remarks(state: ReplayState, counts: ReplayCounts) -> list[str]:
    lines = []
    if counts.skipped:
        lines.append(f"{counts.skipped} event(s) were handled by an earlier run.")
    if counts.ahead:
        lines.append(
            f"{counts.ahead.total()} event(s) of {len(counts.ahead)} partition key(s) were left to the relay, "
            + _LEFT_TO[state.identity.source]
        )
    if counts.parked:
        lines.append(
            f"{counts.parked.total()} event(s) of {len(counts.parked)} parked partition key(s) were left: release "
            "their records first (python -m relay quarantine list). --force publishes them ahead of those records."
        )
    if counts.unread:
        lines.append(f"{counts.unread} event(s) of the range were not read: run the command again.")
    if state.identity.until > state.identity.started:
        lines.append("The range ends in the future: events committed after the start of the replay are not in it.")
    return lines


def _invalid_lines(state: ReplayState) -> list[str]:
    return [
        f"  invalid: document {each.id!r} of {each.partition_key!r}: {each.reason}: {each.detail}"
        for each in state.invalid.values()
    ]
