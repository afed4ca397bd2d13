"""The results of the demo for people."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

ERRORS = ("missing", "duplicated", "out_of_order", "altered", "quarantined")
"""The counts that are zero in a correct run."""

MATCHES = ("balances_match", "directory_matches", "console_matches")
"""The comparisons, of which a run has one or two, that are true in a correct run."""

_BUSY = 0.85
# Share of the rate that writers reach who keep up with it.
_KEEPS_UP = 0.9


def is_correct(summary: Mapping[str, Any], events: int) -> bool:
    """Return True if all of `events` arrived once, in order and unaltered, and every comparison is true."""
    return (
        summary["delivered"] == events
        and not any(summary[name] for name in ERRORS)
        and all(summary.get(name, True) for name in MATCHES)
    )


def lines(summary: Mapping[str, Any], rate: float) -> Iterator[str]:
    """Yield what to print, the result last; `rate` is that of the writers, 0 for no limit."""
    yield (
        f"Writers {_number(summary['written_per_s'])} events/s, relay {_number(summary['relayed_per_s'])}, "
        f"consumer {_number(summary['consumed_per_s'])}. From commit to topic: p50 "
        f"{_number(summary['commit_to_topic_p50_ms'])} ms, p99 {_number(summary['commit_to_topic_p99_ms'])} ms."
    )
    yield _bound(summary["processor"], rate, summary["written_per_s"] or 0.0)
    yield (
        f"The emulators did {summary['edge_cases']} times what the services may do, such as detach a link, cut a "
        "page or send it again."
    )
    errors = [f"{summary[name]} {name.replace('_', ' ')}" for name in ERRORS]
    unequal = [name for name in MATCHES if not summary.get(name, True)]
    yield (
        f"{summary['delivered']} of {summary['written']} events arrived: {', '.join(errors)}"
        + (f"; {', '.join(unequal)}: no" if unequal else "")
        + "."
    )


def _bound(shares: Mapping[str, float], rate: float, written_per_s: float) -> str:
    used = ", ".join(f"the {name} {share:.0%}" for name, share in shares.items())
    if sum(shares.values()) >= _BUSY:
        bound = "That bounds this run."
    elif rate and written_per_s >= _KEEPS_UP * rate:
        bound = f"The writers' rate bounds this run: --rate {rate:.0f}."
    else:
        bound = "Waiting for each other bounds this run."
    return f"Of the {os.cpu_count() or 1} cores {used}. {bound}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
