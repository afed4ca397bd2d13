"""What was committed, from Cosmos DB itself: neither the service's word for it nor the relay's."""

from __future__ import annotations

from datetime import datetime

from azure.cosmos.aio import ContainerProxy

from local.demo.tally import Tally

_PAGE = 1000


async def read_committed(container: ContainerProxy, tally: Tally) -> None:
    """Tell the tally of every event document: within a partition key in the order of the commits, and within a
    commit in the order that the events state, as the change feed promises none there.

    Its time is when the service raised it, just before its commit, by the clock of this machine.
    """
    feed = container.query_items_change_feed(start_time="Beginning", max_item_count=_PAGE)
    events = [document async for document in feed if document["type"] == "domainEvent"]
    for event in sorted(events, key=lambda event: (event["_lsn"], event["order"])):
        tally.wrote(event, datetime.fromisoformat(event["data"]["createdAt"]).timestamp())
