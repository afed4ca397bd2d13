"""Every error of the relay.

RelayError
├── SettingsError, PublishError, QuarantineError, StoreError, AccountingError
├── SourceError     ── ChangesError, LeaseError, FeedError, RulesError
├── OperationError  ── UsageError, ServiceError
└── SendError       ── RetryableError, StaleClearanceError, LostOwnershipError, ConfigurationError,
                       NotTriedError, DefectError, DoubtfulRefusalError, RefusedAlikeError, BlockedError,
                       ContentError, PoisonError

Only `PoisonError` may lead to quarantine, and only the outcome of the very transfer that carried a message makes
one. Every other error blocks the partition key and is retried: an event that waits is late, but an event that is
set aside by mistake is lost to its subscribers.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

from relay.core.remedy import Remedy, Sentence


class RelayError(Exception):
    """The base of the relay's own errors. Its message may have remedies."""

    def __init__(self, *said: str | Remedy) -> None:
        super().__init__(Sentence(*said))

    @property
    def sentence(self) -> Sentence:
        """The message, with its remedies as values."""
        said: Sentence = self.args[0]
        return said


class SettingsError(RelayError):
    """One or more settings are missing or wrong; the message names each one and its remedy."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{len(problems)} setting(s) must be corrected before the relay can start:\n{lines}")


class SourceError(RelayError):
    """A batch of the source, or its checkpoint, cannot be read; the retry policy repeats the attempt."""


class ChangesError(SourceError):
    """The trigger's payload cannot be read as a JSON array of documents."""


class LeaseError(SourceError):
    """The lease container could not be read, so it is not known whether old events were published already."""


class FeedError(SourceError):
    """The SQL feed, or the claims on its shards, could not be read or written."""


class RulesError(SourceError):
    """Which rules count for an event could not be read, or not be made final, so it is not known where it goes."""


class QuarantineError(RelayError):
    """The quarantine could not be read or written; the attempt is repeated."""


class StoreError(RelayError):
    """A store of the quarantine, named in the message, failed; its callers raise it as another of these errors."""


class PublishError(RelayError):
    """Not every event of this invocation was accepted; those that were not are sent again by the next attempt."""


class AccountingError(RelayError):
    """The parts of an outcome do not add up to the events received: a defect, so nothing is checkpointed."""


class OperationError(RelayError):
    """A command of `python -m relay` cannot do its work."""


class UsageError(OperationError):
    """The arguments make no sense, or the command cannot work this way; nothing was done."""


class ServiceError(OperationError):
    """Cosmos DB or Service Bus cannot be reached, or refuses."""


@dataclass(frozen=True, slots=True)
class DestinationSettings:
    """The settings that name a destination, for remedies.

    Attributes:
        entity: The setting, or the place in relay.toml, that has the topic's or queue's name.
        connection: The setting that says how to reach its namespace.
        kind: `topic` or `queue`.
    """

    entity: str = "SERVICEBUS_TOPIC"
    connection: str = "SERVICEBUS"
    kind: str = "topic"


def _with_remedy(said: str, remedy: str, settings: DestinationSettings | None) -> str:
    names = settings or DestinationSettings()
    text = remedy.format(entity=names.entity, connection=names.connection, kind=names.kind)
    return f"{said} {text}".strip()


class SendError(RelayError):
    """A send to Service Bus did not succeed."""

    def naming(self, _: DestinationSettings, /) -> SendError:
        """Return the error with a remedy that names these settings."""
        return self


class RetryableError(SendError):
    """The network, the service or its capacity prevented the send; the retry policy tries again.

    Attributes:
        refused: The service has answered this transfer with an error that may be temporary.
        busy: The service asks for a pause.
        ended_alone: The service has ended a link on which nothing but this transfer was in flight.
        remedy: What to do, with the members of DestinationSettings in braces; empty if nothing is to be done.
    """

    def __init__(
        self,
        said: str,
        remedy: str = "",
        settings: DestinationSettings | None = None,
        *,
        refused: bool = False,
        busy: bool = False,
        ended_alone: bool = False,
    ) -> None:
        super().__init__(_with_remedy(said, remedy, settings))
        self.said = said
        self.remedy = remedy
        self.refused = refused
        self.busy = busy
        self.ended_alone = ended_alone

    def naming(self, settings: DestinationSettings, /) -> RetryableError:
        if not self.remedy:
            return self
        named = RetryableError(
            self.said,
            self.remedy,
            settings,
            refused=self.refused,
            busy=self.busy,
            ended_alone=self.ended_alone,
        )
        named.__cause__ = self.__cause__
        return named


class StaleClearanceError(SendError):
    """An event was compared with the lease too long ago: the next attempt compares it again."""


class LostOwnershipError(SendError):
    """The claim on the shard has ended, so another process may be publishing the same events."""


class ConfigurationError(SendError):
    """The topic or the credentials prevent every send; retried until somebody corrects them.

    Attributes:
        remedy: What to do, with the members of DestinationSettings in braces.
    """

    def __init__(self, said: str, remedy: str = "", settings: DestinationSettings | None = None) -> None:
        super().__init__(_with_remedy(said, remedy, settings))
        self.said = said
        self.remedy = remedy

    def naming(self, settings: DestinationSettings, /) -> ConfigurationError:
        named = ConfigurationError(self.said, self.remedy, settings)
        named.__cause__ = self.__cause__
        return named


class NotTriedError(SendError):
    """Nothing of this partition key was sent, as too many others had failed one after another."""


class DefectError(SendError):
    """An exception that the relay does not foresee: a defect, which stops one partition key and no other."""


class RefusedAlikeError(SendError):
    """Service Bus refuses every message alike, so the cause is not one event's content. Nothing is set aside."""


class DoubtfulRefusalError(SendError):
    """Service Bus refuses an event, and it is not certain yet that the event's content is the cause."""


class BlockedError(SendError):
    """A poisoned event holds up its partition key, as `RELAY_ON_POISON=block` asks for."""


class ContentError(SendError):
    """The content of a large event cannot be written to Blob Storage; retried until it can be."""


class PoisonError(SendError):
    """Service Bus refuses the content of this message, and always will.

    Attributes:
        too_large: The message is refused for its size.
        condition: The AMQP condition of the refusal; empty if a limit of the link excludes it beforehand.
    """

    def __init__(self, message: str, *, condition: str, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large
        self.condition = condition


def first_line(error: BaseException) -> str:
    """Return an error's kind and the first line of its message; the SDKs' messages can be pages long."""
    said = str(error).strip()
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else type(error).__name__


# Number of calls that are named, the innermost first.
_CALLS = 6


def described(error: BaseException) -> str:
    """Return an error's kind and the calls that led to it.

    Leaves out its message, which may show an event's content.
    """
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(described(each) for each in error.exceptions)
    calls = traceback.extract_tb(error.__traceback__)[: -_CALLS - 1 : -1]
    places = ", called at ".join(f"{Path(call.filename).name}:{call.lineno} ({call.name})" for call in calls)
    return f"{type(error).__name__} at {places}" if places else type(error).__name__
