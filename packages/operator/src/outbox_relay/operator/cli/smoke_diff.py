"""Compares a message with the stored document, value for value, and names a remedy for each difference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage

from relay.backends.canary import DATES
from relay.core.documents import Mapped, SourceDocument
from relay.routes.mapping import Long, Moment
from relay.servicebus.messages import CONTENT_TYPE

_SHOWN_CHARACTERS = 60

DATE_REMEDY = (
    "Dates were rewritten on the way: set extensions.cosmosDB.serializerSettings.dateParseHandling to None in the "
    "host.json of the deployed app, with an extension bundle of 4.28.0 or later, and deploy it again."
)
BODY_REMEDY = (
    "The body is not the stored data: check that the deployed app is this version of the relay, and that only the "
    "relay sends to the topic."
)
PROPERTY_REMEDY = (
    "The message's properties do not follow the contract: check that the deployed app is this version of the "
    "relay, with the same settings (RELAY_MESSAGE_FORMAT, RELAY_CLOUDEVENTS_SOURCE)."
)

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs: its path, the stored and the received value as JSON text, and the remedy."""

    path: str
    stored: str
    arrived: str
    remedy: str

    def data(self) -> dict[str, str]:
        return {"path": self.path, "stored": self.stored, "arrived": self.arrived}


def compare(
    document: SourceDocument, message: ServiceBusReceivedMessage, cloudevents_source: str | None
) -> list[Difference]:
    """Return every difference between a stored document and its message, according to the message contract."""
    fields, mapped = document.fields, document.mapped or Mapped()
    expected = {
        "message_id": fields["id"],
        "session_id": fields["partitionKey"],
        "partition_key": fields["partitionKey"],
        "subject": document.action,
        "content_type": CONTENT_TYPE,
        # Times are compared nowhere: the service counts them from its own clock.
        **{name: value for name, value in mapped.message.items() if isinstance(value, str)},
    }
    arrived = {name: getattr(message, name) for name in expected}
    own = _expected_properties(document, cloudevents_source)
    properties = {_text(name): _text(value) for name, value in (message.application_properties or {}).items()}
    return [
        *differences(expected, arrived, "message", PROPERTY_REMEDY),
        *differences(own, properties, "application_properties", PROPERTY_REMEDY),
        *_compare_body(document, message),
    ]


def _compare_body(document: SourceDocument, message: ServiceBusReceivedMessage) -> list[Difference]:
    raw = b"".join(message.body)
    try:
        arrived = json.loads(raw)
    except ValueError:
        return [Difference("body", "JSON", f"{len(raw)} bytes that are not", BODY_REMEDY)]
    return differences(document.fields["data"], arrived, "data")


def _expected_properties(document: SourceDocument, cloudevents_source: str | None) -> dict[str, Any]:
    fields, created_at = document.fields, document.created_at
    own = {"type": fields["type"], "createdAt": created_at}
    if not document.is_row and "_ts" in document.stored:
        own["cosmosTimestamp"] = document.stored["_ts"]
    # An SQL outbox may have no column for it.
    own |= {"traceparent": fields["traceparent"]} if "traceparent" in fields else {}
    if cloudevents_source is not None:
        own |= {
            "cloudEvents:specversion": "1.0",
            "cloudEvents:id": fields["id"],
            "cloudEvents:source": cloudevents_source,
            "cloudEvents:type": document.action,
            "cloudEvents:partitionkey": fields["partitionKey"],
            "cloudEvents:time": created_at,
        }
        own |= {"cloudEvents:traceparent": fields["traceparent"]} if "traceparent" in fields else {}
    properties = (document.mapped or Mapped()).properties
    return own | {name: int(each) if type(each) in (Long, Moment) else each for name, each in properties.items()}


def differences(stored: Any, arrived: Any, path: str, remedy: str = BODY_REMEDY) -> list[Difference]:
    """Return the differences between two JSON values.

    1, 1.0 and true are different values, and so are 0.0 and -0.0.
    """
    if isinstance(stored, Mapping) and isinstance(arrived, Mapping):
        return [
            difference
            for name in [*stored, *(name for name in arrived if name not in stored)]
            for difference in differences(
                stored.get(name, _ABSENT), arrived.get(name, _ABSENT), f"{path}.{name}", remedy
            )
        ]
    if isinstance(stored, list) and isinstance(arrived, list) and len(stored) == len(arrived):
        return [
            difference
            for place, (one, other) in enumerate(zip(stored, arrived, strict=True))
            for difference in differences(one, other, f"{path}[{place}]", remedy)
        ]
    if type(stored) is type(arrived) and repr(stored) == repr(arrived):
        return []
    return [Difference(path, _shown(stored), _shown(arrived), DATE_REMEDY if _is_date(stored, path) else remedy)]


def _is_date(stored: Any, path: str) -> bool:
    return isinstance(stored, str) and (stored in DATES.values() or path.endswith(".createdAt"))


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
