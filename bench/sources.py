"""The SQL source against the Cosmos DB source: the rate of a backlog, and from commit to subscriber."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import chain, cycle, islice, repeat

from bench import latency
from bench.backlog import Group, Turn
from bench.benchmark import TIMES, Bound, Findings, Live, Plan, Table, Target, median, percent
from bench.outbox import balanced_keys
from bench.testbed import OTHERS
from local.stack.environment import Source

_SOURCES = (Source.COSMOS, Source.SQL)
_PARTITIONS = 1
_ACK_DELAY_MS = 10
_KEYS, _PER_KEY = 100, 10
_PAGE = _KEYS * _PER_KEY
_WARM_UP_PAGES = 4
_LATENCY_SHARDS = 4
_POLL_DELAY_MS = 100
_SETTINGS = {"RELAY_MAX_ITEMS": str(_PAGE), "RELAY_POLL_DELAY_MS": "500"}


class Sources:
    """The benchmark."""

    name = "sources"
    about = "the SQL source against the Cosmos DB source: a backlog's rate, and commit to subscriber"

    async def run(self, plan: Plan, live: Live) -> Findings:
        turns = await _compare(plan, live)
        pairs = zip(turns[Source.SQL], turns[Source.COSMOS], strict=True)
        ratios = tuple(sql.rate / cosmos.rate for sql, cosmos in pairs)
        name = "SQL source against Cosmos DB source, 10 ms, 100 keys, pages of 1 000"
        rows = tuple(_row(source, turns[source]) for source in _SOURCES)
        findings = Findings(
            [Target(name, ratios, TIMES, Bound.AT_LEAST, 0.9)],
            [Table("The SQL source beside the Cosmos DB source", _COLUMNS, rows, _PROSE)],
        )
        await _add_latency(findings, plan, live)
        return findings


async def _compare(plan: Plan, live: Live) -> dict[Source, list[Turn]]:
    """Measure turns of one reader of each source, in alternating order."""
    turns: dict[Source, list[Turn]] = {source: [] for source in _SOURCES}
    repeats = plan.pick(quick=3, full=6)
    pages = 10
    async with AsyncExitStack() as resources:
        groups = [_group(source) for source in _SOURCES]
        for group in groups:
            live.step(f"sources: starting {group.source}")
            logs = plan.scratch / f"sources-{group.source}"
            await group.open(resources, logs, warm_up=_WARM_UP_PAGES * _PAGE)
        for turn_number in range(repeats):
            for group in groups if turn_number % 2 else reversed(groups):
                live.step(f"{group.source}, {turn_number + 1} of {repeats}")
                turn = await group.relay(pages * _PAGE)
                turns[group.source].append(turn)
                live.rate(turn.rate, "events/s")
    return turns


def _group(source: Source) -> Group:
    rounds = cycle(islice(balanced_keys(_PARTITIONS), _KEYS))
    keys = chain.from_iterable(repeat(key, _PER_KEY) for key in rounds)
    return Group(keys, source=source, partitions=_PARTITIONS, ack_delay_ms=_ACK_DELAY_MS, settings=_SETTINGS)


async def _add_latency(findings: Findings, plan: Plan, live: Live) -> None:
    found = await latency.measure(Source.SQL, _LATENCY_SHARDS, (_POLL_DELAY_MS,), plan, live)
    (windows,) = found.values()
    medians = tuple(latency.percentile(window.committed, 0.5) for window in windows)
    name = f"commit to subscriber, SQL source, poll delay {_POLL_DELAY_MS} ms, p50"
    findings.targets.append(Target(name, medians, "ms", Bound.AT_MOST, 100.0))
    row = latency.row(_LATENCY_SHARDS, _POLL_DELAY_MS, windows)
    title = "From commit to subscriber, SQL source"
    findings.tables.append(Table(title, latency.COLUMNS, (row,), _LATENCY_PROSE))


def _row(source: Source, turns: Sequence[Turn]) -> tuple[str, ...]:
    def share(name: str) -> str:
        return percent(sum(turn.shares[name] for turn in turns) / len(turns))

    return (
        "Cosmos DB" if source is Source.COSMOS else "PostgreSQL",
        f"{median([turn.rate for turn in turns]):,.0f}",
        *(share(name) for name in ("host 1", "outbox", "broker", OTHERS)),
    )


_COLUMNS = (
    "source",
    "events/s",
    "of a core: host or worker",
    "of a core: outbox",
    "of a core: broker",
    "of a core: all others",
)
_PROSE = (
    "One Functions host on the Cosmos DB emulator and one worker (`python -m relay run`) on PostgreSQL, each with "
    "one partition or shard and its own broker that answers after 10 ms, take turns at the same events: 100 keys "
    "in turn, ten events of each, pages of at most 1 000. A backlog is written while the readers wait: in one "
    "transaction, or while reads of the change feed are blocked. Rates are counted at the topic between 10 % and "
    "90 % of the backlog."
)
_LATENCY_PROSE = (
    "As above, with a transaction in place of the batch: a business row, the event, and its place in the outbox, "
    "in one round trip. The reader looks every 4 ms while events come, so the poll delay matters little. "
    "PostgreSQL runs without `fsync`: writing to a disk would be part of the commit, before the clock starts."
)
