"""The meaning of each reason for quarantine, each error, and each state that may need a person.

One row each. The console shows the rows of what it sees, and `check` that of an event that would be quarantined; a
test holds the tables of docs/message-contract.md and docs/runbook.md equal to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from relay.core import errors
from relay.core.events import Reason
from relay.core.remedy import CHECK, LIST, SCAN, SET_ANY_ASIDE, Remedy, Sentence, discard


@dataclass(frozen=True, slots=True)
class Row:
    """One row; code is in backticks, as on the pages.

    Attributes:
        meaning: The event, in a part of a sentence.
        passes: Whether it may pass without anybody doing anything.
        remedy: The operator's action, in sentences, whose commands are values.
    """

    meaning: str
    passes: bool
    remedy: str

    @property
    def needs_another_event(self) -> bool:
        """Return True if the same event can never be sent, so that a release cannot help."""
        return self.remedy == _CORRECT


def _release(reason: str) -> Remedy:
    return Remedy("quarantine release", options=("--reason", reason))


_CORRECT = Sentence.of("Have the service write a correct event with a new id, then `{}`.", discard("ID"))
_OTHERWISE = "Otherwise have the service write another event with a new id, and discard this one."
_UNPARK = Sentence.of(
    "Discard the event that parked the key, or correct what refused it; then `{}`.",
    Remedy("quarantine release", options=("--all", "--partition-key", "KEY")),
)
_WAIT = "Wait: the next attempt sends the events again."
_SERVICE = Sentence.of("Run `{}`, which names what is missing or refused.", CHECK)
_DEFECT = "Roll back the relay, and report the log line."
_GO_ON = Sentence.of("To let the key go on without the event, `{}`.", SET_ANY_ASIDE)

_ID = Row("the `id` is missing, not a string, empty, or longer than 128 UTF-16 units", False, _CORRECT)
_KEY = Row("the `partitionKey` is missing, not a string, empty, or longer than 128 UTF-16 units", False, _CORRECT)
_DATA = Row("`data` is not an object, or `data.action` is not a string", False, _CORRECT)

QUARANTINE: Mapping[Reason, Row] = {
    Reason.ID_MISSING: _ID,
    Reason.ID_NOT_STRING: _ID,
    Reason.ID_EMPTY: _ID,
    Reason.ID_TOO_LONG: _ID,
    Reason.PARTITION_KEY_MISSING: _KEY,
    Reason.PARTITION_KEY_NOT_STRING: _KEY,
    Reason.PARTITION_KEY_EMPTY: _KEY,
    Reason.PARTITION_KEY_TOO_LONG: _KEY,
    Reason.DATA_NOT_OBJECT: _DATA,
    Reason.ACTION_NOT_STRING: _DATA,
    Reason.PROPERTY_NOT_UNICODE: Row("a property has half of a surrogate pair", False, _CORRECT),
    Reason.PROPERTIES_TOO_LARGE: Row("the properties together exceed 15 000 bytes", False, _CORRECT),
    Reason.MESSAGE_TOO_LARGE: Row(
        "the message exceeds what the topic takes",
        False,
        Sentence.of(
            "If it can be sent now, as after an upgrade to Premium or with `RELAY_LARGE=claim-check`, `{}`. {}",
            _release("message-too-large"),
            _OTHERWISE,
        ),
    ),
    Reason.MESSAGE_REFUSED: Row(
        "the service refused the message because of its content",
        False,
        Sentence.of("If what refused it has changed, `{}`. {}", _release("message-refused"), _OTHERWISE),
    ),
    Reason.KEY_PARKED: Row("the event itself is valid; its key is parked behind an earlier one", False, _UNPARK),
    Reason.SET_ASIDE: Row(
        f"an operator ordered it with `{SET_ANY_ASIDE}`",
        False,
        Sentence.of(
            "When its cause is gone, `{}`. If the event is not needed, discard it.",
            Remedy("quarantine release", ("ID",)),
        ),
    ),
    Reason.NOT_MAPPED: Row(
        "a rule of relay.toml does not fit the event: the detail names field and rule",
        False,
        Sentence.of("Correct the rule and deploy; then `{}`. {}", _release("not-mapped"), _OTHERWISE),
    ),
    Reason.NO_ROUTE: Row(
        "no rule of `relay.toml` takes the event",
        False,
        Sentence.of(
            "Add a rule for such events. If it leads to the stream of the record, `{}`; otherwise `replay` them "
            "to their stream, then discard the records.",
            _release("no-route"),
        ),
    ),
}


def may_be_released(reason: str) -> bool:
    """Return True if a release can help the events of a reason, which may be one of a later version."""
    row = next((row for known, row in QUARANTINE.items() if known == reason), None)
    return row is None or not row.needs_another_event


_UNREADABLE = Row(
    "the outbox, its leases, the rules, the feed or the quarantine cannot be read or written", True, _SERVICE
)
_REPEATED = Row("a send did not succeed, or the attempt took too long", True, _WAIT)
_BROKEN = Row("a defect of the relay", False, _DEFECT)
_COMMAND = Row("a command cannot do its work", False, "Follow the message of the command.")

ERRORS: Mapping[type[errors.RelayError], Row] = {
    errors.RelayError: _BROKEN,
    errors.SettingsError: Row(
        "settings are missing or wrong",
        False,
        Sentence.of("Correct those that the message names; then `{}`.", CHECK),
    ),
    errors.SourceError: _UNREADABLE,
    errors.ChangesError: Row(
        "the trigger delivered no JSON array of documents",
        False,
        Sentence.of("Correct or delete what `{}` names.", SCAN),
    ),
    errors.LeaseError: _UNREADABLE,
    errors.RulesError: _UNREADABLE,
    errors.FeedError: _UNREADABLE,
    errors.QuarantineError: _UNREADABLE,
    errors.StoreError: _UNREADABLE,
    errors.PublishError: Row(
        "some events were not accepted", True, "Look up the errors logged as `relay_failed`."
    ),
    errors.AccountingError: _BROKEN,
    errors.OperationError: _COMMAND,
    errors.UsageError: _COMMAND,
    errors.ServiceError: _UNREADABLE,
    errors.SendError: _REPEATED,
    errors.RetryableError: Row(
        "Service Bus is unavailable, throttled or full",
        True,
        "Wait; make room in a full topic, or raise its capacity.",
    ),
    errors.StaleClearanceError: _REPEATED,
    errors.LostOwnershipError: Row(
        "the claim on a shard was not renewed in time",
        True,
        "Wait: the new owner of the shard sends the events. If it repeats, give the worker more processor time.",
    ),
    errors.ConfigurationError: Row(
        "the topic is missing or disabled, or the identity lacks the right to send", False, _SERVICE
    ),
    errors.NotTriedError: Row(
        "too many partition keys in a row failed before", True, "Look up their error: it is the cause."
    ),
    errors.DefectError: Row(
        "a defect of the relay stops one partition key",
        False,
        Sentence(f"{_DEFECT} ", _GO_ON),
    ),
    errors.DoubtfulRefusalError: Row(
        "Service Bus refused an event, and it is not certain yet that its content is the cause",
        True,
        "Wait: after three attempts the event goes to quarantine, or the message says what is lacking.",
    ),
    errors.RefusedAlikeError: Row(
        "events of many partition keys are refused alike, so the cause is not the content of one",
        True,
        Sentence.of(
            "See what has changed at the topic or in the settings. To set an event aside all the same, `{}`.",
            SET_ANY_ASIDE,
        ),
    ),
    errors.BlockedError: Row(
        "a poisoned event holds up its partition key (`RELAY_ON_POISON=block`)",
        False,
        _GO_ON,
    ),
    errors.ContentError: Row(
        "the content of a large event cannot be written to Blob Storage (`RELAY_LARGE=claim-check`)",
        False,
        Sentence.of("Do what the message asks for. {} The key goes on by itself.", _SERVICE),
    ),
    errors.PoisonError: Row(
        "the content of one event can never be accepted: it is quarantined",
        False,
        Sentence.of("Look up its reason: `{}` shows it.", LIST),
    ),
}


class State(StrEnum):
    """A state of the relay that may need a person. The value is the name of its alert, if it has one."""

    TTL_HEADROOM = "ttl-headroom"
    FAILING = "failing"
    LAG = "lag"
    QUARANTINE = "quarantine"
    PARKED = "parked"
    DEAD_LETTERS = "dead-letters"
    UNDELIVERED = "undelivered"
    UNOWNED = "unowned"
    UNREAD = "unread"


STATES: Mapping[State, Row] = {
    State.TTL_HEADROOM: Row(
        "an event that is not published yet will soon be deleted by its time to live",
        False,
        "Switch the container's time to live off, then look for what stops the relay.",
    ),
    State.FAILING: Row(
        "attempts fail, and are repeated",
        True,
        Sentence.of("Look up the error in the log, and run `{}`.", CHECK),
    ),
    State.LAG: Row(
        "events are published late", True, "Wait if the lag falls. Otherwise look for failures, or add instances."
    ),
    State.QUARANTINE: Row(
        "events can never become messages; no consumer got them",
        False,
        Sentence.of("Do what the reason of each record in `{}` asks for.", LIST),
    ),
    State.PARKED: Row("the events of the key go to quarantine, in order, until they are released", False, _UNPARK),
    State.DEAD_LETTERS: Row(
        "a consumer failed too often, or nobody received its messages before they expired",
        False,
        Sentence.of(
            "Correct the consumer; then let it handle them where they are, or `{}`, or `discard`.",
            Remedy("deadletters resubmit", options=("--subscription", "NAME", "--reason", "REASON")),
        ),
    ),
    State.UNDELIVERED: Row(
        "the host cannot hand a document over to the relay; nothing behind it is published",
        False,
        Sentence.of("Find it with `{}`, and have it written flatter, or delete it.", SCAN),
    ),
    State.UNOWNED: Row(
        "nobody reads a partition or shard",
        False,
        Sentence.of("See whether the app or the worker runs, and what its log says; `{}`.", CHECK),
    ),
    State.UNREAD: Row(
        "the console cannot read a service, so it is not known what waits",
        True,
        Sentence.of("The relay may work all the same. `{}` names what is missing or refused.", CHECK),
    ),
}

AT_A_GLANCE = "at-a-glance"
"""The section of docs/runbook.md whose table has every state."""

RUNBOOK: Mapping[State, str] = {
    **{each: str(each) for each in State},
    State.PARKED: AT_A_GLANCE,
    State.UNREAD: AT_A_GLANCE,
}
"""The section of docs/runbook.md about a state, by the anchor of its heading."""

RECOVERY = "how-long-recovery-takes"
"""The section of docs/runbook.md about an owner that is gone."""
