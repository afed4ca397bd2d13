"""What became of one invocation's documents."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from relay.cosmos.quarantine import Quarantined
from relay.errors import AccountingError
from relay.servicebus.turn import PartitionOutcome

# An error names this many of the partition keys that failed, and counts the others.
_NAMED_KEYS = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one invocation's documents. Every one of them is counted exactly once.

    Attributes:
        ignored: Documents of another type.
        published: Events Service Bus accepted now.
        remembered: Events it had accepted in an earlier attempt.
        superseded: Events that another owner of the lease has published and checkpointed.
        quarantined: Documents set aside, by reason.
        unsent: Events not accepted; more than none only if `failed` is not empty.
        partitions: Partition keys among the events that were to be sent.
        sends: Transfers accepted.
        failed: The partition keys that did not go through.
    """

    ignored: int
    published: int
    remembered: int
    superseded: int
    quarantined: Counter[str]
    unsent: int
    partitions: int
    sends: int
    failed: list[PartitionOutcome]

    @classmethod
    def of(
        cls,
        *,
        documents: int,
        ignored: int,
        published: Sequence[PartitionOutcome],
        rejected: Sequence[Quarantined],
    ) -> Outcome:
        """Add up the parts.

        Raises:
            AccountingError: They do not add up to `documents`: an invocation that succeeded would lose some.
        """
        outcome = cls(
            ignored=ignored,
            published=sum(key.published for key in published),
            remembered=sum(key.remembered for key in published),
            superseded=sum(key.superseded for key in published),
            quarantined=Counter(str(item.reason) for item in rejected),
            unsent=sum(key.unsent for key in published),
            partitions=len(published),
            sends=sum(key.sends for key in published),
            failed=[key for key in published if key.error is not None],
        )
        if outcome.documents != documents or bool(outcome.unsent) != bool(outcome.failed):
            raise AccountingError(
                f"{documents} document(s) came, and {outcome.documents} are accounted for, {outcome.unsent} of "
                "them "
                f"unsent for {len(outcome.failed)} error(s): {outcome}. This is a defect of the relay: please "
                "report it. "
                "Nothing is lost, as the checkpoint is withheld."
            )
        return outcome

    @property
    def documents(self) -> int:
        """The documents accounted for."""
        accepted = self.published + self.remembered + self.superseded
        return self.ignored + accepted + self.quarantined.total() + self.unsent

    @property
    def blocking(self) -> list[PartitionOutcome]:
        """The keys that one event each holds up, while others of the invocation went through."""
        if not self.published + self.remembered:
            return []
        return [key for key in self.failed if key.blocked_by is not None]

    def explain(self) -> str:
        """What went and what did not, for which partition keys and why."""
        lines = [
            f"{self.unsent} event(s) of {len(self.failed)} partition key(s) were not accepted by Service Bus; "
            f"{self.published + self.remembered} event(s) of this invocation were. "
            "The retry policy sends the rest again."
        ]
        lines += [
            f"  {key.partition_key!r}: {key.unsent} event(s): {key.error}" for key in self.failed[:_NAMED_KEYS]
        ]
        if len(self.failed) > _NAMED_KEYS:
            lines.append(f"  and {len(self.failed) - _NAMED_KEYS} more partition key(s)")
        lines += [
            f"  The event {key.blocked_by!r} alone holds up {key.partition_key!r} while others go through. To set "
            "it "
            f"aside: python -m relay quarantine add {shlex.quote(key.partition_key)} "
            f"{shlex.quote(key.blocked_by or '')}"
            for key in self.blocking[:_NAMED_KEYS]
        ]
        return "\n".join(lines)
