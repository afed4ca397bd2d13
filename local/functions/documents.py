"""From a page of the change feed to the function's argument, by way of the JSON text the host would send."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson
from azure.functions import DocumentList
from azure.functions.cosmosdb import CosmosDBTriggerConverter
from azure.functions.meta import Datum

from local.functions.dates import rewritten

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def to_text(documents: list[dict[str, Any]], *, rewrite_dates: bool) -> str:
    """The documents as one JSON array, compact, system properties included."""
    content = rewritten(documents) if rewrite_dates else documents
    try:
        return orjson.dumps(content).decode()
    except TypeError:
        # Integers beyond 64 bits, and lone surrogates: the host keeps the former, and gRPC replaces the latter.
        return _LONE_SURROGATE.sub("\ufffd", json.dumps(content, ensure_ascii=False, separators=(",", ":")))


def from_text(text: str) -> DocumentList:
    """What the Python worker makes of that text: azure-functions' own converter decodes it."""
    documents = CosmosDBTriggerConverter.decode(Datum(text, "string"), trigger_metadata=None)
    assert documents is not None
    return documents
