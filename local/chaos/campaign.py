"""One campaign: a workload and a schedule of faults on its own stack, and the errors that it finds."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from local.chaos import edge_cases, partitions, recordings, schedule
from local.chaos.admin import AdminPorts, NotInjected
from local.chaos.bystander import Bystander
from local.chaos.consumers import Consumer
from local.chaos.contents import Contents, open_contents
from local.chaos.deployments import Deployments
from local.chaos.history import Aside, Histories, History, LaterHistories
from local.chaos.hosts import replace_ended_hosts
from local.chaos.inject import Injector
from local.chaos.liveness import Phase, bound_s, standing
from local.chaos.operators import DISCARDED, Logs, Operator
from local.chaos.options import Options
from local.chaos.rules import RulesInTime, draw_changes
from local.chaos.sides import open_side
from local.chaos.sources import SourceSide
from local.chaos.streams import DEFAULT, Layout, Stream, entities_document
from local.chaos.upgrades import Upgrades
from local.chaos.workload import Workload
from local.stack.ahead import make_app
from local.stack.environment import Source
from local.stack.supervisor import Stack, StackOptions
from outbox_relay.inbox import connect
from outbox_relay.inbox.event_loop import end_tasks
from relay.config.settings import FILE_VARIABLE
from verification.journal.checker import Policy, Report, Violations, Wrong, check
from verification.journal.entries import Killed, save
from verification.journal.specification import TOPICS_CLOCK_S, validate

_HOST_OPTIONS = (
    *("--lease-acquire-ms", "1000", "--lease-renew-ms", "1000", "--lease-expiration-ms", "4000"),
    *("--shutdown-timeout-s", "3"),
)
_USUAL_FUNCTION_TIMEOUT_MS = 600_000
_RESUMES_WITHIN_S = 5
# The broker ends links that are idle for this long.
_BROKER_OPTIONS = ("--idle-ms", "5000")
_LAST_APPLIED_S = 10.0
_LONGEST_FAULT_S = 60.0
# Time limit for the operator's last commands, in seconds; their events may be delivered before the commands end.
_LEAVES_WITHIN_S = 60.0
# Events committed while faults are injected again for edge cases that were not met.
_LATE_EVENTS = 60
_COMMITS_PER_TRY = 2
_SETTINGS = {"RELAY_POLL_DELAY_MS": "100"}
_SEND_TIMEOUT_S = 15
# How much longer a send may take than a function, in seconds, so that it is the function that is timed out.
_SENDS_LONGER_S = 5
# With late acceptance, unless a function is to time out, which needs the longer one.
_SHORT_SEND_TIMEOUT_S = 5
_LOOK_EVERY_S = 1.0
_ANSWERED_WITHIN_S = 60.0
# Shorter than a frozen worker stays frozen. Short pages, so that many are under way when something fails.
_SQL_SETTINGS = {"SQL_CLAIM_S": "3", "RELAY_MAX_ITEMS": "50", "SQL_MAX_BYTES": str(1024**2)}

# Instead of a minute, so that each of many changes counts soon.
_RULES_AHEAD_S = 2
_ASSIGN_EVERY_S = 3.0
# How far the clock of a writer and a commit time may be apart, with a wide margin.
_MARGIN_S = 60.0

# Longer than a lease lasts, so that another host takes it.
_FROZEN_S = 7
# Also longer than the duplicate detection window, if that is at most a minute.
_BEYOND_WINDOW_S = 5
_SHORT_WINDOW_S = 60
# Bytes of a message without its text, with a margin.
_WITHOUT_TEXT = 2000
# Events that are named of those with the same fault.
_SHOWN = 5


_Outstanding = dict[str, dict[str, list[str]]]
"""By stream and key, the ids of events that are not settled."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The outcome of a stream.

    Attributes:
        stream: Its name.
        journal: The file of its journal.
        history: What was committed for it, and received.
        aside: What is in its quarantine, or was discarded or ordered.
        report, steps: What is wrong with the journal.
        misrouted: Number of events that its destination accepted, and that are for other destinations alone.
    """

    stream: str
    journal: Path
    history: History
    aside: Aside
    report: Report
    steps: Violations
    misrouted: int

    @property
    def counts(self) -> dict[str, int]:
        """The members of the summary that are counted for each stream."""
        return {
            **{wrong.value: self.report.counts[wrong] for wrong in Wrong},
            "not_specified": self.steps.counts.total(),
            "misrouted": self.misrouted,
            "quarantined": self.report.quarantined,
            "expected_quarantined": self.report.expected_quarantined,
        }

    @property
    def of_stream(self) -> dict[str, int]:
        """A stream's part of the summary: its events, and what is not 0."""
        return {"events": self.history.committed, **{name: count for name, count in self.counts.items() if count}}


