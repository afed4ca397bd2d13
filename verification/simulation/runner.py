"""Runs universes of one kind, one after another, and finds the shortest schedule of a violation."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import sys
import warnings
from collections.abc import Iterator

from verification.simulation import determinism
from verification.simulation.loop import ProcessLoop
from verification.simulation.plan import Kind, Plan, Result

KINDS = {
    "core": "the pipeline, the publisher and the quarantine, on ports in memory",
    "leases": "the fence's positions, over a model of the change feed processor and its leases",
    "histories": "the pipeline, the publisher and the source of Cosmos DB, over that model",
    "rules": "the generations of the rules, over a model of the store and of deployments",
    "sql": "workers, shards and changefeed, over a model of PostgreSQL",
    "wire": "the app with the SDKs, over the emulators' servers and a network in memory",
    "receiving": "the receivers and stores of inbox, on a subscription in memory",
    "writing": "the units of work of outbox, on a container in memory",
    "whole": "outbox, the core and inbox, from the commit of a service to the effects at two consumers",
}
"""The kinds of universe, and what runs in each: the package `simulation.<kind>` has them."""


# Objects that universes may leave before they are collected: one with processes leaves more, a history of leases
# some two hundred.
_MOST_LEFT = 1000


def kind_named(name: str) -> Kind:
    """Return a kind of universe."""
    return importlib.import_module(f"verification.simulation.{name}.universe")


@contextlib.contextmanager
def prepared(*, logs: bool = False) -> Iterator[None]:
    """Let universes run until the block ends.

    The garbage of one must not be collected within another: when that happens depends on what ran before.
    """
    hook = sys.unraisablehook
    logging.disable(logging.NOTSET if logs else logging.CRITICAL)
    gc.collect()
    gc.freeze()
    gc.disable()
    # A killed process never gets to its `finally`: Python runs it when the coroutine is collected.
    sys.unraisablehook = lambda _: None
    try:
        with determinism.replaced(), warnings.catch_warnings():
            # Nor are coroutines awaited that it was about to.
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                yield
            finally:
                _clear_away()
    finally:
        sys.unraisablehook = hook
        gc.enable()
        gc.unfreeze()
        logging.disable(logging.NOTSET)


def run(kind: Kind, plan: Plan) -> Result:
    """Run one universe, and clear away what is left of it and of others. `prepared` has to be open."""
    try:
        return kind.simulate(plan)
    finally:
        if gc.get_count()[0] > _MOST_LEFT:
            _clear_away()


class _Nobody:
    """The owner of a loop that never runs."""

    def monotonic(self) -> float:
        return 0.0

    def listen(self, when: float) -> None:
        pass


def _clear_away() -> None:
    """Collect what is left of processes, until that leaves nothing."""
    while _has_begun_tasks():
        pass


def _has_begun_tasks() -> bool:
    """Collect; returns whether a coroutine has begun tasks as it was collected, which come to nothing."""
    nowhere = ProcessLoop(_Nobody())  # type: ignore[abstract]  # as that of a process
    asyncio._set_running_loop(nowhere)
    try:
        gc.collect()
    finally:
        asyncio._set_running_loop(None)
    begun = asyncio.all_tasks(nowhere)
    for task in begun:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    nowhere.close()
    return bool(begun)


def shortened(kind: Kind, plan: Plan) -> list[int]:
    """Return the faults, by their numbers, that can be left out with a violation still there."""
    left_out: list[int] = []
    for number in reversed(range(len(plan.faults))):
        candidate = [*left_out, number]
        if run(kind, plan.without(candidate)).violations:
            left_out = candidate
    return sorted(left_out)
