"""Receive the sessions of Azure Service Bus: many at once, each in order, every effect once::

    async def handle(message: Message) -> None:
        async with store.once(message) as arrival:
            if arrival.first:
                ...                                   # the effect, through the store's connection

    async with inbox.connect(connection_string) as client:
        receiver = inbox.Receiver(client, handle, topic="domain-events", subscription="all", sessions=64)
        inbox.stop_on_signals(receiver)
        await receiver.run()

Receiving (`receiver`, `connection`, `options`)
    `connect(connection_string)` or `connect(namespace, credential)`: a client as the receiver needs it.
    `Receiver(client, handler, *, topic, subscription, **options)`, or `queue` instead of the two: `await run()`,
    `stop()`. `Options` lists the options: `sessions`, `prefetch`, `accept_s`, `idle_s`, `hold_s`, `renew_s`,
    `retry_s`, `retry_max_s`, `answer_s`, `grace_s`, `attempts`, `released_s`, `claim_s`.
    `stop_on_signals(receiver)`: call `stop()` at SIGINT or SIGTERM.

Dead letters (`dead_letters`)
    `DeadLetterReceiver(client, handler, *, topic, subscription, **options)`, or `queue`: `await run()` handles
    those that there are, and returns a `DeadLetterReport`: `handled`, and `remainder`, of `Remainder`; `stop()`.

Large events (`contents`)
    `BlobContents(container)`: pass it as `contents` to a receiver, and the bodies that a message only names are
    fetched from Blob Storage and compared with their hash before the handler is called. `Contents`: what another
    one does.

Handling (`messages`, `errors`)
    `Message`: `id`, `key`, `action`, `sequence`, `created_at`, `traceparent`, `body`, `json()`, `properties`,
    `delivery_count`, `sequence_number`, `enqueued_at`, `topic`, `subscription`.
    `DeadLetter(reason, description)`: raise it for messages that can never be handled. After any other exception
    the message is delivered again, after a pause and before its successors.

Parked keys (`parking`)
    `Receiver(…, on_poison="park", parking=store)`: the successors of a message that cannot be handled wait in the
    store, until an operator releases their key. `Parking`: what a store does for that. `ParkedKey`,
    `ParkedMessage`, `Cause`: what it keeps. `Kept`, `Claim`: what it answers. `ClaimLost`, `NotReleased`,
    `NotStorable`: what it raises.

Once, and what is missing (`stores`)
    `Store`: `once(message, *, entity=None)` gives an `Arrival` (`first`, `missing`, `late`, `was_missing`);
    `gaps()` returns a list of `Gap`; `forget(older_than)`.
    `SqliteStore(SqliteConnection(path), *, consumer="default")`;
    `PostgresStore(pool.connection)` and `SqlAlchemyStore(engine)` give an `ArrivalIn`, whose `connection` is in
    the transaction of the block, and so does `SqlServerStore(connection_string)`; that of
    `CosmosStore(container)` is a `CosmosBatch`, and the block may end in `Conflict` or `BatchTooLarge`;
    `MemoryStore()`. `OutsideBlock`: a statement would have become a part of another handler's block, or the
    transaction of a block ended before it.
"""

from __future__ import annotations

from outbox_relay.inbox.connection import connect
from outbox_relay.inbox.contents import BlobContents, Contents
from outbox_relay.inbox.dead_letters import DeadLetterReceiver, DeadLetterReport, Remainder
from outbox_relay.inbox.errors import (
    BatchTooLarge,
    Conflict,
    DeadLetter,
    NotStorable,
    OutsideBlock,
    SessionsNotEnabled,
)
from outbox_relay.inbox.event_loop import stop_on_signals
from outbox_relay.inbox.messages import Message
from outbox_relay.inbox.options import Options
from outbox_relay.inbox.parking import (
    Cause,
    Claim,
    ClaimLost,
    Kept,
    NotReleased,
    ParkedKey,
    ParkedMessage,
    Parking,
)
from outbox_relay.inbox.receiver import Receiver
from outbox_relay.inbox.stores.cosmos import CosmosBatch, CosmosStore
from outbox_relay.inbox.stores.memory import MemoryStore
from outbox_relay.inbox.stores.port import Arrival, ArrivalIn, Gap, Store
from outbox_relay.inbox.stores.servers import PostgresStore, SqlServerConnection, SqlServerStore
from outbox_relay.inbox.stores.sqlalchemy import SqlAlchemyStore
from outbox_relay.inbox.stores.sqlite import SqliteConnection, SqliteStore

__version__ = "0.1.0"

__all__ = [
    "Arrival",
    "ArrivalIn",
    "BatchTooLarge",
    "BlobContents",
    "Cause",
    "Claim",
    "ClaimLost",
    "Conflict",
    "Contents",
    "CosmosBatch",
    "CosmosStore",
    "DeadLetter",
    "DeadLetterReceiver",
    "DeadLetterReport",
    "Gap",
    "Kept",
    "MemoryStore",
    "Message",
    "NotReleased",
    "NotStorable",
    "Options",
    "OutsideBlock",
    "ParkedKey",
    "ParkedMessage",
    "Parking",
    "PostgresStore",
    "Receiver",
    "Remainder",
    "SessionsNotEnabled",
    "SqlAlchemyStore",
    "SqlServerConnection",
    "SqlServerStore",
    "SqliteConnection",
    "SqliteStore",
    "Store",
    "connect",
    "stop_on_signals",
]
