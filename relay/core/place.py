"""The place of a document in its feed, if its source gives one, and the version that was delivered."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from relay.core import jsontext

PlaceInFeed = tuple[int, int] | tuple[str, int]
"""A place that compares with others of its partition: an `_lsn` and the order in its commit, or a ULID and 0."""


def version_of(document: Mapping[str, Any]) -> str:
    """Return a digest of a document's content, `_etag` and `_ts` included.

    Another version of it has another one.
    """
    return hashlib.sha256(jsontext.encode(document, sort_keys=True)).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a document in the order of its partition key.

    Attributes:
        lsn: Cosmos DB: the `_lsn` of its transaction, which grows with each commit to a physical partition.
        order: Cosmos DB: its place within that transaction; None if its writer gave it none.
        ulid: SQL: its position in the feed of its shard, as text that sorts.
        shard: SQL: that shard.
        version: If the source gives no place, the version of the document, by its content.
    """

    lsn: int | None = None
    order: int | None = None
    ulid: str | None = None
    shard: int | None = None
    version: str | None = None

    @classmethod
    def from_item(cls, item: Any) -> Place | None:
        """The place that an item of the quarantine has, as `item` made it; None for one of an older version.

        A later version may have written further members: they are ignored, so that its items stop no attempt.
        """
        if not isinstance(item, dict) or not item:
            return None
        return cls(**{each.name: item[each.name] for each in fields(cls) if each.name in item})

    def item(self) -> dict[str, int | str]:
        """Return the known members, for an item of the quarantine."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def number(self) -> int | None:
        """The `_lsn`, or the position in the SQL feed as a number of 128 bits; None if there is neither."""
        return self.lsn if self.ulid is None else int.from_bytes(_ulid(self.ulid), "big")

    @property
    def in_feed(self) -> PlaceInFeed | None:
        """This place as one that compares within its partition; None if the source does not say."""
        if self.ulid is not None:
            return self.ulid, 0
        return None if self.lsn is None else (self.lsn, self.order or 0)

    def is_before(self, other: Place) -> bool:
        """Return True if this place is certainly before the other one; both are of one partition key."""
        if self.ulid is not None and other.ulid is not None:
            return self.ulid < other.ulid
        if self.lsn is None or other.lsn is None:
            return False
        if self.lsn != other.lsn or self.order is None or other.order is None:
            return self.lsn < other.lsn
        return self.order < other.order


class RowPlace(NamedTuple):
    """The place of a row, as the database gives it: every row has one, and few are written as text."""

    shard: int
    ulid: bytes

    @property
    def place(self) -> Place:
        """This place with its position as text that sorts."""
        from outbox_relay.changefeed.ulid import to_text

        return Place(ulid=to_text(self.ulid), shard=self.shard)


def ulid_time(text: str) -> int:
    """Return the time in a position of an SQL feed, in whole seconds since 1970.

    Raises ValueError if it is none.
    """
    from outbox_relay.changefeed.ulid import milliseconds

    return milliseconds(_ulid(text)) // 1000


def _ulid(text: str) -> bytes:
    # An app with an outbox in Cosmos DB does without changefeed.
    from outbox_relay.changefeed.ulid import from_text

    return from_text(text)
