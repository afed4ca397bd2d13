"""The results of the demo for people."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

ERRORS = ("missing", "duplicated", "out_of_order", "altered", "quarantined")
"""The counts that are zero in a correct run."""

_BUSY = 0.85


def lines(summary: Mapping[str, Any], rate: float) -> Iterator[str]:
    """Yield what to print, the result last; `rate` is that of the writers, 0 for no limit."""
    yield (
        f"Writers {_number(summary['written_per_s'])} events/s, relay {_number(summary['relayed_per_s'])}, "
        f"consumer {_number(summary['consumed_per_s'])}. From commit to topic: p50 "
        f"{_number(summary['commit_to_topic_p50_ms'])} ms, p99 {_number(summary['commit_to_topic_p99_ms'])} ms."
    )
    yield _bound(summary["processor"], rate)
    yield (
        f"The emulators did {summary['edge_cases']} times what the services may do, such as detach a link, cut a "
        "page or send it again."
    )
    errors = [f"{summary[name]} {name.replace('_', ' ')}" for name in ERRORS]
    unequal = [name for name, value in summary.items() if name.endswith(("_match", "_matches")) and not value]
    yield (
        f"{summary['delivered']} of {summary['written']} events arrived: {', '.join(errors)}"
        + (f"; {', '.join(unequal)}: no" if unequal else "")
        + "."
    )


def _bound(shares: Mapping[str, float], rate: float) -> str:
    used = ", ".join(f"the {name} {share:.0%}" for name, share in shares.items())
    cores = os.cpu_count() or 1
    if sum(shares.values()) >= _BUSY:
        bound = "That bounds this run."
    elif rate:
        bound = f"The writers' rate bounds this run: --rate {rate:.0f}."
    else:
        bound = "Waiting for each other bounds this run."
    return f"Of the {cores} cores {used}. {bound}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
