"""The change feed of the monitored container, one physical partition at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosHttpResponseError

_RANGE_ID = "x-ms-documentdb-partitionkeyrangeid"
_GONE = 410
_SPLIT_SUBSTATUSES = (1002, 1007)  # PartitionKeyRangeGone, CompletingSplit


class PartitionGone(Exception):
    """The physical partition was split or merged."""


class UnknownBounds(Exception):
    """A lease without bounds cannot be replaced by one of its range, as after a merge it would have to be."""


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """A physical partition: the partition key range's id and its bounds in the effective partition key space.

    Or, with `is_part`, a range of effective keys wherever it is held, as a merge leaves it: `part` makes its id.
    The bounds are equal if they are unknown. `parents` are the ids of all partitions that it came from, by splits
    and merges.
    """

    id: str
    minimum: str
    maximum: str
    is_part: bool = False
    parents: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def part(cls, minimum: str, maximum: str) -> PartitionRange:
        """Return a range named as the lease of one in the .NET processor (DocumentServiceLeaseCoreEpk)."""
        return cls(f"{minimum}-{maximum}", minimum, maximum, is_part=True)

    @property
    def is_located(self) -> bool:
        """Return True if its bounds are known."""
        return self.minimum != self.maximum

    def successors(self, partitions: Sequence[PartitionRange]) -> list[PartitionRange]:
        """Return the replacements of this one, after the service has reported that it is gone.

        `partitions` are in order.

        As PartitionSynchronizerCore.HandlePartitionGoneAsync of azure-cosmos-dotnet-v3: a partition that is in
        several becomes these, otherwise its range, even if the partition is still there. A range stays a range,
        and is divided at the partitions' bounds. One without bounds becomes the partitions that name it as parent
        (SDK 3.63.1).

        Raises:
            UnknownBounds: A partition without bounds was merged.
        """
        if not self.is_located:
            children = [each for each in partitions if self.id in each.parents]
            if len(children) == 1:
                raise UnknownBounds(f"the partition of the lease {self.id} was merged, and it has no FeedRange")
            return children
        found = [each for each in partitions if max(self.minimum, each.minimum) < min(self.maximum, each.maximum)]
        if not self.is_part:
            return found if len(found) > 1 else [PartitionRange.part(self.minimum, self.maximum)] * len(found)
        bounds = [self.minimum, *(each.maximum for each in found[:-1]), self.maximum]
        return [PartitionRange.part(*pair) for pair in pairwise(bounds)] if found else []


@dataclass(frozen=True, slots=True)
class Page:
    """Documents in the order of their changes (none: the feed is drained), and the continuation."""

    documents: list[dict[str, Any]]
    continuation: str | None


def _is_gone(error: CosmosHttpResponseError) -> bool:
    return error.status_code == _GONE and error.sub_status in _SPLIT_SUBSTATUSES


class ChangeFeed:
    """Reads the latest-version change feed, with the service's ETags as continuations.

    The .NET processor keeps these in a lease. The Python SDK's longer tokens wrap them.
    """

    def __init__(self, container: ContainerProxy, *, start_from: str | datetime, max_items: int | None) -> None:
        self._container = container
        self._start_from = start_from
        self._max_items = max_items
        self._holders: dict[PartitionRange, str] = {}

    async def ranges(self) -> list[PartitionRange]:
        """Return the container's physical partitions."""
        # The public read_feed_ranges omits the ids, which name the leases.
        connection = self._container.client_connection
        ranges = connection._ReadPartitionKeyRanges(self._container.container_link)
        return [
            PartitionRange(
                range_["id"],
                range_["minInclusive"],
                range_["maxExclusive"],
                parents=frozenset(range_.get("parents") or ()),
            )
            async for range_ in ranges
        ]

    async def read(self, partition: PartitionRange, continuation: str | None) -> Page:
        """Read the next page after `continuation`, or from the trigger's starting point.

        Raises PartitionGone, and what the SDK raises.
        """
        try:
            return await self._read(partition, continuation)
        except CosmosHttpResponseError as error:
            if not _is_gone(error):
                raise
        # Once more, as the .NET SDK does (PartitionKeyRangeGoneRetryPolicy).
        try:
            return await self._read(partition, continuation)
        except CosmosHttpResponseError as error:
            if not _is_gone(error):
                raise
            self._holders.pop(partition, None)
            raise PartitionGone(f"the partition of {partition.id} was split or merged") from error

    async def _read(self, partition: PartitionRange, continuation: str | None) -> Page:
        holder = await self._holder(partition)
        # The pages' own token is that of the client's latest response, which may be another partition's.
        answers: list[tuple[str, str]] = []
        pages = self._container.query_items_change_feed(
            **self._options(partition, holder, continuation),
            response_hook=lambda headers, _: answers.append((headers["etag"], headers["x-ms-session-token"])),
        ).by_page()
        documents: list[dict[str, Any]] = []
        async for page in pages:
            documents = [document async for document in page]
            break
        if not answers:
            return Page(documents, continuation)
        # For a split range, azure-cosmos continues with one of its children, which the session token names.
        etag, session_token = answers[-1]
        answered_by = session_token.partition(":")[0]
        if answered_by != holder:
            self._holders.pop(partition, None)
            raise PartitionGone(f"the partition key range {holder} was split or merged: {answered_by} answered")
        return Page(documents, etag)

    async def _holder(self, partition: PartitionRange) -> str:
        """Return the id of the physical partition that holds this one. Raises PartitionGone if there is none."""
        if not partition.is_part:
            if not partition.is_located:
                raise PartitionGone(f"the partition key range {partition.id} is unknown")
            return partition.id
        if partition not in self._holders:
            for each in await self.ranges():
                if each.minimum <= partition.minimum and partition.maximum <= each.maximum:
                    self._holders[partition] = each.id
                    break
            else:
                raise PartitionGone(f"the range {partition.id} is in several partitions now")
        return self._holders[partition]

    def _options(self, partition: PartitionRange, holder: str, continuation: str | None) -> dict[str, Any]:
        options: dict[str, Any] = {} if self._max_items is None else {"max_item_count": self._max_items}
        if continuation is None:
            bounds = {"min": partition.minimum, "max": partition.maximum}
            inclusive = {"isMinInclusive": True, "isMaxInclusive": False}
            return options | {"feed_range": {"Range": bounds | inclusive}, "start_time": self._start_from}
        # With a bare ETag, azure-cosmos 4.17.1 leaves it to the caller to name the partition.
        headers = {_RANGE_ID: holder}
        if partition.is_part:
            headers |= {
                "x-ms-read-key-type": "EffectivePartitionKeyRange",
                "x-ms-start-epk": partition.minimum,
                "x-ms-end-epk": partition.maximum,
            }
        return options | {"continuation": continuation, "headers": headers}
