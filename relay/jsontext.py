"""JSON text of what came as JSON text, value for value."""

from __future__ import annotations

import json
from typing import Any

import orjson


def encode(value: Any, *, sort_keys: bool = False) -> bytes:
    """Compact UTF-8 JSON.

    orjson nests 254 levels at most. Cosmos DB takes 128, so that is the rule; a document that comes deeper all
    the same is encoded by the standard library, rather than held up for ever.
    """
    try:
        # A copy of the right size: orjson (3.13) gives its text in the buffer it wrote to, often ten times as
        # large, and the bodies of all batches under way are held at once.
        return bytes(memoryview(orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)))
    except orjson.JSONEncodeError:
        # In ASCII, as a lone surrogate has an escape in JSON and no bytes in UTF-8.
        return json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys).encode()
