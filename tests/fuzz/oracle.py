"""The expected fate of a document, written from the contract and not from the relay."""

from __future__ import annotations

import json
from typing import Any

IGNORED = "ignored"
EVENT = "event"

_MOST_CHARACTERS = 128
_MOST_BYTES = 15_000


def fate(document: dict[str, Any] | None) -> str:
    """`ignored`, `event`, or the reason for quarantine."""
    if document is None or document.get("type") != "domainEvent":
        return IGNORED
    for name, prefix in (("id", "id-"), ("partitionKey", "partition-key-")):
        if name not in document:
            return prefix + "missing"
        if type(document[name]) is not str:
            return prefix + "not-string"
        if document[name] == "":
            return prefix + "empty"
        if len(document[name].encode("utf-16-le", errors="surrogatepass")) > 2 * _MOST_CHARACTERS:
            return prefix + "too-long"
    if type(document.get("data")) is not dict:
        return "data-not-object"
    if type(document["data"].get("action")) is not str:
        return "action-not-string"
    texts = (document["data"]["action"], document["data"].get("createdAt"), document.get("traceparent"))
    if any(
        "\ud800" <= each <= "\udfff"
        for text in (document["id"], document["partitionKey"], *texts)
        if type(text) is str
        for each in text
    ):
        return "property-not-unicode"
    if len("".join(text for text in texts if type(text) is str).encode(errors="surrogatepass")) > _MOST_BYTES:
        return "properties-too-large"
    return EVENT


def read(text: str | bytes) -> Any:
    """JSON, integers of any length kept whole."""
    return json.loads(text)


def kept(text: str) -> str:
    """A JSON text as Cosmos DB keeps it: numbers beyond 64 bits are doubles."""
    return json.dumps(json.loads(text, parse_int=_signed), ensure_ascii=False, separators=(",", ":"))


def as_text(value: Any, *, sort: bool = False) -> str:
    """A value as text, in which 1, 1.0, 0.0 and -0.0 are distinct, and the order of names, unless sorted."""
    return json.dumps(value, sort_keys=sort)


def properties(document: dict[str, Any]) -> dict[str, Any]:
    """The application properties that the contract asks for."""
    wanted = {"type": "domainEvent"}
    if type(document.get("_ts")) is int and -(2**63) <= document["_ts"] < 2**63:
        wanted["cosmosTimestamp"] = document["_ts"]
    if type(document["data"].get("createdAt")) is str:
        wanted["createdAt"] = document["data"]["createdAt"]
    if type(document.get("traceparent")) is str:
        wanted["traceparent"] = document["traceparent"]
    if type(document.get("sequence")) is int and -(2**63) <= document["sequence"] < 2**63:
        wanted["sequence"] = document["sequence"]
    return wanted


def _signed(digits: str) -> int | float:
    number = int(digits)
    return number if -(2**63) <= number < 2**63 else float(number)
