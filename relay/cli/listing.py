"""`python -m relay quarantine list` and `show`, and the lines that show records, parked keys and orders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from relay.cli.holdings import Order, Parked
from relay.cli.records import SHORT_ID, Records
from relay.cli.terminal import ExitCode, Result, table
from relay.holds import ORDER_PREFIX
from relay.quarantine.items import Filter, RecordSummary

SHORT_ORDER = len(ORDER_PREFIX) + SHORT_ID


async def list_records(records: Records, chosen: Filter, limit: int) -> Result:
    """The records in order of arrival, at most `limit`; then the parked partition keys and the pending orders."""
    summaries = await records.find(chosen, limit)
    total = len(summaries) if len(summaries) < limit else await records.count(chosen)
    parked = list((await records.holdings.parked(chosen.partition_key)).values())
    orders = await records.holdings.orders(chosen.partition_key)
    lines = [line for each in _tables(summaries, parked, orders) if each for line in (*each, "")]
    shown = str(total) if total == len(summaries) else f"{len(summaries)} of {total}"
    lines.append(f"{shown} in quarantine")
    data = {
        "total": total,
        "records": [summary.data() for summary in summaries],
        "parked": [each.data() for each in parked],
        "orders": [order.data() for order in orders],
    }
    return Result(ExitCode.OK, data, lines)


async def show_record(records: Records, beginning: str) -> Result:
    """The record whose id begins so, with its whole document."""
    summaries, _ = await records.find_by_ids([beginning])
    document = await records.document(summaries[0]) if summaries else None
    if document is None:
        return Result(ExitCode.FINDINGS, {"missing": [beginning]}, [missing_line(beginning)])
    record = {**summaries[0].data(), "document": document}
    lines = json.dumps(record, ensure_ascii=False, indent=2).split("\n")
    return Result(ExitCode.OK, {"record": record}, lines)


def record_line(summary: RecordSummary) -> str:
    """A record in one line."""
    document = "" if summary.document_id is None else f", document {summary.document_id!r}"
    return (
        f"{summary.id[:SHORT_ID]}  {summary.quarantined_at[:19]}Z  {summary.reason}  "
        f"partition key {summary.partition_key!r}{document}"
    )


def order_line(order: Order) -> str:
    """A pending order in one line."""
    return (
        f"{order.id[:SHORT_ORDER]}  {order.ordered_at[:19]}Z  pending  partition key {order.partition_key!r}, "
        f"document {order.event_id!r}"
    )


def missing_line(identifier: str) -> str:
    """What to say about an id that no record has."""
    return f"{identifier} is not in quarantine"


def _tables(
    summaries: Sequence[RecordSummary], parked: Sequence[Parked], orders: Sequence[Order]
) -> Iterator[list[str]]:
    yield table(
        ("RECORD", "QUARANTINED", "REASON", "PARTITION KEY", "DOCUMENT"),
        [
            (
                each.id[:SHORT_ID],
                _second(each.quarantined_at),
                each.reason,
                each.partition_key,
                each.document_id or "",
            )
            for each in summaries
        ],
    )
    yield table(
        ("PARKED KEY", "SINCE", "BECAUSE OF"),
        [(each.partition_key, _second(each.since), each.because[:SHORT_ID]) for each in parked],
    )
    yield table(
        ("ORDER TO SET ASIDE", "ORDERED", "PARTITION KEY", "DOCUMENT"),
        [(each.id[:SHORT_ORDER], _second(each.ordered_at), each.partition_key, each.event_id) for each in orders],
    )


def _second(moment: str) -> str:
    """ISO 8601 without the fraction of the second."""
    return f"{moment[:19]}Z"
