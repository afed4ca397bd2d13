"""The outcome of one attempt: for each partition key's events, and for all documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

from relay.core.errors import AccountingError, NotTriedError, RefusedAlikeError, RetryableError, SendError
from relay.core.events import Event, Rejected
from relay.core.remedy import Sentence, set_aside

# An error names this many of the partition keys that failed, and counts the others.
_NAMED_KEYS = 10


@dataclass(slots=True)
class KeyOutcome:
    """The outcome of one partition key's events that were to be sent. Every one of them is counted exactly once.

    Attributes:
        published: Events Service Bus accepted now.
        rejected: Events that are to be set aside.
        held_back: Events not tried, as an earlier one of the key is set aside.
        unsent: Events not accepted because of `error`.
        error: The error that stopped this partition key; None if all its events went through.
        blocked_by: The id of the event that `error` stopped at, if it is known to be that one alone.
    """

    partition_key: str
    published: int = 0
    rejected: list[Rejected] = field(default_factory=list)
    held_back: Sequence[Event] = ()
    unsent: int = 0
    sends: int = 0
    error: SendError | None = None
    blocked_by: str | None = None


@dataclass(frozen=True, slots=True)
class KeyFailure:
    """A partition key that did not go through in an attempt: as in `KeyOutcome`; `unsent` documents come again."""

    partition_key: str
    unsent: int
    error: SendError
    blocked_by: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one attempt's documents. Every one of them is counted exactly once.

    Attributes:
        documents: Number of documents received.
        ignored: Documents of another type.
        published: Events Service Bus accepted now.
        already_published: Events it had accepted in an earlier attempt.
        superseded: Documents settled before: the checkpoint has passed them, or an earlier attempt set them aside.
        quarantined: Documents set aside, by reason.
        unsent: Events not accepted; more than none only if `failed` is not empty.
        partition_keys: Partition keys among the events that were to be sent.
        set_aside: The documents to quarantine, in the order in which they are to be released again.

    Raises:
        AccountingError: The parts do not add up to what came: an attempt that succeeded would lose some.
    """

    documents: int = field(repr=False)
    ignored: int
    published: int
    already_published: int
    superseded: int
    quarantined: Counter[str]
    unsent: int
    partition_keys: int
    sends: int
    failed: Sequence[KeyFailure]
    # Excluded from repr: an error message must never contain a document.
    set_aside: Sequence[Rejected] = field(repr=False)

    def __post_init__(self) -> None:
        accepted = self.published + self.already_published + self.superseded
        counted = self.ignored + accepted + self.quarantined.total() + self.unsent
        if counted != self.documents or bool(self.unsent) != bool(self.failed):
            raise AccountingError(
                f"{self.documents} document(s) came, and {counted} are accounted for, "
                f"{self.unsent} of them unsent for {len(self.failed)} error(s): {self}. This is a defect "
                "of the relay: please report it. Nothing is lost, as the checkpoint is withheld."
            )

    def without(self, passed: Set[int]) -> Outcome:
        """Return this outcome without the documents set aside at these positions.

        The checkpoint has passed them.
        """
        rest = [item for item in self.set_aside if item.position not in passed]
        superseded = self.superseded + len(self.set_aside) - len(rest)
        return replace(self, set_aside=rest, quarantined=by_reason(rest), superseded=superseded)

    @property
    def blocking(self) -> list[KeyFailure]:
        """The keys that one event each holds up.

        If nothing is accepted and several keys fail, an error that may pass says nothing of the events.
        """
        named = [key for key in self.failed if key.blocked_by is not None]
        if self._accepted or len(self.failed) == 1:
            return named
        return [key for key in named if not isinstance(key.error, RetryableError)]

    @property
    def _accepted(self) -> int:
        return self.published + self.already_published

    def explain(self) -> Sentence:
        """Describe the events sent and not sent, with partition keys and reasons."""
        lines: list[str] = [
            f"{self.unsent} event(s) of {len(self.failed)} partition key(s) were not accepted by Service Bus; "
            f"{self._accepted} event(s) of this invocation were. "
            "The retry policy sends the rest again."
        ]
        # A key that was not tried explains nothing.
        explained = sorted(self.failed, key=lambda key: isinstance(key.error, NotTriedError))
        lines += [
            Sentence(f"  {key.partition_key!r}: {key.unsent} event(s): ", key.error.sentence)
            for key in explained[:_NAMED_KEYS]
        ]
        if len(self.failed) > _NAMED_KEYS:
            lines.append(f"  and {len(self.failed) - _NAMED_KEYS} more partition key(s)")
        lines += [Sentence("  ", remedy) for remedy in self.remedies]
        return Sentence.of_lines(lines)

    @property
    def remedies(self) -> list[Sentence]:
        """For each key that one event holds up, the event and the command that sets it aside; ten keys at most."""
        return [
            Sentence(f"{self._named(key)} To set it aside: ", set_aside(key.partition_key, key.blocked_by or ""))
            for key in self.blocking[:_NAMED_KEYS]
        ]

    def _named(self, key: KeyFailure) -> str:
        if isinstance(key.error, RefusedAlikeError):
            return (
                f"The event {key.blocked_by!r} holds up {key.partition_key!r}. Events of other partition keys "
                "were refused alike, so check first what has changed at the topic."
            )
        if self._accepted:
            return f"The event {key.blocked_by!r} alone holds up {key.partition_key!r} while others go through."
        return (
            f"The event {key.blocked_by!r} holds up {key.partition_key!r}. Nothing else was accepted, so check "
            "first that the topic accepts other events."
        )


def by_reason(set_aside: Sequence[Rejected]) -> Counter[str]:
    """Return the number of documents by reason."""
    return Counter([str(item.reason) for item in set_aside])
