"""Throughput: the relay, the article's handler, the SDK's ceiling and the wire's, on the same documents."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import TIMES, Bound, Figure, Findings, Live, Plan, Table, Target
from bench.broker import Broker
from bench.documents import ARTICLE, TWENTY_KB, TWO_KB, Source, Workload
from bench.rivals.article import Article
from bench.rivals.relay import TheRelay
from bench.rivals.rival import Rival
from bench.rivals.sdk import Built, Prebuilt
from bench.rivals.wire import Wire
from bench.turns import Duration, Samples, middle, ratios, take_turns
from relay.settings import Settings

ONE_EACH = Workload(keys=100, per_key=1)
TEN_TEN = Workload(keys=10, per_key=10)
ONE_KEY = Workload(keys=1, per_key=100)
SKEWED = Workload(keys=100, per_key=1, zipf=True)
_SHAPES = (ONE_EACH, TEN_TEN, ONE_KEY)

# Which workloads at which acknowledgement delay, in ms. Quick: what the targets name. Full: every shape at every
# delay; sizes where encoding counts (0 ms) and where waiting does (10 ms); other types the same, on one shape.
_QUICK: dict[int, tuple[Workload, ...]] = {0: (*_SHAPES,), 10: (*_SHAPES,)}
_SIZES = tuple(Workload(each.keys, each.per_key, size) for size in (TWO_KB, TWENTY_KB) for each in _SHAPES)
_OTHERS = tuple(Workload(10, 10, ARTICLE, others) for others in (0.5, 0.95))
_FULL: dict[int, tuple[Workload, ...]] = {
    0: (*_SHAPES, SKEWED, *_SIZES, *_OTHERS),
    10: (*_SHAPES, SKEWED, *_SIZES, *_OTHERS),
    30: (*_SHAPES, SKEWED),
}

# Against the article's handler: the delay, the workload, and at least so many times its rate.
_ARTICLE_TARGETS = ((10, ONE_EACH, 20.0), (10, TEN_TEN, 7.0), (0, ONE_KEY, 0.97))

Results = dict[tuple[int, str], dict[str, Samples]]


class Throughput:
    """Events a second, with links open and ids fresh."""

    name = "throughput"
    about = "events a second beside the article's handler, the SDK's ceiling and the wire's"

    async def run(self, plan: Plan, live: Live) -> Findings:
        results: Results = {}
        for delay, workloads in plan.pick(quick=_QUICK, full=_FULL).items():
            async with Broker(plan.scratch, ack_delay_ms=delay) as broker:
                results |= await _at(broker, workloads, plan, live)
        return findings_of(results)


def all_rivals(broker: Broker, source: Source, *, full: bool) -> list[Rival]:
    """The rivals, on one broker, not yet open; `full` adds those that explain the others."""
    senders = Settings.from_environment(broker.settings()).senders
    rivals: list[Rival] = [
        Article(broker.connection_string),
        TheRelay(broker.settings(), source),
        Built(broker.connection_string, senders),
        Prebuilt(broker.connection_string, senders),
    ]
    if full:
        rivals += [Article(broker.connection_string, with_properties=True), Wire(broker.connection_string)]
    return rivals


async def _at(broker: Broker, workloads: Sequence[Workload], plan: Plan, live: Live) -> Results:
    source = Source(plan.seed)
    rivals = all_rivals(broker, source, full=plan.full)
    results: Results = {}
    try:
        for rival in rivals:
            live.step(f"{broker.ack_delay_ms} ms: opening the links of {rival.name}")
            await rival.open()
        for workload in workloads:
            results[broker.ack_delay_ms, workload.name] = await take_turns(
                rivals,
                workload,
                broker,
                source,
                repeats=5,
                duration=plan.pick(
                    quick=Duration(0.15, most_invocations=12), full=Duration(0.25, most_invocations=20)
                ),
                live=live,
            )
        await broker.accepted()
    finally:
        for rival in rivals:
            await rival.close()
    return results


def findings_of(results: Results) -> Findings:
    """Figures, targets and tables of samples by delay and workload, then rival."""
    findings = Findings()
    for (delay, workload), samples in results.items():
        findings.figures += [
            figure
            for rival, each in samples.items()
            for figure in _figures(f"{delay} ms {workload}/{rival}", each)
        ]
    findings.targets += [
        Target(
            f"against the article's handler, {delay} ms, {workload.name}",
            _ratio(results, (delay, workload.name), "article"),
            Bound.AT_LEAST,
            limit,
            key=f"article-{delay}-{workload.name}",
        )
        for delay, workload, limit in _ARTICLE_TARGETS
    ]
    findings.targets += [_worst_against(results, "SDK, prebuilt"), _worst_against(results, "SDK, built")]
    findings.tables += [_table(results, delay) for delay in sorted({delay for delay, _ in results})]
    return findings


def _figures(name: str, samples: Samples) -> list[Figure]:
    if samples.cannot:
        return []
    return [
        Figure(f"throughput/{name}", "events/s", tuple(samples.rates)),
        Figure(f"processor/{name}", "µs/event", tuple(samples.processor_us), "this process, all its threads"),
        Figure(f"broker/{name}", "µs/send", tuple(samples.broker_us), "the broker's process"),
        Figure(f"broker share/{name}", "% of a core", tuple(100 * share for share in samples.broker_share)),
    ]


def _ratio(results: Results, where: tuple[int, str], rival: str) -> Figure:
    delay, workload = where
    samples = results[where]
    return Figure(f"ratio/{delay} ms {workload}/relay to {rival}", TIMES, ratios(samples["relay"], samples[rival]))


def _worst_against(results: Results, rival: str) -> Target:
    """Every workload must reach the share: the worst one is told."""
    figures = [_ratio(results, where, rival) for where in results]
    worst = min(figures, key=lambda figure: figure.median)
    shares = Figure(
        f"share of the ceiling/{rival}, worst workload",
        "%",
        tuple(100 * value for value in worst.values),
        f"the worst of {len(figures)} workloads: {worst.name.split('/')[1]}",
    )
    return Target(f"against the SDK's ceiling ({rival}), every workload", shares, Bound.AT_LEAST, 90.0, key=rival)


def _table(results: Results, delay: int) -> Table:
    rivals = list(next(samples for (when, _), samples in results.items() if when == delay))
    rows = []
    for (when, workload), samples in results.items():
        if when != delay:
            continue
        relay = samples["relay"]
        rates = [f"{middle(each.rates):,.0f}" if each.rates else "cannot" for each in samples.values()]
        compared = [
            f"{middle(ratios(relay, samples[rival])):.2f}" if samples[rival].rates else "-"
            for rival in ("article", "SDK, built", "SDK, prebuilt")
        ]
        rest = [
            f"{middle(relay.processor_us):.0f}",
            f"{middle(relay.broker_us):.0f}",
            f"{100 * middle(relay.broker_share):.0f} %",
            f"{100 * middle(samples['SDK, prebuilt'].broker_share):.0f} %",
        ]
        rows.append((workload, *rates, *compared, *rest))
    return Table(
        f"Throughput, acknowledgement after {delay} ms",
        (
            "workload",
            *(f"{rival}, events/s" for rival in rivals),
            *("relay to article", "to SDK built", "to SDK prebuilt"),
            *("relay µs/event", "broker µs/send", "broker's core, relay", "broker's core, prebuilt"),
        ),
        tuple(rows),
    )
