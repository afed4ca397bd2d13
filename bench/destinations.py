"""Two destinations against one: an app that publishes each event of its outbox to two topics, and one to one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import chain, cycle, islice, repeat
from pathlib import Path

from bench.backlog import Group, Turn
from bench.benchmark import TIMES, Bound, Findings, Live, Plan, Table, Target, median, percent
from bench.outbox import balanced_keys
from bench.testbed import OTHERS
from local.stack.environment import TOPIC
from relay.settings import FILE_VARIABLE

_PARTITIONS = 4
_ACK_DELAY_MS = 10
_KEYS, _PER_KEY = 100, 10
_PAGE = _KEYS * _PER_KEY
_SECOND = "second"
_ROUTES = f"""
[destinations.{_SECOND}]
topic = "{_SECOND}"

[[routes]]
to = ["default", "{_SECOND}"]
"""


class Destinations:
    """The benchmark."""

    name = "destinations"
    about = "two topics, with a stream for each, against one: what an event costs that is sent"

    async def run(self, plan: Plan, live: Live) -> Findings:
        one, two = await _compare(plan, live)
        ratios = tuple(theirs.rate / own.rate for own, theirs in zip(one, two, strict=True))
        name = "two destinations against one, for each event that is sent"
        rows = tuple(_row(topics, turns) for topics, turns in ((1, one), (2, two)))
        return Findings(
            [Target(name, ratios, TIMES, Bound.AT_LEAST, 0.95)],
            [Table("Two destinations against one", _COLUMNS, rows, _PROSE)],
        )


async def _compare(plan: Plan, live: Live) -> tuple[list[Turn], list[Turn]]:
    """Alternate turns of an app with one destination and of one with two; both are up all the time."""
    turns: dict[int, list[Turn]] = {1: [], 2: []}
    repeats = plan.pick(quick=3, full=7)
    pages = plan.pick(quick=12, full=20)
    async with AsyncExitStack() as resources:
        groups = {topics: _group(topics, plan.scratch) for topics in turns}
        for topics, group in groups.items():
            live.step(f"starting an app with {topics} destination(s)")
            await group.open(resources, plan.scratch / f"{topics}-destinations", warm_up=_PARTITIONS * _PAGE)
        for turn_number in range(repeats):
            order = list(groups.items())
            for topics, group in order if turn_number % 2 else reversed(order):
                live.step(f"{topics} destination(s), {turn_number + 1} of {repeats}")
                turn = await group.relay(pages * _PAGE)
                turns[topics].append(turn)
                live.rate(turn.rate, "events/s")
    return turns[1], turns[2]


def _group(topics: int, scratch: Path) -> Group:
    rounds = cycle(islice(balanced_keys(_PARTITIONS), _KEYS))
    keys = chain.from_iterable(repeat(key, _PER_KEY) for key in rounds)
    settings = {"RELAY_MAX_ITEMS": str(_PAGE), "RELAY_POLL_DELAY_MS": "500"}
    if topics == 2:
        routes = scratch / "relay.toml"
        routes.write_text(_ROUTES, encoding="utf-8")
        settings[FILE_VARIABLE] = str(routes)
    return Group(
        keys,
        partitions=_PARTITIONS,
        ack_delay_ms=_ACK_DELAY_MS,
        settings=settings,
        topics=(TOPIC, _SECOND)[:topics],
    )


def _row(topics: int, turns: Sequence[Turn]) -> tuple[str, ...]:
    def share(name: str) -> str:
        return percent(sum(turn.shares[name] for turn in turns) / len(turns))

    rate = f"{median([turn.rate for turn in turns]):,.0f}"
    return str(topics), rate, *(share(name) for name in ("host 1", "outbox", "broker", OTHERS))


_COLUMNS = (
    "destinations",
    "events sent/s",
    "of a core: host",
    "of a core: outbox",
    "of a core: broker",
    "of a core: all others",
)
_PROSE = (
    "A Functions host whose app has one topic, and one whose app has two and publishes each event to both, take "
    "turns at the same events: 100 keys in turn, ten events of each, four partitions, pages of at most 1 000, a "
    "broker that answers after 10 ms. An event that goes to two topics counts as two. Each stream reads the "
    "outbox by itself, and the streams of an app share its worker: where the worker's core is the limit, two "
    "streams together send as many events a second as one. Rates are counted at the topics between 10 % and 90 % "
    "of the backlog."
)
