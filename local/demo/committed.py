"""What was committed, from Cosmos DB itself: neither the service's word for it nor the relay's."""

from __future__ import annotations

from datetime import datetime

from azure.cosmos.aio import ContainerProxy

from local.demo.tally import Tally

_PAGE = 1000


async def read_committed(container: ContainerProxy, tally: Tally) -> None:
    """Tell the tally of every event document, in the order of the change feed: within a partition key, that of the
    commits.

    Its time is when the service raised it, just before its commit, by the clock of this machine.
    """
    async for document in container.query_items_change_feed(start_time="Beginning", max_item_count=_PAGE):
        if document["type"] == "domainEvent":
            tally.wrote(document, datetime.fromisoformat(document["data"]["createdAt"]).timestamp())
