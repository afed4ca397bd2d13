"""Two Functions hosts against one, where the round trip to Service Bus is the limit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from bench.backlog import Group, Turn
from bench.benchmark import TIMES, Bound, Findings, Live, Plan, Table, Target, median, percent
from bench.outbox import balanced_keys
from bench.testbed import OTHERS

_PARTITIONS = 4
_ACK_DELAY_MS = 10
_JUDGED_SENDERS = 4
_DEFAULT_SENDERS = 32
_PAGE = 100


class Hosts:
    """The benchmark."""

    name = "hosts"
    about = "two Functions hosts against one: four leases, a broker that answers after 10 ms"

    async def run(self, plan: Plan, live: Live) -> Findings:
        findings, rows = Findings(), []
        for senders in plan.pick(quick=(_JUDGED_SENDERS,), full=(_JUDGED_SENDERS, 8, _DEFAULT_SENDERS)):
            one, two = await _compare(senders, plan, live)
            if senders == _JUDGED_SENDERS:
                ratios = tuple(theirs.rate / own.rate for own, theirs in zip(one, two, strict=True))
                name = "two hosts against one, four leases, 10 ms"
                findings.targets.append(Target(name, ratios, TIMES, Bound.AT_LEAST, 1.8))
            rows += [_row(hosts, senders, turns) for hosts, turns in ((1, one), (2, two))]
        findings.tables.append(Table("Two hosts against one", _COLUMNS, tuple(rows), _PROSE))
        return findings


async def _compare(senders: int, plan: Plan, live: Live) -> tuple[list[Turn], list[Turn]]:
    """Alternating turns of one host and of two; both groups are up all the time, one of them idle."""
    turns: dict[int, list[Turn]] = {1: [], 2: []}
    repeats = plan.pick(quick=3, full=7)
    # About two seconds for one host, and half of that for two.
    events = min(2400, senders * plan.pick(quick=120, full=200))
    async with AsyncExitStack() as resources:
        groups = [_group(hosts, senders) for hosts in (1, 2)]
        for group in groups:
            live.step(f"{senders} senders: starting {group.hosts} host(s)")
            # Each host's share of these has at least as many keys as the host has senders.
            warm_up = 2 * group.hosts * max(senders, _PARTITIONS)
            await group.open(resources, plan.scratch / f"{group.hosts}-hosts-{senders}-senders", warm_up=warm_up)
        for repeat in range(repeats):
            for group in groups if repeat % 2 else reversed(groups):
                live.step(f"{group.hosts} host(s) with {senders} senders, {repeat + 1} of {repeats}")
                turn = await group.relay(events)
                turns[group.hosts].append(turn)
                live.rate(turn.rate, "events/s")
    return turns[1], turns[2]


def _group(hosts: int, senders: int) -> Group:
    settings = {
        "RELAY_SENDERS": str(senders),
        "RELAY_MAX_ITEMS": str(_PAGE),
        "RELAY_POLL_DELAY_MS": "500",
    }
    keys = balanced_keys(_PARTITIONS)
    return Group(keys, hosts=hosts, partitions=_PARTITIONS, ack_delay_ms=_ACK_DELAY_MS, settings=settings)


def _row(hosts: int, senders: int, turns: Sequence[Turn]) -> tuple[str, ...]:
    def share(prefix: str) -> str:
        used = [value for turn in turns for name, value in turn.shares.items() if name.startswith(prefix)]
        return percent(sum(used) / len(turns))

    return (
        str(hosts),
        str(senders),
        f"{median([turn.rate for turn in turns]):.0f}",
        f"{hosts * senders / _ACK_DELAY_MS * 1000:.0f}",
        share("host"),
        share("broker"),
        share(OTHERS),
    )


_COLUMNS = (
    "hosts",
    "senders each",
    "events/s",
    "senders / 10 ms",
    "of a core: hosts",
    "of a core: broker",
    "of a core: all others",
)
_PROSE = (
    "Each event has its own key, so every event is a send and a round trip. The backlog is written while the "
    "change feed is blocked, over keys that fill the four partitions equally. Leases are balanced and all links "
    "open before the clock starts. Rates are counted at the topic between 10 % and 90 % of the backlog. The "
    "target's row has few senders, so the round trip limits both: all processes share two cores, and one host "
    "with 32 senders already uses most of a core."
)
