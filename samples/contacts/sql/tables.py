"""The tables: contacts, their events, and the outbox of the feed of events.

`python -m relay install --create-table` makes the last two, and with them the columns' types and defaults.
"""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, DateTime, Integer, MetaData, Table, Text

_metadata = MetaData()

contact = Table(
    "contact",
    _metadata,
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
    _metadata,
    Column("id", Text, primary_key=True),
    Column("partition_key", Text),
    Column("type", Text),
    Column("action", Text),
    Column("data", JSON),
    Column("created_at", DateTime(timezone=True)),
    Column("sequence", BigInteger),
    Column("traceparent", Text),
    schema="outbox",
)

# Its other columns have defaults.
outbox = Table(
    "outbox:outbox.domain_event",
    _metadata,
    Column("shard_id", Integer),
    Column("id", Text),
    schema="changefeed",
)
