"""docs/contract/event.schema.json accepts what the relay publishes, and refuses what it quarantines as invalid."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given

from relay.backends.cosmos.source import event_of
from relay.core.documents import SourceDocument
from relay.core.events import MAX_KEY_LENGTH, MAX_PROPERTIES_BYTES, Reason, Rejected
from tests.fuzz.budget import DOCUMENTS, trying
from tests.fuzz.documents import batches
from tests.support.contract import EVENT

_DOCUMENTS_OF_AN_EXAMPLE = 80


def _with(**changes: Any) -> str:
    base = {"id": "e1", "partitionKey": "k", "type": "domainEvent", "data": {"action": "A"}}
    return json.dumps([{name: value for name, value in (base | changes).items() if value is not ...}])


def inexpressible(document: dict[str, Any], reason: Reason) -> bool:
    """Return True if the schema's `$comment` says that it cannot refuse this document for this reason."""
    keys = {Reason.ID_TOO_LONG: "id", Reason.PARTITION_KEY_TOO_LONG: "partitionKey"}
    if reason in keys:
        # More than 128 UTF-16 units in no more than 128 characters.
        return len(document[keys[reason]]) <= MAX_KEY_LENGTH
    if reason is Reason.PROPERTY_NOT_UNICODE:
        return True
    if reason is not Reason.PROPERTIES_TOO_LARGE:
        return False
    texts = (document["data"]["action"], document["data"].get("createdAt"), document.get("traceparent"))
    return all(len(text) <= MAX_PROPERTIES_BYTES for text in texts if isinstance(text, str))


@trying(DOCUMENTS // _DOCUMENTS_OF_AN_EXAMPLE)
@given(batches())
@example(_with(id="x" * 128, partitionKey="鍵" * 128))
@example(_with(id=7))
@example(_with(id=...))
@example(_with(partitionKey=...))
@example(_with(id="😀" * 64, partitionKey="😀" * 64))
@example(_with(id="😀" * 65))
@example(_with(id="😀" * 129))
@example(_with(partitionKey="😀" * 65))
@example(_with(data={"action": "x" * 15_000}))
@example(_with(data={"action": "x" * 15_001}))
@example(_with(data={"action": "x", "createdAt": "é" * 7_500}))
@example(_with(data={"action": "x", "createdAt": "x" * 15_001}, traceparent=7))
@example(_with(traceparent="x" * 15_001))
@example(_with(traceparent=["x" * 20_000], sequence="x", order=None, ttl="soon"))
@example(_with(data=...))
@example(_with(data={}))
@example(_with(id=""))
@example(_with(partitionKey=None))
def test_the_schema_judges_documents_as_the_relay_does(batch: str) -> None:
    for document in json.loads(batch):
        if document is None or document.get("type") != "domainEvent":
            continue
        outcome = event_of(SourceDocument.plain(document))
        if not isinstance(outcome, Rejected):
            EVENT.validate(document)
        elif not inexpressible(document, outcome.reason):
            assert not EVENT.is_valid(document), f"the schema accepts what the relay refuses: {outcome}"
