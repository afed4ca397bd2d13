"""The link's action on each frame of its session, in each of its states; every cell is filled.

http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html, parts 2.4, 2.5 and 2.6
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from relay.servicebus.pipelined import frames


class State(Enum):
    """The state of the session and its link. Both are begun at once, so there is no state between."""

    OPENING = "begin and attach were sent, and the peer has not attached"
    REFUSED = "the peer has attached without a target: a detach has to follow, which says why"
    OPEN = "attached"
    OVER = "the link is lost, or was closed"


class Reaction(Enum):
    """The action on a frame."""

    ATTACH = "take the limits of the link; without a target, wait for the detach"
    SESSION_FLOW = "take the session's window; one of a link is of a handle that is not attached"
    FLOW = "take the session's window and the link's credit, send what waits, answer if asked"
    SETTLE = "take the outcomes of deliveries in flight; others are ignored"
    ENDED = "answer, and end the link with the peer's reason"
    VIOLATION = "not in this state by AMQP: end the link, another connection is opened"
    IGNORE = "nothing depends on it any more"


_IN_SESSION: Mapping[State, tuple[Reaction, ...]] = {
    #                BEGIN               ATTACH              FLOW                   TRANSFER
    State.OPENING: (Reaction.VIOLATION, Reaction.ATTACH, Reaction.SESSION_FLOW, Reaction.VIOLATION,
                    # DISPOSITION    DETACH          END
                    Reaction.IGNORE, Reaction.ENDED, Reaction.ENDED),
    State.REFUSED: (Reaction.VIOLATION, Reaction.VIOLATION, Reaction.SESSION_FLOW, Reaction.VIOLATION,
                    Reaction.IGNORE, Reaction.ENDED, Reaction.ENDED),
    State.OPEN: (Reaction.VIOLATION, Reaction.VIOLATION, Reaction.FLOW, Reaction.VIOLATION,
                 Reaction.SETTLE, Reaction.ENDED, Reaction.ENDED),
    State.OVER: (Reaction.IGNORE,) * 7,
}  # fmt: skip

SESSION_FRAMES = (
    frames.BEGIN,
    frames.ATTACH,
    frames.FLOW,
    frames.TRANSFER,
    frames.DISPOSITION,
    frames.DETACH,
    frames.END,
)

REACTIONS: Mapping[State, Mapping[int, Reaction]] = {
    state: dict(zip(SESSION_FRAMES, reactions, strict=True)) for state, reactions in _IN_SESSION.items()
}
"""The table, by state and by the code of a frame on the session's channel."""


class Channel(Enum):
    """Whose channel a frame has come on."""

    OURS = "the channel of the link's session"
    SDK = "the channel of the SDK's session, on which tokens are put"
    OTHER = "a channel of no session that this side has begun"


class Route(Enum):
    """The connection's action on a frame."""

    SESSION = "the link's session takes it"
    BEGIN = "where it answers our begin, it is our session's; the peer's own session is ignored"
    SDK = "the SDK takes it"
    SDK_ENDED = "no token can be renewed any more: end the link"
    CLOSED = "end the link with the peer's reason, and let the SDK answer"
    VIOLATION = "the connection or the session was begun before: end the link"
    IGNORE = "of a session that the peer has begun, and nobody here takes part in"


_ANYWHERE = {frames.OPEN: Route.VIOLATION, frames.CLOSE: Route.CLOSED}
_OF_SDK = {frames.BEGIN: Route.VIOLATION, frames.END: Route.SDK_ENDED}

ROUTES: Mapping[Channel, Mapping[int, Route]] = {
    Channel.OURS: _ANYWHERE | dict.fromkeys(SESSION_FRAMES, Route.SESSION),
    Channel.SDK: _ANYWHERE | dict.fromkeys(SESSION_FRAMES, Route.SDK) | _OF_SDK,
    Channel.OTHER: _ANYWHERE | dict.fromkeys(SESSION_FRAMES, Route.IGNORE) | {frames.BEGIN: Route.BEGIN},
}
"""The table of the connection, by channel and by the code of a frame."""
