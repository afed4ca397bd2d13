"""A fault as it is asked for: what goes wrong, where, how often or for how long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outbox_relay.emulators.faults import InvalidFault
from outbox_relay.emulators.properties import MAX_INTEGER, Problems, Reader
from outbox_relay.emulators.servicebus.edges import Oversized
from outbox_relay.emulators.servicebus.entity_types import Status
from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.role import Role


class FaultKind(StrEnum):
    """The kind of fault."""

    CUT_BEFORE_TRANSFER = "cut-before-transfer"
    """The connection is cut when a transfer begins; nothing of it is read."""
    CUT_AFTER_TRANSFER = "cut-after-transfer"
    """The transfer is accepted, then the connection is cut: the sender gets no disposition."""
    CUT_MID_FRAME = "cut-mid-frame"
    """The connection is cut in the middle of a frame, coming in or going out."""
    DELAY_ACK = "delay-ack"
    """The transfer is accepted, its disposition comes late."""
    SERVER_BUSY = "server-busy"
    """The transfer is rejected as throttled."""
    PARTITION_UNAVAILABLE = "partition-unavailable"
    """Transfers with messages of one partition of the entity are rejected, others accepted."""
    DETACH_LINK = "detach-link"
    """The link is detached instead of taking, or delivering, the next message."""
    REJECT = "reject"
    """The transfer is rejected with the condition that was asked for."""
    REJECT_THEN_DETACH = "reject-then-detach"
    """It is rejected with a condition, then the link is detached with the same one."""
    INTERNAL_ERROR = "internal-error"
    """It is rejected as if the service had failed: "please retry"."""
    ANSWER_OVERSIZED = "answer-oversized"
    """Transfers that are too large are answered in the way that was asked for. None is made too large."""
    SHRINK_LIMIT = "shrink-limit"
    """The size limit is lower than open links have announced, as after a change of tier."""
    REFUSE_TOKEN = "refuse-token"
    """Tokens are answered with 401, and links are refused."""
    DISABLE_ENTITY = "disable-entity"
    """The entity has another status for a while."""
    CUT_RECEIVER = "cut-receiver"
    """The connections that receive from the entity are cut, at once."""
    DETACH_IDLE = "detach-idle"
    """The links to the entity with nothing under way are detached, at once."""
    CLOSE_IDLE = "close-idle"
    """The connections of such links are closed, at once."""
    EXPIRE_LOCKS = "expire-locks"
    """All locks on messages or sessions of the entity expire, at once."""
    SILENT_HANDSHAKE = "silent-handshake"
    """From one step of its handshake on, a connection gets no answer: for a while, or forever."""
    END_ON_TRANSFER = "end-on-transfer"
    """The link, its session or its connection ends instead of the answer to a transfer."""
    SETTLE_IN_TWO = "settle-in-two"
    """The outcome of a transfer comes first, unsettled; a second disposition settles it, without a state."""
    STALL_TRANSFER = "stall-transfer"
    """A transfer of several frames is read no further after its first one, for a while."""
    BEGIN_SESSION = "begin-session"
    """The broker begins a session on each connection that sends to the entity, at once."""


class Direction(StrEnum):
    """Which way a frame goes, as the broker sees it."""

    IN = "in"
    OUT = "out"


class Step(StrEnum):
    """A step of a connection's handshake: what the client has sent when the broker falls silent."""

    ACCEPT = "accept"
    """Nothing: the TCP connection was accepted."""
    SASL = "sasl"
    OPEN = "open"
    BEGIN = "begin"
    CBS_ATTACH = "cbs-attach"
    PUT_TOKEN = "put-token"
    """A request to `$cbs`, the first one or one that renews a token."""
    ATTACH = "attach"
    """The attach of a link to an entity."""


class Ending(StrEnum):
    """The part that ends, with or without an error. `reset` is a TCP reset."""

    CONNECTION = "connection"
    CONNECTION_WITH_ERROR = "connection-with-error"
    RESET = "reset"
    SESSION = "session"
    SESSION_WITH_ERROR = "session-with-error"
    LINK = "link"
    LINK_WITH_ERROR = "link-with-error"


SERVER_BUSY = "com.microsoft:server-busy"
INTERNAL_ERROR = "amqp:internal-error"
NOT_ALLOWED = "amqp:not-allowed"
SIZE_EXCEEDED = "amqp:link:message-size-exceeded"

