"""The findings of `check --scan` among the documents that the relay has not passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outbox_relay.operator.reasons import QUARANTINE
from relay.backends.findings import Finding
from relay.config.settings import OnPoison
from relay.core.events import Rejected
from relay.core.remedy import Sentence, set_aside

# Maximum number of events that are named; the others are counted.
_NAMED_EVENTS = 20

_FATE = {
    OnPoison.SKIP: "would be quarantined",
    OnPoison.PARK: "would be quarantined, and park its partition key",
    OnPoison.BLOCK: "would block its partition key",
}


@dataclass(frozen=True, slots=True)
class Scan:
    """The findings among the documents that the relay has not passed.

    Attributes:
        findings: Those that `check` reports.
        data: Its members of the output of `--json`.
    """

    findings: list[Finding]
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that the relay has not passed, and that can never become a message: its lease or shard, and why."""

    partition: str
    rejected: Rejected

    def data(self, partition_name: str) -> dict[str, Any]:
        """Return the event for `--json`, with the partition under this name."""
        return {
            "id": self.rejected.id,
            "partitionKey": self.rejected.partition_key,
            partition_name: int(self.partition) if self.partition.isdecimal() else self.partition,
            "reason": str(self.rejected.reason),
            "detail": self.rejected.detail,
        }


@dataclass(slots=True)
class Places:
    """Where names were seen first, of which any may be seen in one place only.

    Attributes:
        twice: The names that were seen in a second place, each with both.
    """

    twice: dict[str, tuple[str, str]] = field(default_factory=dict)
    _first: dict[str, str] = field(default_factory=dict)

    def see(self, name: str, place: str) -> None:
        first = self._first.setdefault(name, place)
        if first != place:
            self.twice.setdefault(name, (first, place))

    def findings(self, what: str, remedy: str) -> Iterator[Finding]:
        """Yield a warning for each name; `what` says what it is, with `{name}`, `{first}` and `{second}`."""
        for name, (first, second) in list(self.twice.items())[:_NAMED_EVENTS]:
            yield Finding.warning(what.format(name=repr(name), first=repr(first), second=repr(second)), remedy)
        if (more := len(self.twice) - _NAMED_EVENTS) > 0:
            yield Finding.warning(f"{more} more like that", remedy)


def refused_findings(
    refused: Sequence[Refused], partition_name: str, policy: OnPoison, correct: str
) -> Iterator[Finding]:
    """Yield the findings about these events.

    `correct` says how they are corrected before the relay comes to them.
    """
    for each in refused[:_NAMED_EVENTS]:
        event = each.rejected
        remedy = Sentence("In quarantine: ", QUARANTINE[event.reason].remedy)
        if policy is OnPoison.BLOCK and event.partition_key is not None:
            remedy = Sentence("To let the key go on without it: ", set_aside(event.partition_key, event.id))
        yield Finding.error(
            f"event {event.id!r} with the partition key {event.partition_key!r} of the {partition_name} "
            f"{each.partition!r} {_FATE[policy]}: {event}",
            Sentence(f"{correct} ", remedy),
        )
    if (more := len(refused) - _NAMED_EVENTS) > 0:
        yield Finding.error(f"{more} more event(s) {_FATE[policy]}", "Use --json.")
