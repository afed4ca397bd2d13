"""`python -m tests.support.own_cost`: what the relay itself computes for an event, counted.

Batches are relayed from the trigger's text to senders that accept everything at once, so that neither a network
nor a lease is part of it. Two things are counted, neither of which depends on what else the machine does:

- `opcodes`: the bytecode instructions of the relay, and of what it calls, such as OpenTelemetry, but for asyncio.
  Everywhere the same for one version of Python; what C functions do is not among them.
- `instructions`: those of the processor for everything, encoding and event loop included. It needs valgrind, and
  the numbers depend on how Python was compiled.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import relay
from local.stack.parts import ROOT
from relay.backends.cosmos.source import ChangeBatch, CosmosSource, CosmosSourceInTime
from relay.config.streams import read_streams
from relay.core.events import Event, EventName, Rejected
from relay.core.evidence import AcceptedLedger
from relay.core.holds import Holds, Order
from relay.core.pipeline import Relay
from relay.core.place import Place
from relay.routes.history import StreamRules
from relay.routes.rulebook import Rulebook
from relay.routes.selection import BY_DEFAULT, Selection
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from tests.support.in_memory_timelines import InMemoryTimelines
from verification.bench import offline
from verification.bench.owncost import configure_telemetry

# Partition keys, and events of each.
SHAPES = ((100, 1), (10, 10), (1, 100), (1, 1))
_WARM_UP, _COUNTED = 2, 3

_RELAY = str(Path(relay.__file__).parent) + os.sep
_ELSEWHERE = (f"{os.sep}azure{os.sep}", f"{os.sep}asyncio{os.sep}")
_DOUBLES = (__file__, offline.__file__)


class _NoQuarantine:
    async def holds(self) -> Holds:
        return Holds()

    def parked_here(self) -> Mapping[str, Place | None]:
        return {}

    async def store(self, rejected: Sequence[Rejected], /, invocation_id: str, **_: Any) -> None:
        """It is kept nowhere."""

    async def note_passed(self, orders: Mapping[EventName, Order], /, at: float) -> None:
        """There are no orders."""

    async def remove(self, orders: Mapping[EventName, Order], /) -> None:
        """There are no orders."""

    async def close(self) -> None:
        """There is nothing to close."""


class _Unpassed(CosmosSource):
    """A source whose checkpoint has passed nothing; it has no containers."""

    def __init__(self, selection: Selection) -> None:
        super().__init__(selection, containers=None)  # type: ignore[arg-type]

    async def passed_positions(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        return frozenset()


class _UnpassedInTime(CosmosSourceInTime):
    """The same where the rules have generations."""

    def __init__(self, selection: Selection) -> None:
        rulebook = Rulebook(InMemoryTimelines(), "")
        rules = StreamRules(rulebook, lambda _: selection)
        super().__init__(selection, containers=None, rules=rules)  # type: ignore[arg-type]

    async def passed_positions(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        return frozenset()


class Opcodes:
    """Counts the bytecode instructions of the relay, and of what it calls."""

    def __init__(self) -> None:
        self.total = 0
        self._ours: dict[FrameType, bool] = {}

    def __enter__(self) -> Opcodes:
        sys.settrace(self._called)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if not self._counts(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "opcode":
            self.total += 1
        return self._step

    def _counts(self, frame: FrameType | None) -> bool:
        """Code without a file, such as a generated constructor, belongs to its caller."""
        while frame is not None:
            place = _place(frame.f_code)
            if place is not None:
                return place
            frame = frame.f_back
        return False


def _place(code: CodeType) -> bool | None:
    if code.co_filename in _DOUBLES or any(each in code.co_filename for each in _ELSEWHERE):
        return False
    return True if code.co_filename.startswith(_RELAY) else None


class Instructions:
    """Has callgrind, under which this process runs, count the instructions of the processor."""

    def __init__(self) -> None:
        self.total = 0
        self._file = Path(os.environ["CALLGRIND_OUT"])
        self._number = itertools.count(1)

    def __enter__(self) -> Instructions:
        self._control("--instr=on")
        self._control("--zero")
        return self

    def __exit__(self, *exception: object) -> None:
        self._control("--dump")
        self._control("--instr=off")
        text = Path(f"{self._file}.{next(self._number)}").read_text(encoding="utf-8")
        (totals,) = [line for line in text.splitlines() if line.startswith("totals: ")]
        self.total = int(totals.split()[1])

    def _control(self, option: str) -> None:
        command = ["callgrind_control", option, str(os.getpid())]
        subprocess.run(command, check=True, capture_output=True)


def _batch(keys: int, per_key: int, serial: itertools.count[int]) -> ChangeBatch:
    documents = []
    for key, _ in itertools.product(range(keys), range(per_key)):
        number = next(serial)
        partition_key = f"{key:08x}-4982-4735-9422-c39a7c4af5c2"
        data = {
            "name": {"firstName": "Jane", "lastName": "Doe"},
            "contactId": partition_key,
            "action": "ContactNameUpdatedEvent",
            "id": f"{number:08x}-0000-4ac7-ae22-5a1de1c2c4e6",
            "createdAt": "2026-02-09T11:37:37.3022907+02:00",
        }
        documents.append(
            {
                "id": data["id"],
                "partitionKey": partition_key,
                "type": "domainEvent",
                "data": data,
                "ttl": 864_000,
                "_etag": '"18005bce-0000-1500-0000-614456b80000"',
                "_ts": int(time.time()),
                "_lsn": number,
            }
        )
    return ChangeBatch(json.dumps(documents))


def by_the_samples_rules() -> Selection:
    """The events of the second stream of the sample's relay.toml, to which the rules matter."""
    environment = {
        "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;",
        "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA",
    }
    return read_streams(environment, app=ROOT / "samples" / "contacts")[1].selection


