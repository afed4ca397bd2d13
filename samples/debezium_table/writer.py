"""Store an order and its event in one transaction: `python writer.py ITEM QUANTITY`."""

from __future__ import annotations

import os
import sys
from uuid import UUID, uuid4

import psycopg
from psycopg.types.json import Json

ORDER = "insert into shop.customer_order (id, item, quantity) values (%s, %s, %s)"
EVENT = """
insert into shop.outbox_event (id, aggregatetype, aggregateid, type, payload)
values (%s, 'order', %s, 'OrderPlaced', %s)
"""


def place(connection: psycopg.Connection, item: str, quantity: int) -> UUID:
    """Place an order; returns the id of its event."""
    order, event = uuid4(), uuid4()
    with connection.transaction():
        connection.execute(ORDER, (order, item, quantity))
        connection.execute(EVENT, (event, str(order), Json({"item": item, "quantity": quantity})))
    return event


if __name__ == "__main__":
    with psycopg.connect(os.environ["SQL"]) as connection:
        print(place(connection, sys.argv[1], int(sys.argv[2])))
