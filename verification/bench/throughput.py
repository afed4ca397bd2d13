"""Throughput: the relay against its baselines, on the same documents."""

from __future__ import annotations

from collections.abc import Iterator

from verification.bench.baselines.article import Article
from verification.bench.baselines.candidate import Candidate
from verification.bench.baselines.relay import TheRelay
from verification.bench.baselines.sdk import SENDERS, Prebuilt
from verification.bench.baselines.wire import Wire
from verification.bench.benchmark import TIMES, Bound, Findings, Live, Plan, Table, Target, median, percent
from verification.bench.broker import Broker
from verification.bench.documents import Source, Workload
from verification.bench.turns import Length, Samples, ratios, take_turns

ONE_EACH = Workload(keys=100, per_key=1)
TEN_TEN = Workload(keys=10, per_key=10)
ONE_KEY = Workload(keys=1, per_key=100)
SHAPES = (ONE_EACH, TEN_TEN, ONE_KEY)
DELAYS_MS = (0, 10)

IN_WORDS = {
    ONE_EACH.name: "100 keys with an event each",
    TEN_TEN.name: "10 keys with 10 events each",
    ONE_KEY.name: "one key with 100 events",
}
RELAY, ARTICLE, SAME_MESSAGE, PREBUILT, WIRE = "relay", "article", "article, same message", "SDK, prebuilt", "wire"

Place = tuple[int, str]
"""The acknowledgement delay in ms, and the workload's name."""

Results = dict[Place, dict[str, Samples]]
"""Samples by place, then by candidate."""

# A quick run measures these where a target needs them, and the others everywhere.
_WHERE_NEEDED = {SAME_MESSAGE: {(0, ONE_KEY.name)}, WIRE: {(10, ONE_EACH.name), (10, TEN_TEN.name)}}

# Against what, where, and the lowest acceptable ratio.
_AGAINST = (
    (ARTICLE, "the article's handler", (10, ONE_EACH.name), 40.0),
    (ARTICLE, "the article's handler", (10, TEN_TEN.name), 9.0),
    (SAME_MESSAGE, "the article's handler, same message", (0, ONE_KEY.name), 2.0),
)
_PREBUILT_PERCENT = 60.0
_WIRE_PERCENT = 85.0
_PROCESSOR_US = 200.0


class Throughput:
    """Events a second, with links open and fresh ids."""

    name = "throughput"
    about = "events a second, against the article's handler, the bare SDK and the bare protocol"

    async def run(self, plan: Plan, live: Live) -> Findings:
        results: Results = {}
        for delay in DELAYS_MS:
            async with Broker(plan.scratch, ack_delay_ms=delay) as broker:
                results |= await _at(broker, plan, live)
        return findings_of(results)


async def _at(broker: Broker, plan: Plan, live: Live) -> Results:
    source = Source(plan.seed)
    candidates = _all_candidates(broker, source)
    results: Results = {}
    try:
        for candidate in candidates:
            live.step(f"{broker.ack_delay_ms} ms: opening the links of {candidate.name}")
            await candidate.open()
        for workload in SHAPES:
            place = broker.ack_delay_ms, workload.name
            measured = [each for each in candidates if plan.full or place in _WHERE_NEEDED.get(each.name, {place})]
            results[place] = await take_turns(measured, workload, broker, source, _turn_length(plan), live)
        await broker.accepted()
    finally:
        for candidate in candidates:
            await candidate.close()
    return results


def _turn_length(plan: Plan) -> Length:
    """Return the length of many short turns: enough for an interval of the median that is narrow."""
    return plan.pick(quick=Length(20, 0.2), full=Length(25, 0.25))


def _all_candidates(broker: Broker, source: Source) -> list[Candidate]:
    return [
        TheRelay(broker.settings(), source),
        Article(broker.connection_string),
        Article(broker.connection_string, with_properties=True),
        Prebuilt(broker.connection_string, SENDERS),
        Wire(broker.connection_string),
    ]


def findings_of(results: Results) -> Findings:
    """Return the targets and tables of the samples."""
    return Findings(
        targets=list(_targets(results)),
        tables=[_table(results, delay) for delay in sorted({d for d, _ in results})],
    )


def _targets(results: Results) -> Iterator[Target]:
    for baseline, called, place, limit in _AGAINST:
        values = ratios(results[place][RELAY], results[place][baseline])
        headline = place[0] > 0
        name = f"{_described(place) if headline else _named(place)}, against {called}"
        note = _ceiling(results[place], baseline)
        yield Target(name, values, TIMES, Bound.AT_LEAST, limit, note=note, headline=headline)
    shares = {place: _percent_of(results, place, PREBUILT) for place in results}
    worst = min(shares, key=lambda place: median(shares[place]))
    yield Target(
        "against batches that the SDK sends prebuilt, worst shape",
        shares[worst],
        "%",
        Bound.AT_LEAST,
        _PREBUILT_PERCENT,
        note=_named(worst),
    )
    where = 10, ONE_EACH.name
    name = f"{_named(where)}, against the wire"
    yield Target(name, _percent_of(results, where, WIRE), "%", Bound.AT_LEAST, _WIRE_PERCENT)
    name = f"processor time for an event, all included, {_named(where)}"
    yield Target(name, tuple(results[where][RELAY].processor_us), "µs", Bound.AT_MOST, _PROCESSOR_US)


def _ceiling(samples: dict[str, Samples], baseline: str) -> str:
    """Return the result of the wire alone against the baseline, if it was measured."""
    if WIRE not in samples:
        return ""
    return f"the wire alone: {median(ratios(samples[WIRE], samples[baseline])):.3g} {TIMES}"


def _described(place: Place) -> str:
    delay, workload = place
    return f"{IN_WORDS[workload]}, {delay} ms"


def _named(place: Place) -> str:
    delay, workload = place
    return f"{workload}, {delay} ms"


def _percent_of(results: Results, place: Place, baseline: str) -> tuple[float, ...]:
    return tuple(100 * ratio for ratio in ratios(results[place][RELAY], results[place][baseline]))


def _table(results: Results, delay: int) -> Table:
    here = {workload: samples for (at, workload), samples in results.items() if at == delay}
    candidates = [
        name for name in (ARTICLE, SAME_MESSAGE, RELAY, PREBUILT, WIRE) if any(name in s for s in here.values())
    ]
    return Table(
        f"Events a second, acknowledgement after {delay} ms",
        ("workload", *candidates, "relay, µs/event", "broker's core: relay", "broker's core: prebuilt"),
        tuple(_row(workload, samples, candidates) for workload, samples in here.items()),
    )


def _row(workload: str, samples: dict[str, Samples], candidates: list[str]) -> tuple[str, ...]:
    return (
        workload,
        *(f"{median(samples[name].rates):,.0f}" if name in samples else "-" for name in candidates),
        f"{median(samples[RELAY].processor_us):.0f}",
        *(percent(median(samples[name].broker_share)) for name in (RELAY, PREBUILT)),
    )