async def count(
    counter: Opcodes | Instructions,
    set_aside: int = 0,
    selection: Selection = BY_DEFAULT,
    *,
    in_time: bool = False,
) -> dict[str, float]:
    """The cost of an event in each shape, after an attempt that has set this number of documents aside."""
    publisher = ServiceBusPublisher(
        offline.AcceptingSenders(),
        messages.contract(None),
        AcceptedLedger(),
        send_timeout_s=30,
        attempt_timeout_s=480,
    )
    source = _UnpassedInTime(selection) if in_time else _Unpassed(selection)
    the_relay = Relay(source, publisher, _NoQuarantine(), duplicate_window_s=600)
    if set_aside:
        invalid = [{"id": str(each), "partitionKey": "k", "type": "domainEvent"} for each in range(set_aside)]
        await the_relay.handle(ChangeBatch(json.dumps(invalid)), "set aside")
    serial, found = itertools.count(), {}
    for keys, per_key in SHAPES:
        batches = [_batch(keys, per_key, serial) for _ in range(_WARM_UP + _COUNTED)]
        for batch in batches[:_WARM_UP]:
            await the_relay.handle(batch, "counted")
        gc.collect()
        gc.disable()
        counter.total = 0
        with counter:
            for batch in batches[_WARM_UP:]:
                await the_relay.handle(batch, "counted")
        gc.enable()
        found[f"{keys}x{per_key}"] = counter.total / (_COUNTED * keys * per_key)
    return found


def main() -> int:
    """Print what was counted, as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.own_cost", description=__doc__)
    parser.add_argument("what", choices=("opcodes", "instructions"))
    parser.add_argument("--telemetry", action="store_true", help="with OpenTelemetry's SDK")
    parser.add_argument("--set-aside", type=int, default=0, metavar="N", help="after N documents were set aside")
    parser.add_argument("--routes", action="store_true", help="with the rules of the sample's relay.toml")
    parser.add_argument("--generations", action="store_true", help="the same, where changed rules count later")
    chosen = parser.parse_args()
    if chosen.what == "instructions" and "CALLGRIND_OUT" not in os.environ:
        return _under_callgrind(sys.argv[1:])
    logging.getLogger("relay").setLevel(logging.INFO)
    if chosen.telemetry:
        configure_telemetry()
    counter = Opcodes() if chosen.what == "opcodes" else Instructions()
    selection = by_the_samples_rules() if chosen.routes or chosen.generations else BY_DEFAULT
    print(json.dumps(asyncio.run(count(counter, chosen.set_aside, selection, in_time=chosen.generations))))
    return 0


def _under_callgrind(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "counted"
        program = [sys.executable, "-m", "tests.support.own_cost", *arguments]
        return subprocess.run(
            ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}", "-q", *program],
            env={**os.environ, "CALLGRIND_OUT": str(out), "PYTHONHASHSEED": "0"},
            check=False,
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
