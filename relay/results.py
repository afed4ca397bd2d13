"""What became of one attempt's events: of each partition key's, and of all documents that came."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from relay.errors import AccountingError, SendError
from relay.events import Event, Received, Rejected

# An error names this many of the partition keys that failed, and counts the others.
_NAMED_KEYS = 10


@dataclass(slots=True)
class KeyOutcome:
    """What became of one partition key's events in one attempt. Every one of them is counted exactly once.

    Attributes:
        partition_key: Whose events they are.
        published: Events Service Bus accepted now.
        already_published: Events it had accepted in an earlier attempt, so not sent again.
        superseded: Events that another owner of the lease has published and checkpointed, so not sent again.
        rejected: Events it will never accept.
        held_back: Events not tried, as an earlier one of the key was rejected.
        unsent: Events not accepted because of `error`.
        sends: Transfers the service accepted.
        error: What stopped this partition key; None when it went through to its end.
        blocked_by: The id of the event that `error` stopped at, where it is known to be that one alone.
        accepted_after_rejection: Whether an event was accepted after one was rejected.
    """

    partition_key: str
    published: int = 0
    already_published: int = 0
    superseded: int = 0
    rejected: list[Rejected] = field(default_factory=list)
    held_back: list[Event] = field(default_factory=list)
    unsent: int = 0
    sends: int = 0
    error: SendError | None = None
    blocked_by: str | None = None
    accepted_after_rejection: bool = False

    def withhold(self, error: SendError, blocked_by: str | None) -> None:
        """What was rejected, or held back behind it, is not set aside: it counts as unsent, and comes again."""
        self.error = error
        self.blocked_by = blocked_by
        self.unsent += len(self.rejected) + len(self.held_back)
        self.rejected.clear()
        self.held_back.clear()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one attempt's documents. Every one of them is counted exactly once.

    Attributes:
        ignored: Documents of another type.
        published: Events Service Bus accepted now.
        already_published: Events it had accepted in an earlier attempt.
        superseded: Events that another owner of the lease has published and checkpointed.
        quarantined: Documents set aside, by reason.
        unsent: Events not accepted; more than none only if `failed` is not empty.
        partition_keys: Partition keys among the events that were to be sent.
        sends: Transfers accepted.
        failed: The partition keys that did not go through.
    """

    ignored: int
    published: int
    already_published: int
    superseded: int
    quarantined: Counter[str]
    unsent: int
    partition_keys: int
    sends: int
    failed: list[KeyOutcome]

    @classmethod
    def of(cls, received: Received, keys: Sequence[KeyOutcome], rejected: Sequence[Rejected]) -> Outcome:
        """Add up the parts.

        Args:
            received: What came.
            keys: What became of each partition key's events.
            rejected: What is to be quarantined.

        Raises:
            AccountingError: They do not add up to what came: an attempt that succeeded would lose some.
        """
        published = already_published = superseded = unsent = sends = 0
        for key in keys:
            published += key.published
            already_published += key.already_published
            superseded += key.superseded
            unsent += key.unsent
            sends += key.sends
        outcome = cls(
            ignored=received.ignored,
            published=published,
            already_published=already_published,
            superseded=superseded,
            quarantined=Counter([str(item.reason) for item in rejected]),
            unsent=unsent,
            partition_keys=len(keys),
            sends=sends,
            failed=[key for key in keys if key.error is not None],
        )
        if outcome.documents != received.documents or bool(outcome.unsent) != bool(outcome.failed):
            raise AccountingError(
                f"{received.documents} document(s) came, and {outcome.documents} are accounted for, "
                f"{outcome.unsent} of them unsent for {len(outcome.failed)} error(s): {outcome}. This is a defect "
                "of the relay: please report it. Nothing is lost, as the checkpoint is withheld."
            )
        return outcome

    @property
    def documents(self) -> int:
        """The documents accounted for."""
        accepted = self.published + self.already_published + self.superseded
        return self.ignored + accepted + self.quarantined.total() + self.unsent

    @property
    def blocking(self) -> list[KeyOutcome]:
        """The keys that one event each holds up, while others of the invocation went through."""
        if not self.published + self.already_published:
            return []
        return [key for key in self.failed if key.blocked_by is not None]

    def explain(self) -> str:
        """What went and what did not, for which partition keys and why."""
        lines = [
            f"{self.unsent} event(s) of {len(self.failed)} partition key(s) were not accepted by Service Bus; "
            f"{self.published + self.already_published} event(s) of this invocation were. "
            "The retry policy sends the rest again."
        ]
        lines += [
            f"  {key.partition_key!r}: {key.unsent} event(s): {key.error}" for key in self.failed[:_NAMED_KEYS]
        ]
        if len(self.failed) > _NAMED_KEYS:
            lines.append(f"  and {len(self.failed) - _NAMED_KEYS} more partition key(s)")
        lines += [
            f"  The event {key.blocked_by!r} alone holds up {key.partition_key!r} while others go through. "
            f"To set it aside: python -m relay quarantine add {shlex.quote(key.partition_key)} "
            f"{shlex.quote(key.blocked_by or '')}"
            for key in self.blocking[:_NAMED_KEYS]
        ]
        return "\n".join(lines)
