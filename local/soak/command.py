"""`python -m local soak`: relay many events; all arrive once, and the relay's memory does not grow."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
from rich.console import Console

from local.soak.judgement import SAMPLES_NEEDED, Judgement
from local.soak.load import EVENTS_IN_BATCH, batches
from local.soak.subscriber import Subscriber, subscriber
from local.stack.supervisor import PartFailed, Stack, StackOptions
from outbox_emulators.functions.documents import from_text, to_text
from outbox_emulators.process import Stopped, until_done
from relay.backends.cosmos.backend import CosmosBackend, CosmosRelay
from relay.config.settings import Settings

# The most messages that may wait in the broker: it shares the machine, and its memory is not measured.
_WAITING_AT_MOST = 20_000
_DRAIN_TIMEOUT_S = 120.0
_BATCHES_PER_CHECK = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `soak`."""
    parser.add_argument("--events", type=int, default=1_000_000, help="least number of events to relay")
    parser.add_argument("--every", type=int, default=100_000, help="events between two memory samples")
    parser.add_argument("--receivers", type=int, default=96, help="sessions received concurrently")
    parser.add_argument("--logs", type=Path, default=Path(".local/soak-logs"), help="folder for the logs")


async def run(arguments: argparse.Namespace) -> int:
    """Run a soak, and return the exit code.

    It is 0 when it passed, 1 when it did not, 2 for too few events, 130 when stopped.
    """
    if not 0 < SAMPLES_NEEDED * arguments.every <= arguments.events:
        print(f"--events must be at least {SAMPLES_NEEDED} times --every.", file=sys.stderr)
        return 2
    # The relay logs a line per invocation: thousands.
    logging.getLogger("relay").setLevel(logging.ERROR)
    try:
        judgement = await until_done(Soak(arguments).run())
    except Stopped:
        return 130
    except (PartFailed, TimeoutError) as failure:
        print(f"The soak stopped: {type(failure).__name__}: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(judgement.summary()), flush=True)
    return 0 if judgement.passed else 1


class Soak:
    """One relay in this process; the services and the subscriber run in their own processes."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._events: int = arguments.events
        self._every: int = arguments.every
        self._receivers: int = arguments.receivers
        self._options = StackOptions(hosts=0, logs=arguments.logs)
        self._console = Console(stderr=True, soft_wrap=True)
        self._process = psutil.Process()
        self._samples: list[int] = []

    async def run(self) -> Judgement:
        """Relay everything, and judge the memory samples."""
        async with AsyncExitStack() as resources:
            stack = await resources.enter_async_context(Stack(self._options))
            draining = await resources.enter_async_context(
                subscriber(stack, self._options.logs, receivers=self._receivers)
            )
            relay = CosmosBackend(Settings.from_environment(stack.settings)).relay
            resources.push_async_callback(relay.close)
            return await self._relay(relay, draining)

    async def _relay(self, relay: CosmosRelay, draining: Subscriber) -> Judgement:
        started = sampled_at = time.monotonic()
        relayed = sampled = committed = 0
        for number, documents in enumerate(batches(self._events)):
            trigger = from_text(to_text(documents, rewrite_dates=False))
            relayed += (await relay.handle(trigger, f"soak-{number}")).published
            committed += EVENTS_IN_BATCH
            if relayed >= sampled + self._every:
                now = time.monotonic()
                self._sample(relayed, rate=(relayed - sampled) / (now - sampled_at))
                sampled, sampled_at = sampled + self._every, now
            if number % _BATCHES_PER_CHECK == 0:
                await draining.until_waiting(_WAITING_AT_MOST, within_s=_DRAIN_TIMEOUT_S)
        missing = committed - await draining.kept()
        return Judgement.of(relayed, missing, time.monotonic() - started, self._samples)

    def _sample(self, relayed: int, *, rate: float) -> None:
        self._samples.append(self._process.memory_info().rss)
        self._console.print(
            f"{relayed:>9} events, {rate:6.0f} events/s, resident {self._samples[-1] / 2**20:6.1f} MiB"
        )
