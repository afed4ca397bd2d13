"""The topics and queues of a campaign: the project's own and others, with locks short enough to expire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from local.chaos.streams import DEFAULT, DESTINATIONS, Destination
from local.stack.parts import ENTITIES

_RECEIVING = {"LockDuration": "PT10S", "MaxDeliveryCount": 1000}


def entities_document(
    destinations: Sequence[Destination] = DESTINATIONS[:1], *, duplicate_detection: bool, window_s: int
) -> dict[str, Any]:
    """Return the project's Config.json with one subscription, locks of 10 seconds, and 1000 deliveries.

    Args:
        destinations: Further topics and queues are like its topic.
        duplicate_detection: False removes that safeguard.
        window_s: The duplicate detection window in seconds.
    """
    document: dict[str, Any] = json.loads(ENTITIES.read_text())
    namespace = document["UserConfig"]["Namespaces"][0]
    topic = namespace["Topics"][0]
    topic["Properties"]["RequiresDuplicateDetection"] = duplicate_detection
    topic["Properties"]["DuplicateDetectionHistoryTimeWindow"] = f"PT{window_s}S"
    topic["Subscriptions"] = topic["Subscriptions"][:1]
    receiving = topic["Subscriptions"][0]["Properties"]
    receiving |= _RECEIVING
    for each in destinations:
        if each.is_queue:
            namespace["Queues"].append({"Name": each.entity, "Properties": {**topic["Properties"], **receiving}})
        elif each.name != DEFAULT:
            namespace["Topics"].append({**topic, "Name": each.entity})
    return document