class Campaign:
    """One campaign: a workload, a schedule of faults, and the history of both sides."""

    def __init__(self, arguments: Options, seed: int) -> None:
        self._arguments = arguments
        self._seed = seed
        self._console = Console(stderr=True, soft_wrap=True)
        self._changing = arguments.rule_changes > 0
        self._later = self._changing and not arguments.rules_at_once
        self._layout = Layout(arguments.destinations, arguments.outboxes, every=self._later)
        self._history = LaterHistories(self._layout) if self._changing else Histories(self._layout)
        self._deployments: Deployments | None = None
        self._upgrades: Upgrades | None = None
        self._rules: dict[str, RulesInTime] = {}
        self._settled: Counter[str] = Counter()
        self._policy: Policy = arguments.on_poison
        self._phase = Phase()
        self._contents: Contents | None = None
        self._operators: dict[str, Operator] = {}
        self._logs = Logs(arguments.logs)
        self._killed_at_first = self._killed = 0
        self._background: list[asyncio.Task[None]] = []
        self._late = min(_LATE_EVENTS, arguments.events // 20)
        self._faults = schedule.draw(
            seed, events=arguments.events - self._late, faults=arguments.faults, among=arguments.kinds
        )

    async def run(self) -> dict[str, Any]:
        """Run it on its own stack; returns the summary."""
        arguments = self._arguments
        self._console.print(
            f"Seed {self._seed}: {arguments.events} events, {len(self._faults)} faults, "
            f"{arguments.hosts} hosts; logs in {arguments.logs}/."
        )
        with tempfile.TemporaryDirectory() as folder:
            entities = Path(folder) / "entities.json"
            document = entities_document(
                self._layout.destinations,
                duplicate_detection=not arguments.no_duplicate_detection,
                window_s=arguments.window_s,
            )
            entities.write_text(json.dumps(document))
            relay_file = Path(folder) / "relay.toml"
            app = arguments.app
            if self._changing:
                changes = draw_changes(
                    *(self._seed, self._layout),
                    events=arguments.events - self._late,
                    changes=arguments.rule_changes,
                )
                self._deployments = Deployments(
                    relay_file, self._layout, arguments.source, changes, later=self._later
                )
                app = make_app(Path(folder) / "app", app, _RULES_AHEAD_S)
            elif self._layout.is_routed:
                relay_file.write_text(self._layout.file(arguments.source))
            if arguments.earlier:
                earlier = arguments.earlier.resolve()
                self._upgrades = Upgrades(earlier, events=arguments.events - self._late)
            options = StackOptions(
                source=arguments.source,
                shards=arguments.shards,
                app=app,
                rules_ahead_s=_RULES_AHEAD_S if self._changing else None,
                entities=entities,
                hosts=0,
                host_options=(*_HOST_OPTIONS, "--function-timeout-ms", str(self._function_timeout_ms)),
                cosmos_options=("--partitions", str(partitions.AT_FIRST)),
                servicebus_options=_BROKER_OPTIONS,
                logs=arguments.logs,
                settings=self._settings | ({FILE_VARIABLE: str(relay_file)} if self._layout.is_routed else {}),
                records=True,
                blobs_port=0 if arguments.large else None,
                blob_faults=True,
                edges=self._seed,
            )
            async with Stack(options) as stack:
                return await self._on(stack)

    @property
    def _settings(self) -> dict[str, str]:
        own = _SQL_SETTINGS if self._arguments.source is Source.SQL else {}
        return {
            **_SETTINGS,
            **own,
            "RELAY_SEND_TIMEOUT_S": str(self._send_timeout_s),
            "RELAY_ON_POISON": self._policy.value,
            "RELAY_DUPLICATE_WINDOW_S": str(self._arguments.window_s),
            "RELAY_PIPELINED": str(not self._arguments.pool),
        }

    @property
    def _send_timeout_s(self) -> int:
        kinds = self._arguments.kinds
        if "time-out-function" in kinds:
            return max(_SEND_TIMEOUT_S, self._function_timeout_ms // 1000 + _SENDS_LONGER_S)
        return _SHORT_SEND_TIMEOUT_S if "late-acceptance" in kinds else _SEND_TIMEOUT_S

    @property
    def _frozen_s(self) -> int:
        window_s: int = self._arguments.window_s
        return window_s + _BEYOND_WINDOW_S if window_s <= _SHORT_WINDOW_S else _FROZEN_S

    @property
    def _function_timeout_ms(self) -> int:
        """Longer than a freeze: a host that resumes after its function timeout kills its worker.

        Without the fault that needs it, it is that of host.json, so that it repairs nothing that hangs.
        """
        if "time-out-function" not in self._arguments.kinds:
            return _USUAL_FUNCTION_TIMEOUT_MS
        limit_s: int = self._arguments.function_timeout_s
        return 1000 * max(limit_s, self._frozen_s + _RESUMES_WITHIN_S)

    async def _on(self, stack: Stack) -> dict[str, Any]:
        arguments = self._arguments
        hasty = "hasty-operator" in arguments.kinds
        self._operators = {
            name: Operator(
                *(stack.settings, Logs(arguments.logs), history, self._policy, hasty),
                stream=name if self._layout.is_routed else None,
            )
            for name, history in self._history.of.items()
        }
        async with (
            connect(stack.settings["SERVICEBUS"]) as servicebus,
            aiohttp.ClientSession() as http,
            open_side(
                *(stack, AdminPorts(http), self._history, self._seed),
                frozen_s=self._frozen_s,
                function_timeout_s=self._function_timeout_ms / 1000,
            ) as side,
            open_contents(stack.blobs) as self._contents,
        ):
            if self._upgrades is not None:
                self._upgrades.begin(stack)
            await side.start_hosts(arguments.hosts)
            admin = AdminPorts(http)
            injector = Injector(
                *(stack, admin, side, Bystander(servicebus)),
                destinations=self._layout.destinations,
                seed=self._seed,
                shrunk_bytes=arguments.payload + _WITHOUT_TEXT,
            )
            await injector.begin(schedule.standing(self._seed, arguments.kinds))
            for operator in self._operators.values():
                operator.refused = lambda: injector.refuses_everything
            operating = [asyncio.create_task(operator.work()) for operator in self._operators.values()]
            self._background = [
                asyncio.create_task(replace_ended_hosts(stack, self._ended)),
                *operating,
                *self._start_consumers(servicebus),
                *([asyncio.create_task(self._assign_repeatedly(side))] if self._changing else []),
            ]
            workload = Workload(
                self._seed,
                events=arguments.events,
                late=self._late,
                writers=arguments.writers,
                payload=arguments.payload,
                harmful=[kind for kind in arguments.kinds if kind in schedule.EVENT_KINDS],
                unrouted=self._layout.is_routed,
                large=arguments.large / 100,
            )
            late = workload.late_commits()

            async def commit_late(commits: int | None = None) -> None:
                await side.write(islice(late, commits), self._history, pause_s=0)

            working = asyncio.gather(
                *self._writers(side, workload),
                self._inject(injector, commit_late),
                *([self._disable_one(injector)] if self._layout.is_routed else []),
                *([self._deployments.work(stack, self._history)] if self._deployments else []),
                *([self._upgrades.work(stack, self._history)] if self._upgrades else []),
            )
            try:
                stands = await self._follow(working, injector, side)
                for operator in self._operators.values():
                    operator.leave()
                await asyncio.wait(operating, timeout=_LEAVES_WITHIN_S)
            finally:
                working.cancel()
                await asyncio.wait([working])
                await injector.close()
                await end_tasks(self._background)
            self._killed = await side.killed_workers() - self._killed_at_first if self._phase.has_begun else 0
            met = await injector.met() + self._settled
            met[edge_cases.DELIVERED_AGAIN] += self._history.delivered_again
            judged = [await self._judge(each, stack, side) for each in self._layout.streams]
            known = edge_cases.BROKER_KNOWN | side.known
            if stack.blobs is not None:
                known |= edge_cases.BLOB_CAUSES.keys()
            return self._summary(injector, judged, met, known, stands)

    def _ended(self, process: str, killed: bool) -> None:
        self._phase.ended(process)
        if killed:
            self._history.befell(process, Killed)

    async def _judge(self, stream: Stream, stack: Stack, side: SourceSide) -> Judged:
        """Keep the journal of a stream, and judge it, by itself and by the specifications."""

        def is_of_stream(session_id: str) -> bool:
            return self._layout.outbox_of(session_id) == stream.outbox

        history = self._history.of[stream.name]
        accepted = list(
            recordings.of_topic(
                stack.recordings["servicebus"],
                stream.destination.entity,
                is_of_stream,
                {} if self._contents is None else self._contents.read,
            )
        )
        journal = history.journal(await side.recorded(stream), accepted)
        path: Path = self._arguments.journal
        if stream.name != DEFAULT:
            path = path.with_name(f"{path.name.partition('.')[0]}-{stream.name}.{path.name.partition('.')[2]}")
        save(path, journal)
        window_s = None if self._arguments.no_duplicate_detection else self._arguments.window_s
        steps = validate(journal, self._policy, window_s=window_s, slack_s=TOPICS_CLOCK_S)
        aside = self._operators[stream.name].found(await side.quarantined(stream))
        misrouted = self._history.misrouted(stream.name, accepted)
        return Judged(stream.name, path, history, aside, check(journal, self._policy), steps, misrouted)

    def _start_consumers(self, servicebus: ServiceBusClient) -> list[asyncio.Task[None]]:
        rngs = [random.Random(f"consumer-{self._seed}-{number}") for number in range(self._arguments.consumers)]
        there = itertools.cycle(self._layout.destinations)
        consumers = [
            Consumer(servicebus, next(there), self._history, rng, self._settled, self._contents) for rng in rngs
        ]
        return [asyncio.create_task(consumer.consume()) for consumer in consumers]

    async def _assign_repeatedly(self, side: SourceSide) -> None:
        """Assign events to streams until cancelled; the operator knows a stream's events by that."""
        while True:
            with suppress(AzureError, OSError, NotInjected):
                async with asyncio.timeout(_ANSWERED_WITHIN_S):
                    await self._assign(side)
            await asyncio.sleep(_ASSIGN_EVERY_S)

    async def _assign(self, side: SourceSide) -> None:
        """Assign the events to streams whose rules are settled: by the stored timeline, if there is to be one."""
        if not isinstance(self._history, LaterHistories):
            return
        assert self._deployments is not None
        for outbox in self._layout.outboxes:
            since = self._history.unassigned_since(outbox)
            if since is None:
                continue
            # Before the timeline, so that what it has is settled there if it was read.
            times = await side.commit_times(outbox, since - _MARGIN_S)
            if self._later:
                stored = await side.timeline(outbox)
                if stored is None:
                    continue
                self._rules[outbox] = RulesInTime.stored(stored, outbox)
            else:
                self._rules[outbox] = RulesInTime.deployed(self._deployments.made, outbox)
            self._history.assign(outbox, times, self._rules[outbox].at)

    def _writers(self, side: SourceSide, workload: Workload) -> list[Coroutine[Any, Any, None]]:
        pause_s = workload.writers / self._arguments.rate
        return [
            side.write(workload.commits(writer), self._history, pause_s=pause_s)
            for writer in range(workload.writers)
        ]

    async def _inject(self, injector: Injector, commit_late: Callable[..., Awaitable[None]]) -> None:
        for fault in self._faults:
            await self._history.until_committed(fault.after)
            await injector.inject(fault)
        await self._history.until_committed(self._arguments.events - self._late)
        # The last faults can only be applied while there is something left to relay.
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_APPLIED_S):
                await injector.until_applied(self._history)
        await injector.clear()
        if not self._arguments.once:
            kinds = {fault.kind for fault in self._faults}
            await injector.cover(self._seed, kinds, partial(commit_late, _COMMITS_PER_TRY))
        await commit_late()

    async def _disable_one(self, injector: Injector) -> None:
        """Let one destination accept nothing during the second third of the campaign.

        On a busy machine, that may be longer than the duplicate detection window; it ends with half of it then. An
        event that was accepted just before, and that another process attempts after a longer time, comes twice
        (docs/guarantees.md).
        """
        events = self._arguments.events
        one = random.Random(f"disabled-{self._seed}").choice(self._layout.destinations)
        await self._history.until_committed(events / 3)
        try:
            await injector.set_status(one, "SendDisabled")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._arguments.window_s / 2):
                    await self._history.until_committed(2 * events / 3)
        finally:
            await injector.set_status(one, "Active")

    async def _follow(self, working: asyncio.Future[Any], injector: Injector, side: SourceSide) -> list[str]:
        """Wait until everything is settled; returns what is stuck if that takes too long."""
        columns = (TextColumn("{task.description:>9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        progress_at, last = time.monotonic(), (0, 0, 0)
        with Progress(*columns, console=self._console, redirect_stdout=False) as progress:
            bars = [
                progress.add_task("committed", total=self._arguments.events),
                progress.add_task("processed", total=self._arguments.events),
                progress.add_task("faults", total=len(self._faults)),
            ]
            while True:
                await asyncio.sleep(_LOOK_EVERY_S if working.done() else 0.25)
                if working.done():
                    working.result()
                    if await self._is_settled(injector, side):
                        break
                done = sum(operator.done.total() for operator in self._operators.values())
                state = (self._history.committed, self._history.processed, done)
                for bar, count in zip(bars, (*state[:2], injector.injected.total()), strict=True):
                    progress.update(bar, completed=count)
                progress.update(bars[1], total=max(self._arguments.events, self._history.expected))
                if state != last:
                    progress_at, last = time.monotonic(), state
                idle = time.monotonic() - progress_at > self._arguments.patience + _LONGEST_FAULT_S
                if (idle and not working.done()) or self._phase.is_overdue:
                    return await self._stands(injector, side)
                for task in self._background:
                    if task.done():
                        task.result()
        # A duplicate could still arrive, with the retry of the host that was hit last.
        await asyncio.sleep(3)
        return []

    async def _stands(self, injector: Injector, side: SourceSide) -> list[str]:
        try:
            outstanding, waiting = await self._outstanding(injector, side)
            owners = await side.owners()
        except (AzureError, OSError, NotInjected) as error:
            return [f"Not live, and what stands cannot be read: {type(error).__name__}: {error}"]
        return [
            line if not self._layout.is_routed else f"{name}: {line}"
            for name, events in outstanding.items()
            for line in standing(events, self._operators[name], owners, waiting)
        ]

    async def _is_settled(self, injector: Injector, side: SourceSide) -> bool:
        """Return True if nothing is outstanding; the last phase begins with the first look."""
        try:
            outstanding, waiting = await self._outstanding(injector, side)
        except (AzureError, OSError, NotInjected):
            # On a busy machine: the next look may be answered in time, and the last phase has an end.
            await self._begin_last_phase(self._history.expected - self._history.processed, side)
            return False
        if not outstanding and not waiting:
            return True
        backlog = sum(len(each) for events in outstanding.values() for each in events.values())
        await self._begin_last_phase(backlog, side)
        return False

    async def _begin_last_phase(self, backlog: int, side: SourceSide) -> None:
        if not self._phase.has_begun:
            self._phase.begin(bound_s(self._arguments.patience, backlog))
        # An invocation that began under a fault may still take too long.
        if self._phase.lasted_s <= self._function_timeout_ms / 1000:
            self._killed_at_first = await side.killed_workers()

    async def _outstanding(self, injector: Injector, side: SourceSide) -> tuple[_Outstanding, int]:
        """Return, by stream, the events that are not settled.

        Returns the number of messages that no consumer has settled, too.
        """
        async with asyncio.timeout(_ANSWERED_WITHIN_S):
            await self._assign(side)
            found = {}
            for stream in self._layout.streams:
                aside = self._operators[stream.name].found(await side.quarantined(stream))
                if events := self._history.of[stream.name].outstanding(aside):
                    found[stream.name] = events
            if self._history.unassigned:
                found[DEFAULT] = found.get(DEFAULT, {}) | self._history.unassigned
            return found, await injector.waiting()

    def _summary(
        self,
        injector: Injector,
        judged: Sequence[Judged],
        met: Counter[str],
        known: frozenset[str],
        stands: list[str],
    ) -> dict[str, Any]:
        for line in stands:
            self._console.print(line, highlight=False, style="bold red", markup=False)
        for process in self._phase.restarts:
            self._console.print(f"{process} ended after the faults were over.", highlight=False)
        for failure in injector.failures:
            self._console.print(failure, highlight=False)
        defects = list(self._logs.defects())
        for line in defects:
            self._console.print(line, highlight=False, style="bold red", markup=False)
        if unmet := known - {edge for edge, times in met.items() if times}:
            self._console.print(f"Edge cases not met: {', '.join(sorted(unmet))}.")
        table = Table("fault", "injected", "applied", title=f"Faults of seed {self._seed}")
        for kind, times in sorted(injector.injected.items()):
            applied = injector.times_applied(kind)
            table.add_row(kind, str(times), "" if applied is None else str(applied))
        self._console.print(table)
        for each in judged:
            self._explain(each)
        counts = [each.counts for each in judged]
        commands = sum((operator.done for operator in self._operators.values()), Counter[str]())
        return {
            "seed": self._seed,
            "events": self._history.committed,
            "faults": injector.injected.total(),
            "kinds": dict(sorted(injector.injected.items())),
            "edges": {edge: times for edge, times in sorted(met.items()) if times},
            "policy": self._policy.value,
            "commands": dict(sorted(commands.items())),
            **{name: sum(each[name] for each in counts) for name in counts[0]},
            **({"streams": {each.stream: each.of_stream for each in judged}} if self._layout.is_routed else {}),
            **({} if self._contents is None else {"contents": len(self._contents.read)}),
            **self._of_rules(),
            **({} if self._upgrades is None else {"upgrades": dict(self._upgrades.done)}),
            "live": not stands,
            "restarts": len(self._phase.restarts) + self._killed,
            "defects": len(defects),
        }

    def _of_rules(self) -> dict[str, Any]:
        """Return the members of the summary about changes of the rules."""
        if self._deployments is None:
            return {}
        return {
            "rule_changes": dict(sorted(self._deployments.done.items())),
            "generations": {outbox: rules.generations for outbox, rules in self._rules.items()},
        }

    def _explain(self, judged: Judged) -> None:
        """Print what is wrong with a stream."""
        findings = [*judged.report.findings, *judged.steps.findings]
        if findings:
            self._console.print(f"[bold red]Seed {self._seed}[/], in {judged.journal}:")
        for finding in findings:
            self._console.print(finding, highlight=False, markup=False)
        aside, poison, quarantined = judged.aside, judged.history.poison, judged.aside.records
        for what, events in (
            ("quarantined but not poison", quarantined.keys() - poison.keys() - aside.ordered),
            ("poison but not quarantined", poison.keys() - quarantined.keys() - aside.ordered),
        ):
            if events:
                shown = ", ".join(repr(identifier[:80]) for identifier in sorted(events)[:_SHOWN])
                more = f" and {len(events) - _SHOWN} more" if len(events) > _SHOWN else ""
                self._console.print(f"{len(events)} event(s) are {what}: {shown}{more}", markup=False)
        wrong_reasons = Counter(
            (" or ".join(sorted(poison[identifier])), reason)
            for identifier, reason in quarantined.items()
            if identifier in poison and reason not in {*poison[identifier], DISCARDED}
        )
        for (expected, found), times in wrong_reasons.items():
            self._console.print(f"{times} document(s) were quarantined as {found} instead of {expected}")
