"""Add up the items that were ordered in an SQLite database: `python consumer.py FILE`, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import os
import sys

from outbox_relay import inbox

SIGNS = {"OrderPlaced": 1, "OrderCancelled": -1}
TABLE = "CREATE TABLE IF NOT EXISTS ordered (item TEXT PRIMARY KEY, quantity INTEGER NOT NULL)"
ADD = """
INSERT INTO ordered VALUES (?, ?)
ON CONFLICT (item) DO UPDATE SET quantity = quantity + excluded.quantity
"""


async def main(file: str) -> None:
    database = inbox.SqliteConnection(file)
    database.execute(TABLE)
    store = inbox.SqliteStore(database)

    async def handle(message: inbox.Message) -> None:
        if message.action not in SIGNS:
            return
        order = message.json()
        async with store.once(message) as arrival:  # the sum and the message's id, or neither
            if arrival.first:
                database.execute(ADD, (order["item"], SIGNS[message.action] * order["quantity"]))
        print("handled" if arrival.first else "repeated", message.id, flush=True)

    async with inbox.connect(os.environ["SERVICEBUS"]) as client:
        receiver = inbox.Receiver(client, handle, topic="domain-events", subscription="all")
        inbox.stop_on_signals(receiver)
        await receiver.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
