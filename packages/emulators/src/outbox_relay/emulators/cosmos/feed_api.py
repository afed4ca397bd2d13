"""Reading items in bulk without a query: the change feed, and read-feed."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from outbox_relay.emulators.cosmos import charges
from outbox_relay.emulators.cosmos.account import Account
from outbox_relay.emulators.cosmos.changefeed import FeedPosition
from outbox_relay.emulators.cosmos.documents import Item
from outbox_relay.emulators.cosmos.errors import BadRequest, NotFound
from outbox_relay.emulators.cosmos.messages import (
    Reply,
    Request,
    data_headers,
    documents_reply,
    json_page,
    refused_at,
)
from outbox_relay.emulators.cosmos.physical_partitions import Partition
from outbox_relay.emulators.cosmos.scopes import ReadScope
from outbox_relay.emulators.http_requests import whole_number

_INCREMENTAL = "incremental feed"
_SEPARATE_METADATA = "2021-09-15"
"""The wire format of an item beside its metadata: `handleLatestVersionChanges` of the SDK for Java asks for it."""


def read_change_feed(account: Account, request: Request) -> Reply:
    """`GET …/docs` with `A-IM: Incremental Feed`: 200 with a page, or 304 when the reader is up to date."""
    if request.headers["a-im"].lower() != _INCREMENTAL:
        raise BadRequest(
            "The change feed mode of all versions and deletes (A-IM: Full-Fidelity Feed) is not enabled for this "
            "account. Read the change feed in latest version mode (A-IM: Incremental Feed)."
        )
    container = account.container_of(request)
    scope = ReadScope.of_request(container, request)
    partition = scope.partition
    if partition is None:
        if len(container.partitions) > 1:
            raise BadRequest("The change feed needs a partition key range id or a partition key.")
        partition = container.partitions[0]
    with refused_at(container, partition):
        account.check_session(request, partition)
        position = _position(request, partition)
    page = account.feed.read(partition, scope.key_range, position, request.page_size)
    texts = [item.rendered(container.raw_rid, container.self_link, with_lsn=True) for item in page.items]
    if request.headers.get("x-ms-cosmos-changefeed-wire-format-version") == _SEPARATE_METADATA:
        texts = [_beside_metadata(item, text) for item, text in zip(page.items, texts, strict=True)]
    headers = data_headers(container, partition, charges.feed(texts))
    headers["etag"] = f'"{page.number}"'
    if not texts:
        # The .NET SDK's pull model reads the count of every answer, even an empty one.
        return Reply(304, b"", headers | {"x-ms-item-count": "0"})
    return documents_reply(container, texts, headers)


def _beside_metadata(item: Item, text: str) -> str:
    """Return the item, given as JSON, as the current one of a change, with the metadata of latest-version mode."""
    return f'{{"current":{text},"metadata":{{"lsn":{item.lsn},"crts":{item.ts}}}}}'


def read_partition_key_ranges(account: Account, request: Request) -> Reply:
    """`GET …/pkranges`: the physical partitions, or 304. Those that were split are listed only as parents."""
    container = account.container_of(request)
    splits = max(partition.index for partition in container.partitions) + 1 - len(container.partitions)
    etag = f'"{container.number}-{splits}"' if splits else f'"{container.number}"'
    headers = {"etag": etag, "x-ms-request-charge": "1.0", "x-ms-item-count": str(len(container.partitions))}
    if "a-im" in request.headers and request.headers.get("if-none-match") == etag:
        return Reply(304, b"", headers)
    ranges = [
        {
            "_rid": container.rid,
            "id": partition.id,
            "_etag": etag,
            "minInclusive": partition.key_range.minimum,
            "maxExclusive": partition.key_range.maximum,
            "ridPrefix": partition.index,
            "_self": f"{container.self_link}pkranges/{partition.id}/",
            "throughputFraction": 1 / len(container.partitions),
            "status": "online",
            "parents": list(partition.parents),
            "_ts": container.ts,
        }
        for partition in container.partitions
    ]
    return json_page(container.rid, "PartitionKeyRanges", ranges, headers)


def list_conflicts(account: Account, request: Request) -> Reply:
    """`GET …/conflicts`: with a single region there are none."""
    return json_page(account.container_of(request).rid, "Conflicts", [])


def read_conflict(account: Account, request: Request) -> Reply:
    """`GET` or `DELETE …/conflicts/{id}`: NotFound."""
    account.container_of(request)
    raise NotFound()


def _position(request: Request, partition: Partition) -> FeedPosition:
    since = -1
    if modified_since := request.headers.get("if-modified-since"):
        try:
            since = int(parsedate_to_datetime(modified_since).timestamp())
        except ValueError as error:
            raise BadRequest(f"If-Modified-Since is '{modified_since}', which is no HTTP date.") from error
    token = request.headers.get("if-none-match", "").strip('"')
    if token == "*":
        return FeedPosition(partition.lsn, since)
    number = whole_number(token or "0")
    if number is None:
        raise BadRequest(f"The continuation '{token}' was not issued by this change feed.")
    return FeedPosition(number, since)
