"""The operator of a campaign, who does what the relay's errors say, by the relay's own commands, while it runs."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.chaos.history import Aside, History
from outbox_relay.operator.cli.main import PROGRAM, run
from outbox_relay.operator.cli.terminal import Terminal
from relay.core.remedy import set_aside_at_end
from verification.journal.checker import Policy

EventName = tuple[str, str]
"""A partition key, and the id of an event."""

_EVERY_S = 0.5
_COMMAND_TIMEOUT_S = 30.0
_AT_ONCE = 10
_PATIENT_S = 4.0
_PARKED = "key-parked"
DISCARDED = "discarded"
"""The reason noted for poison that was parked behind other poison and then discarded."""

_DEFECTS = ("relay_defect", "DefectError", "AccountingError")
"""One of these words is in the log line of a defect that the relay has caught."""


def named_in(line: str, stream: str | None = None) -> EventName | None:
    """Return the event that a log line names with the command that sets it aside, at the line's end.

    Ignores a line of another stream.
    """
    remedy = set_aside_at_end(line)
    if remedy is None or remedy.stream not in (None, stream):
        return None
    key, identifier = remedy.texts
    return key, identifier


class Logs:
    """The log lines of the relay processes since this was created."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read = {path: path.stat().st_size for path in self._paths()}

    def _paths(self) -> Iterable[Path]:
        return sorted([*self._folder.glob("functions-*.log"), *self._folder.glob("worker-*.log")])

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the name of the process and the line, for each new line."""
        for path in self._paths():
            with path.open("rb") as log:
                log.seek(self._read.get(path, 0))
                text = log.read()
            end = text.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + end
            for line in text[:end].decode(errors="replace").splitlines():
                yield path.stem, line

    def defects(self) -> Iterator[str]:
        """Yield the new lines in which a process reports a defect of the relay, with the process's name."""
        return (f"{process}: {line}" for process, line in self.lines() if _is_defect(line))


def _is_defect(line: str) -> bool:
    """Return True for a line about an exception that the relay does not foresee: one with its place."""
    kind, at, place = line.partition("come again: ")[2].partition(" at ")
    return any(word in line for word in _DEFECTS) or (bool(at) and kind.isidentifier() and ".py:" in place)


@dataclass(slots=True)
class _Named:
    """An event that errors name: when first and last, in seconds of a monotonic clock, how often, and by whom.

    `first_s` is later than the first time if the topic refused everything then.
    """

    first_s: float
    last_s: float
    by: str
    line: str
    times: int = 1


@dataclass(slots=True)
class Operator:
    """Orders events of one stream to be set aside that errors name, and settles parked keys.

    It orders an event once: the order is to hold. With `hasty` it orders at the first mention. Otherwise it waits
    until the event has been named for some seconds in which the topic accepted other events, as the errors advise.

    Attributes:
        stream: The stream's name, if there are several; its commands have it then.
        aside: What it ordered, and the records that it discarded.
        done: Number of commands that succeeded, by their name.
        failed: Number of commands that failed.
        refused: Tells that the topic refuses every event now.
    """

    settings: Mapping[str, str]
    logs: Logs
    history: History
    policy: Policy
    hasty: bool
    stream: str | None = None
    aside: Aside = field(default_factory=Aside)
    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    refused: Callable[[], bool] = lambda: False
    named: dict[EventName, _Named] = field(default_factory=dict)
    _ordering: dict[str, float] = field(default_factory=dict)
    """When it first tried to order each event to be set aside."""
    _leaves: asyncio.Event = field(default_factory=asyncio.Event)

    async def work(self) -> None:
        """Work until told to leave."""
        while not self._leaves.is_set():
            self.read()
            await _all(self._order(name) for name in self._due())
            if self.policy is Policy.PARK:
                await self._settle_parked()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._leaves.wait(), _EVERY_S)

    def leave(self) -> None:
        """End `work` once the commands that were begun have ended."""
        self._leaves.set()

    def read(self) -> None:
        """Note what the new lines of the logs name."""
        now = time.monotonic()
        if not self.hasty and self.refused():
            # Its patience begins anew.
            for each in self.named.values():
                each.first_s = now
        for process, line in self.logs.lines():
            name = named_in(line, self.stream)
            if name is None or (self.stream is not None and not self.history.has(*name)):
                continue  # none, or another stream's
            if name in self.named:
                each = self.named[name]
                each.last_s, each.times, each.by, each.line = now, each.times + 1, process, line
            else:
                self.named[name] = _Named(now, now, process, line)

    def _due(self) -> list[EventName]:
        patience_s = 0.0 if self.hasty else _PATIENT_S
        # Not in their union, which would be built anew for each name.
        return [
            name
            for name, each in self.named.items()
            if each.last_s - each.first_s >= patience_s
            and name[1] not in self.aside.ordered
            and name[1] not in self.history.processed
        ][:_AT_ONCE]

    async def _order(self, name: EventName) -> None:
        key, identifier = name
        # Before the answer, which may be lost though the order is stored.
        began = self._ordering.setdefault(identifier, self.history.clock())
        self.aside.ordered.add(identifier)
        if await self._command("add", key, identifier, "--yes") is None:
            self.aside.ordered.discard(identifier)
        else:
            self.history.ordered(key, identifier, began)

    async def _settle_parked(self) -> None:
        """Discard the records of poison, and release all others of their keys."""
        found = await self._command("list", "--limit", "100000")
        if not found or not found["parked"]:
            return
        keys = [each["partitionKey"] for each in found["parked"]]
        records: dict[str, list[Mapping[str, Any]]] = {key: [] for key in keys}
        for record in found["records"]:
            if record["partitionKey"] in records:
                records[record["partitionKey"]].append(record)
        await _all(self._settle(key, records[key]) for key in keys[:_AT_ONCE])

    async def _settle(self, key: str, records: list[Mapping[str, Any]]) -> None:
        poison = [record for record in records if record["documentId"] in self.history.poison]
        for record in poison:
            identifier = record["documentId"]
            self.history.discarding(record["partitionKey"], identifier)
            reason = record["reason"]
            self.aside.records[identifier] = DISCARDED if reason == _PARKED else reason
            await self._command("discard", record["id"], "--yes")
        await self._command("release", "--all", "--partition-key", key)

    async def _command(self, name: str, *arguments: str) -> dict[str, Any] | None:
        """Run a command of the relay; its output, or None if it failed, was refused or was not answered."""
        output = io.StringIO()
        terminal = Terminal(as_json=True, out=output, err=io.StringIO(), stdin=io.StringIO())
        stream = () if self.stream is None else ("--stream", self.stream)
        call = PROGRAM.parse(["quarantine", name, *arguments, *stream, "--json"])
        try:
            async with asyncio.timeout(_COMMAND_TIMEOUT_S):
                code = await run(call, self.settings, terminal)
        except TimeoutError:
            code = None
        if code != 0:
            self.failed[name] += 1
            return None
        self.done[name] += 1
        return dict(json.loads(output.getvalue()))

    def found(self, stored: Mapping[str, str]) -> Aside:
        """Return the documents set aside: those in quarantine now, and the records that were discarded."""
        return Aside({**self.aside.records, **stored}, self.aside.ordered)


async def _all(work: Iterable[Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)
