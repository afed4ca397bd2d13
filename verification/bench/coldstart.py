"""Cold start: from the start of a process to its first invocation accepted by the broker, and what it consists of.

Each start is a new process that imports function_app as the Functions worker does, with bytecode already compiled,
and relays two invocations of the same size. The first one opens what the second one finds open, so the difference
of the two is what connecting takes. The pipelined sender and the pool, which opens a connection for each key of
the first invocation, take turns.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass

from local.stack.parts import output_of
from verification.bench.benchmark import TIMES, Bound, Findings, Live, Plan, Table, Target, median, shown
from verification.bench.broker import Broker

_TIMEOUT_S = 120.0
_KEYS = (1, 100)
_SENDERS = {"pipelined": "true", "pool": "false"}

# The output of a started process: times in seconds since 1970.
_STARTED = """
import sys, time
moments = [time.time()]
import asyncio, json, logging
import function_app
moments.append(time.time())

def invocation(keys, prefix):
    now = int(time.time())
    data = {"action": "Started", "createdAt": "2026-02-09T11:37:37+02:00"}
    return [
        {"id": f"{prefix}-{n}", "partitionKey": f"k{n}", "type": "domainEvent", "data": data, "_ts": now}
        for n in range(keys)
    ]

async def main():
    logging.getLogger("relay").setLevel(logging.ERROR)
    [backend] = function_app.backends
    relay = backend.relay
    for number in range(2):
        await relay.handle(invocation(int(sys.argv[1]), f"{sys.argv[2]}-{number}"), "coldstart")
        moments.append(time.time())
    await relay.close()

asyncio.run(main())
print(json.dumps(moments))
"""


@dataclass(frozen=True, slots=True)
class Start:
    """One start, in milliseconds.

    Attributes:
        interpreter: Until Python ran the first line.
        imports: Importing function_app.
        connect: The additional time of the first invocation, compared with the second.
        send: The second invocation.
    """

    interpreter: float
    imports: float
    connect: float
    send: float

    @property
    def first(self) -> float:
        """The first invocation, which alone depends on the sender."""
        return self.connect + self.send

    @property
    def total(self) -> float:
        """Until the first invocation was accepted."""
        return self.interpreter + self.imports + self.connect + self.send


class ColdStart:
    """Starts of processes, in turns."""

    name = "coldstart"
    about = "from the start of a process to its first event accepted by the broker"

    async def run(self, plan: Plan, live: Live) -> Findings:
        repeats = plan.pick(quick=5, full=15)
        starts: dict[tuple[int, str], list[Start]] = {(keys, name): [] for keys in _KEYS for name in _SENDERS}
        async with Broker(plan.scratch) as broker:
            # Compiles the bytecode.
            await start(broker, 1, "pipelined")
            for repeat in range(repeats):
                for keys, name in starts:
                    live.step(f"cold start, {keys} event(s), {name}, {repeat + 1} of {repeats}")
                    starts[keys, name].append(await start(broker, keys, name))
                    live.rate(starts[keys, name][-1].total, "ms")
        return Findings(_targets(starts), [_table(starts)])


async def start(broker: Broker, keys: int, sender: str) -> Start:
    """Start a process whose invocations have one event each of `keys` partition keys. RuntimeError if it fails."""
    environment = broker.settings(RELAY_PIPELINED=_SENDERS[sender])
    spawned = time.time()
    printed = await output_of(
        *("-c", _STARTED, str(keys), uuid.uuid4().hex), environment=environment, within_s=_TIMEOUT_S
    )
    began, imported, first, second = json.loads(printed)
    send = second - first
    return Start(
        *(seconds * 1000 for seconds in (began - spawned, imported - began, first - imported - send, send))
    )


def _targets(starts: dict[tuple[int, str], list[Start]]) -> list[Target]:
    found = []
    for keys in _KEYS:
        pairs = zip(starts[keys, "pool"], starts[keys, "pipelined"], strict=True)
        ratios = tuple(pool.first / pipelined.first for pool, pipelined in pairs)
        name = f"the first invocation, {keys} x 1, against the pool of connections"
        found.append(Target(name, ratios, TIMES, Bound.AT_LEAST, 1.0 if keys == 1 else 2.0))
    return found


def _table(starts: dict[tuple[int, str], list[Start]]) -> Table:
    rows = []
    for (keys, name), measured in starts.items():
        parts = [
            [getattr(each, part) for each in measured]
            for part in ("interpreter", "imports", "connect", "send", "total")
        ]
        rows.append((f"{keys} x 1, {name}", *(shown(median(values)) for values in parts)))
    columns = ("first invocation", "interpreter, ms", "import, ms", "connect, ms", "send, ms", "in all, ms")
    prose = (
        "Medians, from the start of a process that imports `function_app` to the end of its first invocation. "
        "*Send* is a second invocation of the same size, *connect* what the first one took longer."
    )
    return Table("Cold start", columns, tuple(rows), prose)
