"""Throughput: the relay beside its baselines, on the same documents."""

from __future__ import annotations

from collections.abc import Sequence

from bench.baselines.article import Article
from bench.baselines.candidate import Candidate
from bench.baselines.relay import TheRelay
from bench.baselines.sdk import Built, Prebuilt
from bench.baselines.wire import Wire
from bench.benchmark import TIMES, Bound, Findings, Live, Plan, Table, Target, median, percent
from bench.broker import Broker
from bench.chart import RATE
from bench.documents import ARTICLE, TWENTY_KB, TWO_KB, Source, Workload
from bench.turns import Duration, Samples, ratios, take_turns
from relay.settings import Settings

ONE_EACH = Workload(keys=100, per_key=1)
TEN_TEN = Workload(keys=10, per_key=10)
ONE_KEY = Workload(keys=1, per_key=100)
SKEWED = Workload(keys=100, per_key=1, zipf=True)
_SHAPES = (ONE_EACH, TEN_TEN, ONE_KEY)

# The workloads by acknowledgement delay, in ms. Quick: what the targets name. Full: every shape at every delay;
# sizes where encoding limits (0 ms) and where waiting does (10 ms); other document types likewise, on one shape.
_QUICK: dict[int, tuple[Workload, ...]] = {0: _SHAPES, 10: _SHAPES}
_SIZES = tuple(Workload(each.keys, each.per_key, size) for size in (TWO_KB, TWENTY_KB) for each in _SHAPES)
_OTHERS = tuple(Workload(10, 10, ARTICLE, others) for others in (0.5, 0.95))
_FULL: dict[int, tuple[Workload, ...]] = {
    0: (*_SHAPES, SKEWED, *_SIZES, *_OTHERS),
    10: (*_SHAPES, SKEWED, *_SIZES, *_OTHERS),
    30: (*_SHAPES, SKEWED),
}

# Against the article's handler: the delay, the workload, and the lowest acceptable ratio.
_ARTICLE_TARGETS = ((10, ONE_EACH, 20.0), (10, TEN_TEN, 7.0), (0, ONE_KEY, 0.97))
_CEILINGS = ("SDK, prebuilt", "SDK, built")
_CEILING_SHARE = 90.0

Results = dict[tuple[int, str], dict[str, Samples]]


class Throughput:
    """Events a second, with links open and fresh ids."""

    name = "throughput"
    about = "events a second, beside the article's handler, the bare SDK and the bare protocol"

    async def run(self, plan: Plan, live: Live) -> Findings:
        results: Results = {}
        for delay, workloads in plan.pick(quick=_QUICK, full=_FULL).items():
            async with Broker(plan.scratch, ack_delay_ms=delay) as broker:
                results |= await _at(broker, workloads, plan, live)
        return findings_of(results)


def all_candidates(broker: Broker, source: Source, *, full: bool) -> list[Candidate]:
    """The relay and its baselines, not yet open; `full` adds the baselines that explain the others."""
    senders = Settings.from_environment(broker.settings()).senders
    candidates: list[Candidate] = [
        Article(broker.connection_string),
        TheRelay(broker.settings(), source),
        Built(broker.connection_string, senders),
        Prebuilt(broker.connection_string, senders),
    ]
    if full:
        candidates += [Article(broker.connection_string, with_properties=True), Wire(broker.connection_string)]
    return candidates


async def _at(broker: Broker, workloads: Sequence[Workload], plan: Plan, live: Live) -> Results:
    source = Source(plan.seed)
    candidates = all_candidates(broker, source, full=plan.full)
    duration = plan.pick(quick=Duration(0.15, most_invocations=12), full=Duration(0.25, most_invocations=20))
    results: Results = {}
    try:
        for candidate in candidates:
            live.step(f"{broker.ack_delay_ms} ms: opening the links of {candidate.name}")
            await candidate.open()
        for workload in workloads:
            results[broker.ack_delay_ms, workload.name] = await take_turns(
                candidates, workload, broker, source, repeats=5, duration=duration, live=live
            )
        await broker.accepted()
    finally:
        for candidate in candidates:
            await candidate.close()
    return results


def findings_of(results: Results) -> Findings:
    """Targets and tables from samples by delay and workload, then by candidate."""
    against_article = [
        Target(
            f"against the article's handler, {delay} ms, {workload.name}",
            _ratios(results, (delay, workload.name), "article"),
            TIMES,
            Bound.AT_LEAST,
            limit,
        )
        for delay, workload, limit in _ARTICLE_TARGETS
    ]
    return Findings(
        targets=[*against_article, *(_worst_against(results, ceiling) for ceiling in _CEILINGS)],
        tables=[_table(results, delay) for delay in sorted({delay for delay, _ in results})],
    )


def _ratios(results: Results, where: tuple[int, str], baseline: str) -> tuple[float, ...]:
    return ratios(results[where]["relay"], results[where][baseline])


def _worst_against(results: Results, ceiling: str) -> Target:
    """Every workload must reach the share: the target judges the worst one."""
    worst = min(results, key=lambda where: median(_ratios(results, where, ceiling)))
    delay, workload = worst
    return Target(
        f"share of the ceiling ({ceiling}), worst workload",
        tuple(100 * ratio for ratio in _ratios(results, worst, ceiling)),
        "%",
        Bound.AT_LEAST,
        _CEILING_SHARE,
        note=f"{delay} ms {workload}, of {len(results)} workloads",
    )


def _table(results: Results, delay: int) -> Table:
    here = {workload: samples for (when, workload), samples in results.items() if when == delay}
    candidates = list(next(iter(here.values())))
    return Table(
        f"Throughput, acknowledgement after {delay} ms",
        (
            "workload",
            *(f"{candidate}{RATE}" for candidate in candidates),
            *("relay to article", "to SDK built", "to SDK prebuilt"),
            *("relay µs/event", "broker µs/send", "broker's core, relay", "broker's core, prebuilt"),
        ),
        tuple(_row(workload, samples) for workload, samples in here.items()),
    )


def _row(workload: str, samples: dict[str, Samples]) -> tuple[str, ...]:
    relay = samples["relay"]
    baselines = [samples[name] for name in ("article", "SDK, built", "SDK, prebuilt")]
    return (
        workload,
        *(f"{median(each.rates):,.0f}" if each.rates else "cannot" for each in samples.values()),
        *(f"{median(ratios(relay, each)):.2f}" if each.rates else "-" for each in baselines),
        f"{median(relay.processor_us):.0f}",
        f"{median(relay.broker_us):.0f}",
        percent(median(relay.broker_share)),
        percent(median(samples["SDK, prebuilt"].broker_share)),
    )
