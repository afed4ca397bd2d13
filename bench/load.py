"""`python -m bench.load`: one process that floods a broker with batches encoded beforehand.

It says READY, waits for a line, sends everything, pipelined, and prints as JSON how long that took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from bench.amqp import PipelinedSender
from bench.documents import Source, Workload
from bench.rivals.wire import encoded_batches
from local.stack.environment import TOPIC
from outbox_emulators.process import READY


async def main() -> None:
    """Prepare, wait to be told, send."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("--connection-string", required=True)
    parser.add_argument("--seed", type=int, required=True, help="of the ids: another one for each process")
    parser.add_argument("--per-batch", type=int, required=True, help="messages in a batch")
    parser.add_argument("--batches", type=int, required=True)
    arguments = parser.parse_args()
    workload = Workload(keys=arguments.batches, per_key=arguments.per_batch)
    (documents,) = Source(arguments.seed).invocations(workload, 1)
    batches = encoded_batches(documents)
    sender = await PipelinedSender.open(arguments.connection_string, TOPIC)
    print(READY, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    started, own = time.perf_counter(), time.process_time()
    await sender.send(batches)
    took, own = time.perf_counter() - started, time.process_time() - own
    print(json.dumps({"seconds": took, "processor_seconds": own, "batches": len(batches)}), flush=True)
    await sender.close()


if __name__ == "__main__":
    asyncio.run(main())
