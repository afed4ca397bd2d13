"""The figures as one picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from bench.benchmark import TIMES, Bound, Figure, Target
from bench.report import shown

mpl.use("Agg")

from matplotlib import pyplot as plt

_THROUGHPUT = re.compile(r"throughput/(?P<delay>\d+) ms (?P<workload>\d+x\d+|zipf \d+)/(?P<rival>.+)")
_SWEEP = re.compile(r"sweep/(?P<delay>\d+) ms, (?P<senders>\d+) senders")
_COLOURS = {
    "article": "#9aa0a6",
    "relay": "#d1495b",
    "SDK, built": "#66a182",
    "SDK, prebuilt": "#2e6f95",
    "wire": "#3d405b",
}
_FURTHEST = 1000.0

# The same figures give the same file, byte for byte; text stays text. Any, as the stub wants names as literals.
_STYLE: Any = {
    "svg.hashsalt": "outbox-relay",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(figures: Sequence[Figure], targets: Sequence[Target], path: Path) -> None:
    """Write an SVG: targets, throughput by delay and, where they were measured, the senders' curves."""
    throughput = [(found.groupdict(), each) for each in figures if (found := _THROUGHPUT.fullmatch(each.name))]
    sweep = [(found.groupdict(), each) for each in figures if (found := _SWEEP.fullmatch(each.name))]
    delays = sorted({int(where["delay"]) for where, _ in throughput})
    panels = 1 + len(delays) + bool(sweep)
    heights = [1.4 + 0.3 * len(targets), *[3.4] * (panels - 1)]
    with mpl.rc_context(_STYLE):
        drawing = plt.figure(figsize=(10, sum(heights)))
        parts = drawing.subfigures(panels, 1, height_ratios=heights, squeeze=False)[:, 0]
        axes = [part.subplots() for part in parts]
        # Fixed, in inches: a layout engine places things a hair differently each time.
        for number, (part, height) in enumerate(zip(parts, heights, strict=True)):
            left = 0.08 if number else 0.45
            part.subplots_adjust(left=left, right=0.97, top=1 - 0.35 / height, bottom=0.65 / height)
        _draw_targets(axes[0], targets)
        for axis, delay in zip(axes[1:], delays, strict=False):
            here = [(where, each) for where, each in throughput if int(where["delay"]) == delay]
            _draw_throughput(axis, here, delay)
        if sweep:
            _draw_sweep(axes[-1], sweep)
        drawing.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(drawing)


def _draw_targets(axis: Any, targets: Sequence[Target]) -> None:
    """Each as how far it is beyond its limit: to the right of the line it is met."""
    margins = [_margin(target) for target in targets]
    colours = ["#66a182" if target.met else "#d1495b" for target in targets]
    places = range(len(targets))
    axis.barh(places, [margin - 1 for margin in margins], left=1, color=colours)
    axis.axvline(1, color="black", linewidth=1)
    axis.set_xscale("log")
    axis.set_yticks(places, [_wrapped(target.name) for target in targets])
    axis.invert_yaxis()
    for place, target, margin in zip(places, targets, margins, strict=True):
        text = f" {shown(target.measured)} {target.figure.unit} ({target.target}) "
        axis.text(max(margin, 1), place, text, va="center", ha="left", fontsize=8)
    low, high = min([0.5, *margins]), max([2.0, *margins])
    axis.set_xlim(low * 0.8, high * 30)
    axis.set_xlabel(f"margin: 2 {TIMES} is twice as good as the target asks, below 1 it is missed")
    axis.set_title("Targets", loc="left", fontweight="bold")


def _margin(target: Target) -> float:
    """How many times better than its limit; what costs nothing, or less, is as good as can be shown."""
    if target.bound is Bound.AT_LEAST:
        return max(target.measured / target.limit, 1 / _FURTHEST)
    return min(target.limit / target.measured, _FURTHEST) if target.measured > 0 else _FURTHEST


def _wrapped(name: str) -> str:
    return name if len(name) <= 62 else name[:62].rsplit(" ", 1)[0] + " …"


def _draw_throughput(axis: Any, found: Sequence[tuple[dict[str, Any], Figure]], delay: int) -> None:
    workloads = list(dict.fromkeys(where["workload"] for where, _ in found))
    rivals = [rival for rival in _COLOURS if any(where["rival"] == rival for where, _ in found)]
    width = 0.8 / len(rivals)
    for number, rival in enumerate(rivals):
        bars = {where["workload"]: each for where, each in found if where["rival"] == rival}
        places = [place + (number - (len(rivals) - 1) / 2) * width for place in range(len(workloads))]
        here = [(place, bars[name]) for place, name in zip(places, workloads, strict=True) if name in bars]
        medians = [each.median for _, each in here]
        errors = [
            [each.median - each.spread[0] for _, each in here],
            [each.spread[1] - each.median for _, each in here],
        ]
        where = [place for place, _ in here]
        axis.bar(where, medians, width * 0.92, label=rival, color=_COLOURS[rival])
        axis.errorbar(where, medians, yerr=errors, fmt="none", ecolor="black", elinewidth=0.8, capsize=2)
    axis.set_yscale("log")
    axis.set_xticks(range(len(workloads)), [_in_words(workload) for workload in workloads])
    axis.set_ylabel("events/s (log)")
    axis.set_title(
        f"Throughput, broker answers after {delay} ms (medians, quartiles)", loc="left", fontweight="bold"
    )
    axis.legend(ncols=len(rivals), loc="upper left", bbox_to_anchor=(0, -0.09), frameon=False)


def _in_words(workload: str) -> str:
    if workload.startswith("zipf"):
        return f"{workload.split()[1]} events, skewed keys"
    keys, per_key = workload.split("x")
    return f"{keys} key{'s' * (keys != '1')}, {per_key} event{'s' * (per_key != '1')} each"


def _draw_sweep(axis: Any, sweep: Sequence[tuple[dict[str, Any], Figure]]) -> None:
    for delay in sorted({int(where["delay"]) for where, _ in sweep}):
        points = sorted(
            (int(where["senders"]), each.median) for where, each in sweep if int(where["delay"]) == delay
        )
        axis.plot(*zip(*points, strict=True), marker="o", label=f"{delay} ms")
    axis.set_xscale("log", base=2)
    axis.set_xticks([1, 2, 4, 8, 16, 32, 64, 128], ["1", "2", "4", "8", "16", "32", "64", "128"])
    axis.set_xlabel("RELAY_SENDERS")
    axis.set_ylabel("sends/s")
    axis.set_ylim(bottom=0)
    axis.legend(title="broker answers after", frameon=False)
    axis.set_title("100 keys with one event each, by the number of senders", loc="left", fontweight="bold")
