"""The message contract as files (docs/contract/), as validators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from azure.servicebus import ServiceBusReceivedMessage
from jsonschema_rs import Draft202012Validator, Registry

from tests.support.subscriber import body, properties

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "contract"

SCHEMAS: dict[str, Any] = {
    path.name: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.schema.json")
}
ASYNCAPI: dict[str, Any] = yaml.safe_load((FOLDER / "topic.asyncapi.yaml").read_text(encoding="utf-8"))

# Any base does: the files name each other by relative references.
_BASE = "https://contract.invalid/"
_FILES = Registry([(_BASE + name, content) for name, content in {**SCHEMAS, "asyncapi": ASYNCAPI}.items()])


def validator(reference: str) -> Draft202012Validator:
    """For what `reference` names, such as `event.schema.json#/$defs/data` or `asyncapi#/components/…`."""
    return Draft202012Validator({"$ref": _BASE + reference}, registry=_FILES, validate_formats=True, offline=True)


EVENT = validator("event.schema.json")
WRITTEN = validator("written-event.schema.json")


def at(pointer: str) -> Any:
    """The target of a reference within the AsyncAPI document, `#/…`."""
    found: Any = ASYNCAPI
    for name in pointer.removeprefix("#/").split("/"):
        found = found[name]
    return found


def check_message(message: ServiceBusReceivedMessage, name: str) -> None:
    """Raise unless a received message is as the AsyncAPI document has the message `name`, and has no more."""
    defined = at(f"#/components/messages/{name}")
    headers = properties(message)
    validator("asyncapi" + defined["headers"]["$ref"]).validate(headers)
    undeclared = headers.keys() - declared(defined["headers"]["$ref"])
    assert not undeclared, f"the AsyncAPI document does not have the application properties {undeclared}"
    validator("asyncapi" + defined["x-service-bus-message"]["$ref"]).validate(
        {
            "messageId": message.message_id,
            "sessionId": message.session_id,
            "partitionKey": message.partition_key,
            "subject": message.subject,
            "contentType": message.content_type,
        }
    )
    if "payload" in defined:
        validator(defined["payload"]["schema"]["$ref"]).validate(json.loads(body(message)))
    else:
        assert body(message) == b""


def declared(reference: str) -> set[str]:
    """The names of the application properties that a schema of the AsyncAPI document has."""
    schema = at(reference)
    inherited = (declared(part["$ref"]) for part in schema.get("allOf", ()))
    return set(schema["properties"]).union(*inherited)
