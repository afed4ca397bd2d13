"""Operations on sessions: locks, states, lists."""

from __future__ import annotations

from proton import Data, timestamp

from outbox_relay.emulators.servicebus.broker import Limits
from outbox_relay.emulators.servicebus.errors import MessageTooLarge
from outbox_relay.emulators.servicebus.management.request import Request, Result, array

_MAX_DATETIME_MS = 253_402_300_799_999
"""At or beyond .NET's DateTime.MaxValue a request for sessions means all of them."""


def renew_session_lock(request: Request) -> Result:
    until = request.sessions().renew_session_lock(str(request.body["session-id"]), request.owned())
    return {"expiration": timestamp(until)}


def get_session_state(request: Request) -> Result:
    state = request.sessions().get_state(str(request.body["session-id"]), request.owned())
    return {"session-state": state}


def set_session_state(request: Request) -> Result:
    """Set a state no larger than the largest message of the tier ("Message sessions", learn.microsoft.com).

    What the service answers to a larger one is not documented.
    """
    found = request.body.get("session-state")
    state = None if found is None else bytes(found)
    largest = Limits.of(request.broker.tier).session_state
    if state is not None and len(state) > largest:
        raise MessageTooLarge(f"The session state takes {len(state)} bytes; the limit is {largest} bytes.")
    request.sessions().set_state(str(request.body["session-id"]), request.owned(), state)
    return {}


def list_sessions(request: Request) -> Result:
    after, page = int(request.body["last-updated-time"]), request.page()
    found = request.sessions().session_ids(None if after >= _MAX_DATETIME_MS else after)[page]
    if not found:
        return None
    return {"skip": page.start + len(found), "sessions-ids": array(Data.STRING, found)}
