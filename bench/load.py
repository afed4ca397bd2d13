"""`python -m bench.load`: one process that floods a broker with batches encoded beforehand.

It prints READY, waits for a line, sends everything, pipelined, and prints as JSON how long that took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from bench.amqp import PipelinedSender
from bench.baselines.wire import encoded_batches
from bench.documents import Source, Workload
from local.stack.environment import TOPIC
from outbox_emulators.process import announce


async def main() -> None:
    """Prepare, wait for a line, send."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("--connection-string", required=True)
    parser.add_argument("--seed", type=int, required=True, help="of the ids, different for each process")
    parser.add_argument("--per-batch", type=int, required=True, help="messages per batch")
    parser.add_argument("--batches", type=int, required=True)
    arguments = parser.parse_args()
    workload = Workload(keys=arguments.batches, per_key=arguments.per_batch)
    (documents,) = Source(arguments.seed).invocations(workload, 1)
    batches = encoded_batches(documents)
    sender = await PipelinedSender.open(arguments.connection_string, TOPIC)
    announce({"part": "load"})
    if await asyncio.to_thread(sys.stdin.readline):
        started = time.perf_counter()
        await sender.send(batches)
        took = time.perf_counter() - started
        print(json.dumps({"seconds": took, "batches": len(batches)}), flush=True)
    await sender.close()


if __name__ == "__main__":
    asyncio.run(main())
