"""Splits and merges of a container's physical partitions, and how they are stored."""

from __future__ import annotations

from outbox_relay.emulators.cosmos.containers import Container
from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.partitioning import PartitionKeyDefinition
from outbox_relay.emulators.cosmos.physical_partitions import (
    MERGE,
    Partition,
    children_of,
    merged,
    replacing,
    replayed,
)
from outbox_relay.emulators.cosmos.storage import Storage


def split_partition(storage: Storage, container: Container, partition: Partition) -> list[Partition]:
    """Replace a partition by two. Each gets its LSN, and the items of half of its keys."""
    cut = container.partition_key.middle(partition.key_range)
    next_index = 1 + max(each.index for each in container.partitions)
    with storage.transaction():
        storage.insert(
            "INSERT INTO splits(container, partition, cut) VALUES(?, ?, ?)",
            (container.number, partition.number, cut),
        )
        numbers = [
            storage.insert(
                "INSERT INTO partitions(container, lsn) VALUES(?, ?)", (container.number, partition.lsn)
            )
            for _ in range(2)
        ]
        children = children_of(partition, cut, numbers, [partition.lsn] * 2, next_index)
        for child in children:
            _move_items(storage, partition, child)
    container.arrange(replacing(container.partitions, [partition], children))
    return children


def merge_partitions(storage: Storage, container: Container, first: Partition, second: Partition) -> Partition:
    """Replace two partitions by one with all of their items. Raises BadRequest unless the second is next.

    Items keep their LSNs, so that readers of either go on where they stood; the next commit's is above both.
    """
    if first.key_range.maximum != second.key_range.minimum:
        raise BadRequest(f"The partitions '{first.id}' and '{second.id}' are not next to each other.")
    next_index = 1 + max(each.index for each in container.partitions)
    lsn = max(first.lsn, second.lsn)
    with storage.transaction():
        storage.insert(
            "INSERT INTO splits(container, partition, cut) VALUES(?, ?, ?)",
            (container.number, first.number, MERGE),
        )
        number = storage.insert("INSERT INTO partitions(container, lsn) VALUES(?, ?)", (container.number, lsn))
        one = merged(first, second, number, lsn, next_index)
        for partition in (first, second):
            _move_items(storage, partition, one)
    container.arrange(replacing(container.partitions, [first, second], [one]))
    return one


def _move_items(storage: Storage, partition: Partition, child: Partition) -> None:
    values = {
        "parent": partition.number,
        "child": child.number,
        "minimum": child.key_range.minimum,
        "maximum": child.key_range.maximum,
    }
    storage.execute(
        "UPDATE unique_values SET partition=:child WHERE partition=:parent AND number IN "
        "(SELECT number FROM items WHERE partition=:parent AND epk>=:minimum AND epk<:maximum)",
        values,
    )
    storage.execute(
        "UPDATE items SET partition=:child WHERE partition=:parent AND epk>=:minimum AND epk<:maximum", values
    )


def stored_partitions(storage: Storage, container: int, partition_key: PartitionKeyDefinition) -> list[Partition]:
    """Return the physical partitions of a container.

    They are the initial ones, with every split and merge applied to them.
    """
    rows = storage.execute(
        "SELECT number, lsn FROM partitions WHERE container=? ORDER BY number", (container,)
    ).fetchall()
    splits = storage.execute(
        "SELECT partition, cut FROM splits WHERE container=? ORDER BY number", (container,)
    ).fetchall()
    return replayed(partition_key, rows, splits)
