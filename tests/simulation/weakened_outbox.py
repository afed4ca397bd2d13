"""The safeguards of `outbox`, each taken out by replacing one function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from azure.cosmos.aio import ContainerProxy

from outbox_relay.outbox import context, execution, failures
from outbox_relay.outbox.batch import Batch, Operation, SdkOperation
from outbox_relay.outbox.entities import DomainEntity
from outbox_relay.outbox.errors import NotFound, OutboxError
from outbox_relay.outbox.events import Raised, next_moment
from outbox_relay.outbox.execution import read_document


async def _never_applied(container: ContainerProxy, batch: Batch, failure: OutboxError) -> bool:
    return False


async def _ask_by_reading(container: ContainerProxy, batch: Batch, failure: OutboxError) -> bool:
    event = batch.first_event
    if event is None:
        return await execution._is_stored(container, batch, failure)
    try:
        await read_document(container, event.document["id"], event.document["partitionKey"], event.name)
    except NotFound:
        return False
    return True


def _without_etags(self: Operation) -> SdkOperation:
    name, arguments, _ = _as_sdk(self)
    return name, arguments, {}


_as_sdk = Operation.as_sdk


def _keep_sequence(entity: DomainEntity, document: Mapping[str, Any]) -> bool:
    changed: bool = entity._outbox.etag != document["_etag"]
    entity._outbox.etag = document["_etag"]
    return changed


def _new_event_each_time(entity: DomainEntity) -> tuple[Raised, ...]:
    if not entity.is_new:
        return tuple(entity._outbox.raised)
    return (Raised(entity.created_event(), next_moment()), *entity._outbox.raised)


def _forget_token(container: ContainerProxy, headers: Mapping[str, Any]) -> None:
    pass


def _only_429_is_transient(status: int) -> bool:
    return False


def _never_in_doubt(error: Any, failure: OutboxError) -> bool:
    return False


CONTROLS: dict[str, tuple[Any, str, Any, str]] = {
    "asks after a lost answer": (execution, "_is_applied", _never_applied, "written: "),
    "asks by a write, not a read": (execution, "_is_applied", _ask_by_reading, "written: "),
    "a collision may be with itself": (execution, "_may_be_applied", _never_in_doubt, "written: "),
    "replaces the version that was read": (Operation, "as_sdk", _without_etags, "lost update"),
    "numbers continue those that are stored": (context, "adopt_version", _keep_sequence, "are numbered"),
    "a created event keeps its id": (context, "raised_by", _new_event_each_time, "refused as changed"),
    "session tokens are kept": (execution, "keep_session_token", _forget_token, "though it had written"),
    "an open outcome is not a refusal": (failures, "_is_transient", _only_429_is_transient, "written: "),
}
"""By what it does: where it is, what replaces it, and a word of the violation that follows."""