_TRANSFER_KINDS = frozenset(
    {
        FaultKind.CUT_BEFORE_TRANSFER,
        FaultKind.CUT_AFTER_TRANSFER,
        FaultKind.CUT_MID_FRAME,
        FaultKind.DELAY_ACK,
        FaultKind.SERVER_BUSY,
        FaultKind.REJECT,
        FaultKind.REJECT_THEN_DETACH,
        FaultKind.INTERNAL_ERROR,
        FaultKind.DETACH_LINK,
        FaultKind.REFUSE_TOKEN,
        FaultKind.SILENT_HANDSHAKE,
        FaultKind.END_ON_TRANSFER,
        FaultKind.SETTLE_IN_TWO,
        FaultKind.STALL_TRANSFER,
    }
)
_IMMEDIATE = frozenset(
    {
        FaultKind.CUT_RECEIVER,
        FaultKind.DETACH_IDLE,
        FaultKind.CLOSE_IDLE,
        FaultKind.EXPIRE_LOCKS,
        FaultKind.BEGIN_SESSION,
    }
)
_OF_ANY_ENTITY = frozenset({FaultKind.REFUSE_TOKEN, FaultKind.SILENT_HANDSHAKE})
_SELECTORS = ("message_id", "session_id", "has_property")


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """A fault as it is asked for; times are milliseconds.

    `entity` None is any. The fields after `for_ms` are options of some kinds only: see `from_json`.
    """

    kind: FaultKind
    entity: str | None = None
    count: int | None = None
    for_ms: int | None = None
    role: Role = Role.SENDER
    direction: Direction = Direction.OUT
    delay_ms: int = 0
    partition: int = 0
    of: int = 1
    condition: str = SERVER_BUSY
    status: Status = Status.DISABLED
    reset: bool = False
    silent: bool = False
    answer: Oversized = Oversized.REJECTED_THEN_DETACHED
    most_bytes: int = MAX_INTEGER
    step: Step = Step.ACCEPT
    heartbeats: bool = False
    how: Ending = Ending.CONNECTION
    taken: bool = False
    message_id: str | None = None
    session_id: str | None = None
    has_property: str | None = None
    accepts_repeats: bool = False
    described_info: bool = False

    @classmethod
    def from_json(cls, body: Any) -> FaultPlan:
        """Read the body of `POST /admin/faults`. Raises InvalidFault.

        Options: `direction` and `role` of cut-mid-frame, `role` of detach-link, detach-idle and close-idle, which
        give no reason if they are `silent`, `condition` of reject and reject-then-detach, `reset` (a TCP reset in
        place of an orderly end) of all that cut, `ms` of delay-ack, `partition`, `of` and `condition` of
        partition-unavailable, `status` of disable-entity, `answer` of answer-oversized, `bytes` of shrink-limit.
        reject and end-on-transfer can select messages: by `message_id` (with a final `*`, its beginning), by
        `session_id`, by the name of an application `property`; with any of these they last until they are ended.
        `accepts_repeats` of reject accepts transfers of duplicates alone. `described_info` of all three that
        reject or end puts described types into the error's info. `step` of silent-handshake, `ms` for how long
        (0 is forever), and `heartbeats`, with which empty frames still come. `how` and `condition` of
        end-on-transfer, `taken` if the messages were accepted before, `ms` for how late it ends: until then
        nothing on the link is answered. `ms` of settle-in-two and stall-transfer.
        Where neither `count` nor `for_ms` is given, faults in transfers, and refuse-token, are applied once;
        answer-oversized, shrink-limit, disable-entity and partition-unavailable last until they are ended.
        """
        problems: Problems = []
        reader = Reader(body, "", problems)
        kind = reader.choice("kind", FaultKind, None)
        fields = {} if kind is None else _read(reader, kind)
        if problems:
            raise InvalidFault("; ".join(problems))
        return cls(**fields)

    def matches(self, kind: FaultKind, path: str) -> bool:
        """Return whether this fault is of a kind and covers a path."""
        return self.kind is kind and self.covers(path)

    def covers(self, path: str) -> bool:
        """Return whether a path is the plan's entity or, like a topic's subscription, below it."""
        if self.entity is None:
            return True
        wanted, entity = path.lower(), self.entity.lower()
        return wanted == entity or wanted.startswith(entity + "/")

    def selects(self, messages: Sequence[Message]) -> bool:
        """Return whether one of the messages, or any, is meant."""
        return any(map(self._selects, messages)) if self._is_selective else True

    @property
    def _is_selective(self) -> bool:
        return any(getattr(self, name) is not None for name in _SELECTORS)

    def _selects(self, message: Message) -> bool:
        return (
            _is_meant(self.message_id, message.message_id)
            and self.session_id in (None, message.session_id)
            and (self.has_property is None or self.has_property in message.application_properties)
        )

    def as_json(self) -> Mapping[str, Any]:
        """Return what was asked for, with the defaults of its kind."""
        known = {"kind": self.kind.value, "entity": self.entity, "count": self.count, "for_ms": self.for_ms}
        return known | {name: getattr(self, _FIELDS.get(name, name)) for name in _OPTIONS.get(self.kind, {})}


