"""The topic of a campaign: the project's own, with locks short enough to expire."""

from __future__ import annotations

import json
from typing import Any

from local.stack.parts import ENTITIES


def entities_document(*, duplicate_detection: bool, window_s: int) -> dict[str, Any]:
    """The project's Config.json with one subscription, locks of 10 seconds, and 1000 deliveries.

    Args:
        duplicate_detection: False removes that safeguard.
        window_s: The duplicate detection window in seconds.
    """
    document: dict[str, Any] = json.loads(ENTITIES.read_text())
    topic = document["UserConfig"]["Namespaces"][0]["Topics"][0]
    topic["Properties"]["RequiresDuplicateDetection"] = duplicate_detection
    topic["Properties"]["DuplicateDetectionHistoryTimeWindow"] = f"PT{window_s}S"
    topic["Subscriptions"] = topic["Subscriptions"][:1]
    topic["Subscriptions"][0]["Properties"] |= {"LockDuration": "PT10S", "MaxDeliveryCount": 1000}
    return document
