"""The tables: contacts, their events, and the outbox of the feed of events."""

from __future__ import annotations

from zlib import crc32

from sqlalchemy import JSON, BigInteger, Boolean, Column, DateTime, Integer, MetaData, Table, Text, func

EVENT_TABLE = "outbox.domain_event"

metadata = MetaData()

contact = Table(
    "contact",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False, comment="The number of the commit that stored it."),
    Column("sequence", BigInteger, nullable=False, comment="The number of its last event."),
    Column("deleted", Boolean, nullable=False),
    # Not jsonb, which cannot hold the character U+0000.
    Column("data", JSON, nullable=False),
    schema="contacts",
)

domain_event = Table(
    "domain_event",
    metadata,
    Column("id", Text, primary_key=True),
    Column("partition_key", Text, nullable=False),
    Column("action", Text),
    Column("data", JSON, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("traceparent", Text),
    Column("sequence", BigInteger),
    Column("type", Text, nullable=False, server_default="domainEvent"),
    schema="outbox",
)

# Made by changefeed.setup_feed, hence without the metadata of the others. Its other columns have defaults.
outbox = Table(
    f"outbox:{EVENT_TABLE}",
    MetaData(),
    Column("shard_id", Integer, nullable=False),
    Column("id", Text, nullable=False),
    schema="changefeed",
)


def shard_of(partition_key: str, shards: int) -> int:
    """The shard of every event of this key. With another number of shards, a key's events lose their order."""
    return crc32(partition_key.encode()) % shards
