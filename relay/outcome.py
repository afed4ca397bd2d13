"""What became of one invocation's documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from relay.publisher import PartitionOutcome
from relay.quarantine import Quarantined

# An error names this many of the partitions that failed, and counts the others.
_NAMED_PARTITIONS = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one invocation's documents. Every one of them is counted exactly once.

    Attributes:
        ignored: Documents of another type.
        published: Events Service Bus accepted now.
        remembered: Events it had accepted in an earlier attempt.
        quarantined: Documents set aside, by reason.
        unsent: Events not accepted; more than none only if `failed` is not empty.
        partitions: Partition keys among the events.
        sends: Transfers accepted.
        failed: The partitions that did not go through.
    """

    ignored: int
    published: int
    remembered: int
    quarantined: Counter[str]
    unsent: int
    partitions: int
    sends: int
    failed: list[PartitionOutcome]

    @classmethod
    def of(cls, ignored: int, published: Sequence[PartitionOutcome], rejected: Sequence[Quarantined]) -> Outcome:
        """Add up the parts."""
        return cls(
            ignored=ignored,
            published=sum(partition.published for partition in published),
            remembered=sum(partition.remembered for partition in published),
            quarantined=Counter(str(item.reason) for item in rejected),
            unsent=sum(partition.unsent for partition in published),
            partitions=len(published),
            sends=sum(partition.sends for partition in published),
            failed=[partition for partition in published if partition.error is not None],
        )

    def explain(self) -> str:
        """What went and what did not, for which partition keys and why."""
        lines = [
            f"{self.unsent} event(s) of {len(self.failed)} partition key(s) were not accepted by Service Bus; "
            f"{self.published + self.remembered} event(s) of this invocation were. "
            "The retry policy sends the rest again."
        ]
        lines += [
            f"  {partition.partition_key!r}: {partition.unsent} event(s): {partition.error}"
            for partition in self.failed[:_NAMED_PARTITIONS]
        ]
        if len(self.failed) > _NAMED_PARTITIONS:
            lines.append(f"  and {len(self.failed) - _NAMED_PARTITIONS} more partition key(s)")
        return "\n".join(lines)
