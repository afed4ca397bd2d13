"""What was committed, read from Cosmos DB itself: independent of the service and of the relay."""

from __future__ import annotations

from datetime import datetime

from azure.cosmos.aio import ContainerProxy

from local.demo.tally import Tally

_PAGE = 1000


async def read_committed(container: ContainerProxy, tally: Tally) -> None:
    """Record every event document: in the order of commits within a partition key, and of `order` within a commit,
    because the change feed does not order documents there.

    An event's time is `createdAt`, when the service raised it just before the commit.
    """
    feed = container.query_items_change_feed(start_time="Beginning", max_item_count=_PAGE)
    events = [document async for document in feed if document["type"] == "domainEvent"]
    for event in sorted(events, key=lambda event: (event["_lsn"], event["order"])):
        tally.wrote(event, datetime.fromisoformat(event["data"]["createdAt"]).timestamp())
