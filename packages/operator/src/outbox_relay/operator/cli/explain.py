"""`python -m relay explain`: which rules an event meets, and the message that it becomes. Nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from outbox_relay.operator.backends.backend import OperatorBackend, open_backend
from outbox_relay.operator.cli import generations
from outbox_relay.operator.cli.options import AllStreams, Key, Session, command_app, each_outbox
from outbox_relay.operator.cli.quarantine_admin import QuarantineAdmin, open_records
from outbox_relay.operator.cli.servicebus_checks import STANDARD_BYTES
from outbox_relay.operator.cli.terminal import ExitCode, Result
from relay.config.settings import SERVICEBUS, Settings
from relay.config.streams import APP, read_file
from relay.core.documents import SourceDocument, StoredDocument
from relay.core.errors import StoreError, UsageError
from relay.core.events import Reason, Rejected
from relay.quarantine.items import Filter
from relay.routes.mapping import Long, Moment, Value
from relay.servicebus import encoding, messages
from relay.servicebus.messages import CONTENT_TYPE, Message

EXAMPLES = """\
examples:
  python -m relay explain event.json
  python -m relay explain '/shop 7f3a' --key order-7
  python -m relay explain event.json --stream audit --json

FILE has the document as the outbox stores it, as JSON; in SQL, an object with the columns of the row. It needs
neither COSMOS nor SQL nor SERVICEBUS: without an outbox, the rules of relay.toml as they are count, and an object
with partition_key is a row. With --key, the event is looked for in the outbox by its id, the message id. For each
stream the rule that counts is shown, and the message as it would be sent, with its properties and its body.
Nothing is sent or written."""


app = command_app("explain", EXAMPLES)


@app.default
async def explain(
    event: Annotated[str, Parameter(name="FILE|ID")],
    /,
    *,
    key: Key = None,
    options: AllStreams = AllStreams(),
    session: Session,
) -> Result:
    """Show what becomes of an event: its rule, and its message. Nothing is sent.

    Args:
        event: a file with the document as JSON, or the event's id
        key: the partition key of the event with this id
    """
    stored = _in_file(event) if key is None else None
    if stored is None:
        streams = options.streams(session.environment)
    else:
        absent = _absent(session.environment, stored)
        streams = options.streams({**session.environment, **absent})
        if absent.keys() & _OUTBOXES.keys():
            # The rules of the file count: those of the time of the commit are in the outbox.
            streams = [replace(each, rules=None) for each in streams]
    explained = []
    for stream in streams:
        for source, backend in each_outbox(stream):
            found = await _explained(backend, stored, key, event)
            if key is not None:
                found |= await _aside(backend, key, event)
            explained.append({"stream": stream.stream, **({"source": source} if source else {}), **found})
    missing = [each["outcome"] == "missing" for each in explained]
    if all(missing):
        raise UsageError(
            f"{event!r} of the partition key {key!r} is in no outbox: give the message id, "
            "or a file with the document"
        )
    aside = any(each["outcome"] == "quarantine" for each in explained)
    lines = [line for each in explained for line in _lines(each)]
    return Result(ExitCode.FINDINGS if aside else ExitCode.OK, {"streams": explained}, lines)


_SERVICE_BUS = "Endpoint=sb://127.0.0.1:1/;SharedAccessKeyName=none;SharedAccessKey=bm9uZQ=="
_OUTBOXES = {
    "COSMOS": "AccountEndpoint=https://127.0.0.1:1/;AccountKey=bm9uZQ==",
    "SQL": "postgresql://none@127.0.0.1:1/none",
}
"""Connection strings that lead nowhere: nothing connects to explain a file."""


def _absent(environment: Mapping[str, str], stored: StoredDocument) -> dict[str, str]:
    """Return connections to nowhere for the services that are not set, which the event of a file does not need.

    Raises:
        SettingsError: relay.toml is wrong.
    """
    _, found = read_file(environment, APP)
    connections = {each.connection for each in found.destinations.values()} or {SERVICEBUS}
    missing = {name: _SERVICE_BUS for name in connections if not _is_set(environment, name)}
    kinds = {each.kind.upper() for each in found.sources.values() if each.kind is not None}
    if not kinds and not any(_is_set(environment, name) for name in _OUTBOXES):
        is_row = "partition_key" in stored and "partitionKey" not in stored
        kinds = {"SQL" if is_row else "COSMOS"}
    return missing | {name: _OUTBOXES[name] for name in kinds if not _is_set(environment, name)}


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return any(
        value.strip() for each, value in environment.items() if each == name or each.startswith(f"{name}__")
    )


def _in_file(name: str) -> StoredDocument:
    path = Path(name)
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f"{name!r} is no file: give the path of one, or the id of an event with --key") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{name} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{name} has no JSON object: write one document")
    return found


async def _explained(
    backend: OperatorBackend, stored: StoredDocument | None, key: str | None, identifier: str
) -> dict[str, Any]:
    """Explain what one stream does with the event, in the form that `--json` prints."""
    settings, outbox = backend.settings, backend.open_outbox()
    try:
        if stored is not None:
            document: SourceDocument | None = outbox.document_of(stored)
        else:
            assert key is not None, "an event that no file has is found by its key"
            document = await outbox.current(key, identifier)
        found = {"destination": settings.servicebus.destination}
        if document is None:
            return found | {"outcome": "missing"}
        if settings.rules is not None:
            judged = await generations.judge(backend, outbox, document, key)
            again = replace(judged.settings, rules=None)
            return {"generation": judged.sentence} | await _explained(open_backend(again), stored, key, identifier)
        selection = settings.selection
        if (unmet := selection.unmet(document)) is not None:
            return found | {"outcome": "ignore", "rule": f"no event, as it is not so that {unmet}"}
        route = selection.route_of(document)
        found["rule"] = str(route) if route else "no rule takes it" if selection.routes else "every event"
        if not selection.takes(document):
            return found | {"outcome": "ignore"}
        event = outbox.event_of(document)
    finally:
        await outbox.close()
    if isinstance(event, Rejected):
        return found | {"outcome": "quarantine", "reason": str(event.reason), "detail": event.detail}
    message = messages.contract(settings.policy.cloudevents_source, selection.fields)(event)
    size = len(encoding.encode(message))
    large = {"large": _large(settings)} if size > STANDARD_BYTES else {}
    return found | {"outcome": "publish", "bytes": size, **large, "message": _shown(message)}


async def _aside(backend: OperatorBackend, partition_key: str, identifier: str) -> dict[str, Any]:
    """Return what quarantine says of an event: whatever the rules are, a discarded one is published nowhere."""
    async with open_records(backend) as records:
        try:
            said = await _said(records, partition_key, identifier)
        except StoreError as error:
            said = f"the quarantine cannot be read: {error}"
    return {} if said is None else {"quarantine": said}


async def _said(records: QuarantineAdmin, partition_key: str, identifier: str) -> str | None:
    """Return what counts first of an event: its record, its removed record, a pending order, its parked key.

    Raises StoreError.
    """
    for record in reversed(await records.find(Filter(partition_key=partition_key))):
        if record.document_id == identifier:
            return f"it is in quarantine since {record.quarantined_at}: {record.reason}"
    for each in reversed(await records.removed(partition_key)):
        if each.document_id == identifier:
            why = f": {each.why}" if each.why else ""
            return f"it was {each.outcome} by {each.by} at {each.at}{why}"
    for order in await records.orders(partition_key):
        if order["eventId"] == identifier:
            return f"it was ordered at {order['orderedAt']} that it be set aside at its next attempt"
    parked = (await records.parked(partition_key)).get(partition_key)
    if parked is None:
        return None
    return (
        f"its key is parked since {parked['since']}: if it is not published yet, it is set aside behind the others"
    )


def _large(settings: Settings) -> str:
    """Describe the handling of a message that is larger than its topic or queue takes."""
    if settings.policy.claim_check is None:
        return f"it is set aside as {Reason.MESSAGE_TOO_LARGE}"
    return (
        f"its body goes to the container {settings.policy.claim_check.container!r}, and a message that names it "
        "takes its place"
    )


def _shown(message: Message) -> dict[str, Any]:
    further = message.further
    found: dict[str, Any] = {
        "message_id": message.id,
        "session_id": message.partition_key,
        "partition_key": message.partition_key,
        "subject": message.subject,
        "content_type": CONTENT_TYPE,
    }
    if further is not None:
        found["correlation_id"], found["reply_to"] = further.correlation_id, further.reply_to
        if further.time_to_live_ms is not None:
            found["time_to_live_s"] = further.time_to_live_ms / 1000
        if further.scheduled_ms is not None:
            found["scheduled_enqueue_time"] = _time(further.scheduled_ms)
    found = {name: value for name, value in found.items() if value is not None}
    properties = {name: _property(value) for name, value in message.application_properties.items()}
    # As text: a number may have more digits than any parser keeps.
    return {**found, "application_properties": properties, "body": message.body.decode()}


def _property(value: Value) -> dict[str, Any]:
    if isinstance(value, Moment):
        return {"type": "date", "value": _time(value)}
    kinds = ((str, "string"), (bool, "boolean"), (float, "double"), (Long, "long"))
    return {"type": next(name for each, name in kinds if isinstance(value, each)), "value": value}


def _time(milliseconds: int) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms since 1970"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_OUTCOMES = {
    "publish": "is published",
    "ignore": "is not for this stream",
    "quarantine": "is set aside",
    "missing": "is not in this outbox",
}


def _lines(explained: Mapping[str, Any]) -> Iterator[str]:
    rule = f" ({explained['rule']})" if "rule" in explained else ""
    source = f" of {explained['source']}" if "source" in explained else ""
    what = f"{_OUTCOMES[explained['outcome']]}{rule}"
    yield f"stream {explained['stream']}{source}, to {explained['destination']}: the event {what}"
    if "generation" in explained:
        yield f"  {explained['generation']}"
    if "reason" in explained:
        yield f"  {explained['reason']}: {explained['detail']}"
    if "quarantine" in explained:
        yield f"  {explained['quarantine']}"
    if "large" in explained:
        yield (
            f"  large: the message has {explained['bytes']} bytes. Where the namespace takes less, which is "
            f"{STANDARD_BYTES} on Standard and set by the topic or queue on Premium, {explained['large']}"
        )
    for name, value in explained.get("message", {}).items():
        if name == "application_properties":
            for each, typed in value.items():
                yield f"  {each} = {typed['value']} ({typed['type']})"
        else:
            yield f"  {name}: {value}"
