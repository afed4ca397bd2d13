"""`python -m relay quarantine discard`: removes records for good, and withdraws pending orders."""

from __future__ import annotations

from relay.cli.holdings import Order
from relay.cli.listing import SHORT_ORDER, missing_line, order_line, record_line
from relay.cli.records import Records
from relay.cli.terminal import ExitCode, Result, Terminal
from relay.errors import UsageError
from relay.holds import ORDER_PREFIX
from relay.quarantine.items import RecordSummary

_LISTED_WHEN_ASKING = 10


async def discard(
    records: Records,
    chosen: list[RecordSummary],
    orders: list[Order],
    missing: list[str],
    terminal: Terminal,
    *,
    ask: bool,
) -> Result:
    """Remove records and orders; unpark the keys that have no record left.

    Args:
        records: The quarantine.
        chosen: The records to remove.
        orders: The orders to withdraw.
        missing: The ids that were asked for and do not exist.
        terminal: Where to ask, and to show progress.
        ask: Whether to ask first, if there is anything to remove.

    Raises:
        ServiceError: The quarantine container cannot be read or written.
    """
    if ask and (chosen or orders) and not _confirmed(chosen, orders, terminal):
        data = {"discarded": [], "withdrawn": [], "unparked": [], "missing": missing, "refused": True}
        return Result(ExitCode.FINDINGS, data, ["Nothing was discarded."])
    progress = terminal.progress("discarded", len(chosen))
    for number, summary in enumerate(chosen, start=1):
        await records.remove(summary)
        progress.update(number)
    if chosen:
        progress.finish(len(chosen))
    for order in orders:
        await records.holdings.withdraw(order)
    unparked, parked = await _unpark(chosen, records)
    lines = [f"discarded {len(chosen)}"] if chosen or not orders else []
    lines += [f"withdrew the order {order.id[:SHORT_ORDER]}" for order in orders]
    lines += [f"partition key {key!r} is no longer parked" for key in unparked]
    lines += [f"partition key {key!r} stays parked until its other records are released" for key in parked]
    lines += [missing_line(identifier) for identifier in missing]
    data = {
        "discarded": [summary.id for summary in chosen],
        "withdrawn": [order.id for order in orders],
        "unparked": unparked,
        "missing": missing,
        "refused": False,
    }
    return Result(ExitCode.FINDINGS if missing else ExitCode.OK, data, lines)


async def find_orders(ids: list[str], records: Records) -> tuple[list[Order], list[str], list[str]]:
    """The pending orders that `ids` name; the ids that name records; the ids of orders that do not exist.

    Raises:
        UsageError: More than one order has an id that begins so.
        ServiceError: The quarantine container cannot be read.
    """
    of_orders = [identifier for identifier in ids if identifier.startswith(ORDER_PREFIX)]
    of_records = [identifier for identifier in ids if identifier not in of_orders]
    if not of_orders:
        return [], of_records, []
    pending = await records.holdings.orders()
    found: dict[tuple[str, str], Order] = {}
    missing = []
    for beginning in of_orders:
        matching = [order for order in pending if order.id.startswith(beginning)]
        if len(matching) > 1:
            raise UsageError(f"{len(matching)} orders have an id that begins with {beginning!r}: give more of it")
        found |= {(order.partition_key, order.id): order for order in matching}
        missing += [] if matching else [beginning]
    return list(found.values()), of_records, missing


async def _unpark(discarded: list[RecordSummary], records: Records) -> tuple[list[str], list[str]]:
    """Unpark the keys that have no record left; returns them, and those that are still parked."""
    unparked: list[str] = []
    parked: list[str] = []
    if discarded:
        keys = {summary.partition_key for summary in discarded}
        for key in await records.holdings.parked():
            if key in keys:
                (unparked if await records.holdings.unpark(key) else parked).append(key)
    return unparked, parked


def _confirmed(chosen: list[RecordSummary], orders: list[Order], terminal: Terminal) -> bool:
    for summary in chosen[:_LISTED_WHEN_ASKING]:
        terminal.note(record_line(summary))
    if len(chosen) > _LISTED_WHEN_ASKING:
        terminal.note(f"and {len(chosen) - _LISTED_WHEN_ASKING} more")
    for order in orders:
        terminal.note(order_line(order))
    if not chosen:
        return terminal.confirm(f"Withdraw {len(orders)} order(s)?")
    return terminal.confirm(f"Discard {len(chosen)} record(s) for good?")
