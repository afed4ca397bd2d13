"""From a page of the change feed to the function's argument, through the JSON text that the host sends."""

from __future__ import annotations

from typing import Any

from azure.functions import DocumentList, get_binding_registry
from azure.functions.meta import Datum

from outbox_relay.emulators.functions.dates import rewritten
from outbox_relay.emulators.functions.json_text import PageWithheld, written

_BINDING = "cosmosDBTrigger"

__all__ = ["PageWithheld", "from_text", "to_text"]


def to_text(documents: list[dict[str, Any]], *, rewrite_dates: bool) -> str:
    """Return the documents as one JSON array, compact, system properties included.

    Raises PageWithheld if the host cannot parse one of them.
    """
    return written(rewritten(documents) if rewrite_dates else documents)


def from_text(text: str) -> DocumentList:
    """Decode that text as the Python worker does, by the converter that is registered for the binding.

    It is azure-functions' own unless the app has registered another.
    """
    converter = get_binding_registry().get(_BINDING)  # type: ignore[no-untyped-call]
    documents: DocumentList = converter.decode(Datum(text, "string"), trigger_metadata={})
    return documents
