"""`python -m local demo`: writers, the relay and a consumer on a separate stack, with every event checked."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import httpx
from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBars

from local.chaos.admin import AdminPorts
from local.demo.bookings import bookings
from local.demo.clients import UnexpectedAnswer
from local.demo.committed import Store, open_store
from local.demo.console import differences, serving_observers
from local.demo.consumer import SUBSCRIPTION, consumer, pass_on
from local.demo.contacts import contacts
from local.demo.load import Load
from local.demo.processor import resident_bytes, shares, used_so_far
from local.demo.subscriber import Observer
from local.demo.summary import ERRORS, is_correct, lines
from local.demo.tally import Tally
from local.stack.arguments import File, Folder, Number, Positive, Seconds, SourceOption
from local.stack.environment import TOPIC, Source, write_env_file
from local.stack.parts import ROOT, Part
from local.stack.supervisor import PartFailed, Stack, StackOptions
from outbox_relay.command_line import number, value
from outbox_relay.emulators.functions.edges import read_journal
from outbox_relay.emulators.process import Stopped, until_done
from outbox_relay.inbox.messages import Handler
from outbox_relay.operator.console.observer import Observer as ConsoleObserver
from relay.config.settings import FILE_VARIABLE

# With `--routes`.
_ROUTES = ROOT / "samples" / "contacts" / "relay.toml"
_RENAME = "ContactNameUpdatedEvent"
_CONTACTS = "contacts"
# Seconds for which an open page still shows the end.
_LAST_LOOK_S = 1.5
_LAST_ARRIVALS_S = 1.5
_MEMORY_SAMPLES = 10

_ACCOUNTS_RATE = 600.0
_API_RATE = 150.0

# Leases last a minute in Azure; here a killed host is replaced within seconds.
_QUICK_LEASES = ("--lease-acquire-ms", "1000", "--lease-renew-ms", "1000", "--lease-expiration-ms", "4000")
_QUICK_CLAIMS = {"SQL_CLAIM_S": "4"}


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `demo`.

    Attributes:
        events: events to raise
        keys: partition keys: accounts, or contacts
        api: let clients of the sample's contact service raise the events, and keep a directory of contacts
        batch: most events of a transaction; not with --api
        hosts: Functions hosts that share the leases, or workers
        shards: shards of the SQL feed
        given_writers: concurrent writers; 8, with --api 32
        receivers: sessions received concurrently
        kill_host: kill a host half way, and start another
        console: also serve the console of all streams, and compare its counts with those of the checker
        routes: with --api: publish changes of names to a second topic as well, by the sample's relay.toml
        timeout: seconds to wait without any arrival before giving up
        seed: seed of the contacts' scenarios
        env_file: file to write the settings to
        json: print the results as one line of JSON
        logs: folder for the logs
    """

    source: SourceOption = Source.COSMOS
    events: Positive = 5000
    keys: Positive = 80
    api: bool = False
    batch: Positive = 20
    given_rate: Annotated[
        float | None,
        value(
            number,
            name="--rate",
            metavar="N",
            help=f"events raised per second, 0 for no limit; {_ACCOUNTS_RATE:.0f}, with --api {_API_RATE:.0f}",
        ),
    ] = None
    hosts: Positive = 1
    shards: Positive = 4
    given_writers: Annotated[Positive | None, Parameter(name="--writers")] = None
    receivers: Positive = 96
    kill_host: bool = False
    console: bool = False
    routes: bool = False
    timeout: Seconds = 60.0
    seed: Number = 1
    env_file: File = Path(".local/demo.env")
    json: bool = False
    logs: Folder = Path(".local/demo-logs")

    @property
    def rate(self) -> float:
        """The events to raise in a second; 0 for no limit."""
        if self.given_rate is not None:
            return self.given_rate
        return _API_RATE if self.api else _ACCOUNTS_RATE

    @property
    def writers(self) -> int:
        """The number of concurrent writers."""
        return self.given_writers or (32 if self.api else 8)