def _read(reader: Reader, kind: FaultKind) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": kind}
    fields["entity"] = reader.string("entity", required=kind not in _OF_ANY_ENTITY) or None
    if kind not in _IMMEDIATE:
        if kind is not FaultKind.DISABLE_ENTITY:
            fields["count"] = reader.limit("count")
        fields["for_ms"] = reader.limit("for_ms")
    for name, read in _OPTIONS.get(kind, {}).items():
        fields[_FIELDS.get(name, name)] = read(reader)
    selective = any(fields.get(name) is not None for name in _SELECTORS)
    if kind in _TRANSFER_KINDS and not (fields["count"] or fields["for_ms"] or selective):
        fields["count"] = 1
    if fields.get("partition", 0) >= fields.get("of", 1):
        reader.wrong("partition", "must be less than 'of', as partitions are counted from 0")
    reader.done()
    return fields


def _is_meant(wanted: str | None, identifier: str | None) -> bool:
    if wanted is None:
        return True
    if wanted.endswith("*"):
        return (identifier or "").startswith(wanted[:-1])
    return identifier == wanted


def _condition(reader: Reader) -> str:
    condition = reader.string("condition") or SERVER_BUSY
    if condition not in (SERVER_BUSY, INTERNAL_ERROR):
        reader.wrong("condition", f"is '{condition}'; it must be {SERVER_BUSY} or {INTERNAL_ERROR}")
    return condition


def _any_condition(reader: Reader, default: str) -> str:
    condition = reader.string("condition") or default
    if not condition.isascii():
        reader.wrong("condition", "must be ASCII, as AMQP's symbols are")
    return condition


def _ms(default: int) -> Callable[[Reader], int]:
    return lambda reader: reader.integer("ms", default, 0, MAX_INTEGER)


_FIELDS = {"ms": "delay_ms", "bytes": "most_bytes", "property": "has_property"}
"""Options whose field has another name."""

_Options = Mapping[str, Callable[[Reader], Any]]
_RESET: _Options = {"reset": lambda reader: reader.boolean("reset")}
_SILENT: _Options = {"silent": lambda reader: reader.boolean("silent")}
_ROLE: _Options = {"role": lambda reader: reader.choice("role", Role, Role.SENDER)}
_DESCRIBED: _Options = {"described_info": lambda reader: reader.boolean("described_info")}
_SELECTION: _Options = {
    "message_id": lambda reader: reader.string("message_id") or None,
    "session_id": lambda reader: reader.string("session_id") or None,
    "property": lambda reader: reader.string("property") or None,
}
_OPTIONS: Mapping[FaultKind, _Options] = {
    FaultKind.CUT_BEFORE_TRANSFER: _RESET,
    FaultKind.CUT_AFTER_TRANSFER: _RESET,
    FaultKind.CUT_MID_FRAME: {
        "direction": lambda reader: reader.choice("direction", Direction, Direction.OUT),
        **_ROLE,
        **_RESET,
    },
    FaultKind.CUT_RECEIVER: _RESET,
    FaultKind.DETACH_LINK: {**_ROLE, **_SILENT},
    FaultKind.DETACH_IDLE: {**_ROLE, **_SILENT},
    FaultKind.CLOSE_IDLE: {**_ROLE, **_SILENT},
    FaultKind.REJECT: {
        "condition": lambda reader: _any_condition(reader, NOT_ALLOWED),
        "accepts_repeats": lambda reader: reader.boolean("accepts_repeats"),
        **_SELECTION,
        **_DESCRIBED,
    },
    FaultKind.REJECT_THEN_DETACH: {
        "condition": lambda reader: _any_condition(reader, SIZE_EXCEEDED),
        **_DESCRIBED,
    },
    FaultKind.END_ON_TRANSFER: {
        "how": lambda reader: reader.choice("how", Ending, Ending.CONNECTION),
        "condition": lambda reader: _any_condition(reader, ""),
        "taken": lambda reader: reader.boolean("taken"),
        "ms": _ms(0),
        **_SELECTION,
        **_DESCRIBED,
    },
    FaultKind.SILENT_HANDSHAKE: {
        "step": lambda reader: reader.choice("step", Step, None),
        "ms": _ms(0),
        "heartbeats": lambda reader: reader.boolean("heartbeats"),
    },
    FaultKind.SETTLE_IN_TWO: {"ms": _ms(100)},
    FaultKind.STALL_TRANSFER: {"ms": _ms(1000)},
    FaultKind.DELAY_ACK: {"ms": lambda reader: reader.integer("ms", 1000, 1, MAX_INTEGER)},
    FaultKind.PARTITION_UNAVAILABLE: {
        "partition": lambda reader: reader.integer("partition", 0, 0, MAX_INTEGER),
        "of": lambda reader: reader.integer("of", 16, 1, MAX_INTEGER),
        "condition": _condition,
    },
    FaultKind.ANSWER_OVERSIZED: {"answer": lambda reader: reader.choice("answer", Oversized, None)},
    FaultKind.SHRINK_LIMIT: {"bytes": lambda reader: reader.integer("bytes", 1024, 1, MAX_INTEGER)},
    FaultKind.DISABLE_ENTITY: {"status": lambda reader: reader.choice("status", Status, Status.DISABLED)},
}