async def run(*, options: Options = Options()) -> int:
    """Run the demo, and return the exit code.

    It is 0 when every event arrived once, in order and unaltered, and what the consumer made of them matches what
    the writers stored; 1 when not; 130 when stopped.
    """
    if options.routes and not options.api:
        print("--routes publishes changes of contacts' names: it needs --api.", file=sys.stderr)
        return 2
    try:
        with _logging_to(options.logs / "demo.log"):
            summary = await until_done(_demo(options))
    except Stopped:
        return 130
    except (PartFailed, UnexpectedAnswer, httpx.HTTPError, ExceptionGroup) as failure:
        cause = _innermost(failure)
        # The errors of httpx may have no text.
        print(f"The demo stopped: {type(cause).__name__}: {cause}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(summary), flush=True)
    else:
        print("\n".join(lines(summary, options.rate)), flush=True)
    return 0 if is_correct(summary, options.events) else 1


@contextmanager
def _logging_to(file: Path) -> Iterator[None]:
    """Log to a file during the block, in place of the terminal, which is for results."""
    root = logging.getLogger()
    file.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(file, mode="w", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    terminal = [each for each in root.handlers if type(each) is logging.StreamHandler]
    root.handlers = [handler, *(each for each in root.handlers if each not in terminal)]
    # Each logs every request or message at INFO: thousands of lines.
    noisy = [logging.getLogger(name) for name in ("httpx", "outbox_relay.inbox", "samples.contacts.consumer")]
    levels = [logger.level for logger in noisy]
    for logger in noisy:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(noisy, levels, strict=True):
            logger.setLevel(level)
        root.handlers = [*terminal, *(each for each in root.handlers if each is not handler)]
        handler.close()


def _innermost(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


async def _demo(arguments: Options) -> dict[str, Any]:
    console = Console(stderr=True)
    options = StackOptions(
        source=arguments.source,
        shards=arguments.shards,
        logs=arguments.logs,
        hosts=arguments.hosts,
        host_options=_QUICK_LEASES,
        settings={
            **(_QUICK_CLAIMS if arguments.source is Source.SQL else {}),
            **({FILE_VARIABLE: str(_ROUTES)} if arguments.routes else {}),
        },
    )
    async with Stack(options) as stack, _load(arguments, stack) as (load, service):
        write_env_file(arguments.env_file, stack.settings)
        pids = ", ".join(f"{host.name} is process {host.pid}" for host in stack.hosts)
        console.print(f"The stack is up: {pids}; settings in {arguments.env_file}, logs in {arguments.logs}/.")
        if service is not None:
            address = f"http://127.0.0.1:{service.details['port']}"
            console.print(f"The contact service is process {service.pid}, at {address}/docs")
        tally = Tally(timestamped=arguments.source is Source.COSMOS)
        renames = Tally(timestamped=tally.timestamped, action=_RENAME)
        tallies = [tally, renames] if arguments.routes else [tally]
        async with (
            open_store(stack) as store,
            _console(arguments, stack, console) as observers,
            AsyncExitStack() as consumers,
        ):
            handlers: dict[str, Handler] = {TOPIC: load.handler(tally)}
            if arguments.routes:
                handlers[_CONTACTS] = Observer(renames)
            passing = []
            services = [] if service is None else [service.pid]
            for topic, handler in handlers.items():
                log = arguments.logs / f"consumer-{topic}.log"
                part = await consumers.enter_async_context(
                    consumer(stack.settings, topic, arguments.receivers, log)
                )
                passing.append(pass_on(part, handler))
                services.append(part.pid)
            async with _background(*passing, _replace_killed_hosts(stack, console)):
                began, before = time.monotonic(), used_so_far(stack, *services)
                writing = asyncio.create_task(_write(arguments, load, store, tallies))
                memory: list[int] = []
                try:
                    await _follow(arguments, tallies, load, writing, stack, console, memory)
                finally:
                    writing.cancel()
                used = shares(before, used_so_far(stack, *services), time.monotonic() - began)
                # A duplicate could still arrive: wait for a poll and a session.
                await asyncio.sleep(_LAST_ARRIVALS_S)
                matches = await load.matches()
                quarantined = await store.quarantined()
                # On a busy machine, the receivers have not completed yet what they have handled.
                compared = zip(observers, tallies, quarantined, strict=True) if observers else ()
                differing = [text for each in compared for text in await differences(*each, SUBSCRIPTION)]
            if observers:
                await asyncio.sleep(_LAST_LOOK_S)
        counts = tally.summary()
        if arguments.routes:
            counts |= _with_second_topic(counts, renames.summary())
        summary = {
            **{name: value for name, value in counts.items() if not name.endswith("_ms")},
            "quarantined": sum(quarantined),
            load.matches_as: matches,
            **({"console_matches": not differing} if observers else {}),
            **tally.speed(),
            **{f"commit_to_consumer_{name}": value for name, value in counts.items() if name.endswith("_ms")},
            "processor": {name: round(share, 3) for name, share in used.items()},
            "relay_rss_mib": [round(size / 2**20, 1) for size in memory],
            "edge_cases": await _edge_cases(stack),
        }
        for difference in differing:
            console.print(f"The console differs: {difference}.")
        console.print(load.remark())
        return summary


async def _edge_cases(stack: Stack) -> int:
    """Return how often the emulators did what the services may do, such as to detach a link or to cut a page."""
    met = Counter(read_journal(stack.edge_journal))
    emulators = [stack.servicebus] if stack.source is Source.SQL else [stack.servicebus, stack.outbox]
    async with aiohttp.ClientSession() as http:
        for part in emulators:
            met.update((await AdminPorts(http).get(part, "edges"))["edges"])
    return met.total()


@asynccontextmanager
async def _load(arguments: Options, stack: Stack) -> AsyncIterator[tuple[Load, Part | None]]:
    """The load, and the process of the contact service if there is one."""
    events, seed = arguments.events, arguments.seed
    if arguments.api:
        async with contacts(
            stack.settings, arguments.logs, arguments.writers, contacts=arguments.keys, events=events, seed=seed
        ) as (service, of_contacts):
            yield of_contacts, service
        return
    options = {"accounts": arguments.keys, "events": events, "batch": arguments.batch, "seed": seed}
    async with bookings(stack.settings, writers=arguments.writers, **options) as of_accounts:
        yield of_accounts, None


@asynccontextmanager
async def _console(arguments: Options, stack: Stack, console: Console) -> AsyncIterator[Sequence[ConsoleObserver]]:
    """Serve the console with `--console`, and give the observer of each stream; without it, give none."""
    if not arguments.console:
        yield ()
        return
    async with serving_observers(stack, arguments.env_file) as (address, observers):
        console.print(f"The console is at {address}")
        yield observers


def _with_second_topic(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return the error counts of both topics, and how many events the second one has."""
    errors = {name: first[name] + second[name] for name in ERRORS if name in second}
    return {**errors, "renames_delivered": second["delivered"]}


async def _write(arguments: Options, load: Load, store: Store, tallies: Sequence[Tally]) -> None:
    """Write every event, then read what was committed."""
    await load.write(arguments.rate)
    for event in await store.events():
        for tally in tallies:
            tally.wrote(event, load.committed_at(event))


async def _follow(
    arguments: Options,
    tallies: Sequence[Tally],
    load: Load,
    writing: asyncio.Task[None],
    stack: Stack,
    console: Console,
    memory: list[int],
) -> None:
    """Show progress until everything committed has arrived, or nothing has for `--timeout` seconds.

    The first of the tallies has every event. `memory` gets the resident bytes of the relay, at each tenth of the
    events.
    """
    tally = tallies[0]
    columns = (TextColumn("{task.description:>9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    kill_at = arguments.events // 2 if arguments.kill_host else None
    last_arrival, last_count = time.monotonic(), 0
    with ProgressBars(*columns, console=console, redirect_stdout=False) as bars:
        written_bar = bars.add_task("written", total=arguments.events)
        delivered_bar = bars.add_task("delivered", total=arguments.events)
        # A busy machine may deliver the second half at once: the host is still killed.
        while not (writing.done() and all(each.complete for each in tallies) and kill_at is None):
            await asyncio.sleep(0.1)
            if writing.done():
                writing.result()
            bars.update(written_bar, completed=load.progress.events)
            bars.update(delivered_bar, completed=tally.arrived)
            if tally.arrived * _MEMORY_SAMPLES >= (len(memory) + 1) * arguments.events:
                memory.append(resident_bytes(stack))
            if kill_at is not None and tally.arrived >= kill_at:
                kill_at = None
                stack.kill_host()
            receipts = sum(each.receipts for each in tallies)
            if receipts > last_count or not writing.done():
                last_arrival, last_count = time.monotonic(), receipts
            elif time.monotonic() - last_arrival > arguments.timeout:
                console.print(f"Nothing arrived for {arguments.timeout:.0f} s: giving up.")
                return
        bars.update(written_bar, completed=load.progress.events)
        bars.update(delivered_bar, completed=tally.arrived)


async def _replace_killed_hosts(stack: Stack, console: Console) -> None:
    """Start another host whenever one ends."""
    while True:
        ended = await stack.host_ended()
        console.print(f"{ended.name} (process {ended.pid}) was killed; starting another.")
        host = await stack.start_host()
        console.print(f"{host.name} is process {host.pid}.")


@asynccontextmanager
async def _background(*jobs: Any) -> AsyncIterator[None]:
    """Run `jobs` during the block: a failure ends the block, and the end of the block cancels them."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(job) for job in jobs]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
