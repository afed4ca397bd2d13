"""`python -m local demo`: the contact service and its consumer on a separate stack, with every event checked."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBars
from rich.table import Table

import inbox
from local.console.serving import observer_of_stack, topic_of
from local.demo.clients import Clients, Progress, UnexpectedAnswer
from local.demo.committed import Store, open_store
from local.demo.console import differences
from local.demo.scenarios import scenarios
from local.demo.subscriber import Observer, Subscriber
from local.demo.tally import Tally
from local.stack.environment import TOPIC, Source, write_env_file
from local.stack.parts import ROOT, Part
from local.stack.supervisor import PartFailed, Stack, StackOptions
from outbox_emulators.command_line import positive
from outbox_emulators.process import Stopped, until_done
from relay.console.application import application
from relay.console.observer import Observer as ConsoleObserver
from relay.console.server import loopback, serving
from relay.settings import FILE_VARIABLE
from samples.contacts.consumer.kept import open_directory

SUBSCRIPTION = "all"
# With `--routes`.
_ROUTES = ROOT / "samples" / "contacts" / "relay.toml"
_RENAME = "ContactNameUpdatedEvent"
_CONTACTS = "contacts"
# Seconds for which an open page still shows the end.
_LAST_LOOK_S = 1.5

_MATCHES = ("directory_matches", "console_matches")
_ERRORS = ("missing", "duplicated", "out_of_order", "altered", "quarantined")

# Leases last a minute in Azure; here a killed host is replaced within seconds.
_QUICK_LEASES = ("--lease-acquire-ms", "1000", "--lease-renew-ms", "1000", "--lease-expiration-ms", "4000")
_QUICK_CLAIMS = {"SQL_CLAIM_S": "4"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `demo`."""
    parser.add_argument(
        "--source",
        type=Source.parse,
        metavar="cosmos|sql",
        default=Source.COSMOS,
        help="where the events come from",
    )
    parser.add_argument("--events", type=positive, default=5000, help="events to raise")
    parser.add_argument("--contacts", type=positive, default=500, help="contacts that raise them")
    parser.add_argument("--rate", type=float, default=150.0, help="events raised per second; 0 for no limit")
    parser.add_argument(
        "--hosts", type=positive, default=1, help="Functions hosts that share the leases, or workers"
    )
    parser.add_argument("--shards", type=positive, default=4, help="shards of the SQL feed")
    parser.add_argument(
        "--writers", type=positive, default=32, help="concurrent clients, each writing one contact at a time"
    )
    parser.add_argument("--receivers", type=positive, default=96, help="sessions received concurrently")
    parser.add_argument("--kill-host", action="store_true", help="kill a host half way, and start another")
    parser.add_argument(
        "--console",
        action="store_true",
        help="also serve the console, and compare what it counts with what the checker counts",
    )
    parser.add_argument(
        "--routes",
        action="store_true",
        help="publish changes of names to a second topic as well, by the sample's relay.toml",
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="seconds to wait without any arrival before giving up"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the contacts' scenarios")
    parser.add_argument(
        "--env-file", type=Path, default=Path(".local/demo.env"), help="file to write the settings to"
    )
    parser.add_argument("--logs", type=Path, default=Path(".local/demo-logs"), help="folder for the logs")


async def run(arguments: argparse.Namespace) -> int:
    """Run the demo, and return the exit code.

    It is 0 when every event arrived once, in order and unaltered, and the directory built from them matches the
    contacts; 1 when not; 130 when stopped.
    """
    # Each logs every request or message at INFO: thousands of lines.
    for name in ("httpx", "inbox", "samples.contacts.consumer"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        summary = await until_done(_demo(arguments))
    except Stopped:
        return 130
    except (PartFailed, UnexpectedAnswer, httpx.HTTPError, ExceptionGroup) as failure:
        cause = _innermost(failure)
        # The errors of httpx may have no text.
        print(f"The demo stopped: {type(cause).__name__}: {cause}", file=sys.stderr)
        return 1
    print(json.dumps(summary), flush=True)
    correct = (
        not any(summary[name] for name in _ERRORS)
        and summary["directory_matches"]
        and summary.get("console_matches", True)
    )
    return 0 if correct and summary["delivered"] == arguments.events else 1


def _innermost(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


async def _demo(arguments: argparse.Namespace) -> dict[str, Any]:
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
    async with Stack(options) as stack, _service(stack, arguments.logs) as service:
        write_env_file(arguments.env_file, stack.settings)
        pids = ", ".join(f"{host.name} is process {host.pid}" for host in stack.hosts)
        console.print(f"The stack is up: {pids}; settings in {arguments.env_file}, logs in {arguments.logs}/.")
        address = f"http://127.0.0.1:{service.details['port']}"
        console.print(f"The contact service is process {service.pid}, at {address}/docs")
        tally = Tally(timestamped=arguments.source is Source.COSMOS)
        renames = Tally(timestamped=tally.timestamped, action=_RENAME)
        started = time.monotonic()
        async with (
            open_store(stack) as store,
            inbox.connect(stack.settings["SERVICEBUS"]) as servicebus,
            _console(arguments, stack, console) as observer,
            Clients(address, arguments.writers) as clients,
        ):
            async with open_directory(stack.settings.get("SQL")) as directory:
                subscriber = Subscriber(directory, tally)
                receiver = inbox.Receiver(
                    servicebus,
                    subscriber,
                    topic=TOPIC,
                    subscription=SUBSCRIPTION,
                    sessions=arguments.receivers,
                )
                second = inbox.Receiver(
                    servicebus,
                    Observer(renames),
                    topic=_CONTACTS,
                    subscription=SUBSCRIPTION,
                    sessions=arguments.receivers,
                )
                async with _background(
                    receiver.run(),
                    *([second.run()] if arguments.routes else []),
                    _replace_killed_hosts(stack, console),
                ):
                    driving = asyncio.create_task(_drive(arguments, clients, store, tally, renames))
                    try:
                        tallies = [tally, renames] if arguments.routes else [tally]
                        await _follow(arguments, tallies, clients.progress, driving, stack, console)
                    finally:
                        driving.cancel()
                seconds = time.monotonic() - started
                directory_matches = await subscriber.agrees_with(await clients.contacts())
            quarantined = await store.quarantined()
            differing = await differences(observer, tally, quarantined, SUBSCRIPTION) if observer else []
            if observer:
                await asyncio.sleep(_LAST_LOOK_S)
        summary = tally.summary()
        if arguments.routes:
            summary |= _with_second_topic(summary, renames.summary())
        summary = {
            **{name: value for name, value in summary.items() if not name.endswith("_ms")},
            "quarantined": quarantined,
            "directory_matches": directory_matches,
            **({"console_matches": not differing} if observer else {}),
            **{name: value for name, value in summary.items() if name.endswith("_ms")},
            "events_per_s": round(tally.delivered / seconds, 1),
        }
        console.print(_table(summary))
        for difference in differing:
            console.print(f"The console differs: {difference}.")
        progress = clients.progress
        console.print(
            f"{progress.requests} requests. {progress.refused} changes were refused as outdated (412) and "
            "repeated on the latest version."
        )
        return summary


@asynccontextmanager
async def _console(
    arguments: argparse.Namespace, stack: Stack, console: Console
) -> AsyncIterator[ConsoleObserver | None]:
    """With `--console`, the stack's page, without what changes anything; its observer looks all the time."""
    if not arguments.console:
        yield None
        return
    async with (
        observer_of_stack(stack, topic_of(stack), always=True) as observer,
        serving(application(observer, loopback, name=TOPIC), "127.0.0.1", 0) as address,
    ):
        console.print(f"The console is at {address}")
        yield observer


@asynccontextmanager
async def _service(stack: Stack, logs: Path) -> AsyncIterator[Part]:
    """The contact service on the stack's store, as its own process."""
    part = await Part.start(
        *("contacts", "local", "contacts", "--exit-with-stdin", "--port", "0"),
        log=logs / "contacts.log",
        environment=stack.settings,
    )
    try:
        yield part
    finally:
        await part.stop()


def _with_second_topic(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return the error counts of both topics, and how many events the second one has."""
    errors = {name: first[name] + second[name] for name in _ERRORS if name in second}
    return {**errors, "renames_delivered": second["delivered"]}


async def _drive(
    arguments: argparse.Namespace, clients: Clients, store: Store, tally: Tally, renames: Tally
) -> None:
    """Run every contact's scenario, then read what was committed."""
    contacts = min(arguments.contacts, arguments.events)
    await clients.run(scenarios(contacts, arguments.events, arguments.seed), arguments.rate)
    await store.read_committed(tally)
    if arguments.routes:
        await store.read_committed(renames)


async def _follow(
    arguments: argparse.Namespace,
    tallies: Sequence[Tally],
    written: Progress,
    driving: asyncio.Task[None],
    stack: Stack,
    console: Console,
) -> None:
    """Show progress until everything committed has arrived, or nothing has for `--timeout` seconds.

    The first of the tallies has every event.
    """
    tally = tallies[0]
    columns = (TextColumn("{task.description:>9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    kill_at = arguments.events // 2 if arguments.kill_host else None
    last_arrival, last_count = time.monotonic(), 0
    with ProgressBars(*columns, console=console, redirect_stdout=False) as bars:
        written_bar = bars.add_task("written", total=arguments.events)
        delivered_bar = bars.add_task("delivered", total=arguments.events)
        # A busy machine may deliver the second half at once: the host is still killed.
        while not (driving.done() and all(each.complete for each in tallies) and kill_at is None):
            await asyncio.sleep(0.1)
            if driving.done():
                driving.result()
            bars.update(written_bar, completed=written.events)
            bars.update(delivered_bar, completed=tally.arrived)
            if kill_at is not None and tally.arrived >= kill_at:
                kill_at = None
                stack.kill_host()
            receipts = sum(each.receipts for each in tallies)
            if receipts > last_count or not driving.done():
                last_arrival, last_count = time.monotonic(), receipts
            elif time.monotonic() - last_arrival > arguments.timeout:
                console.print(f"Nothing arrived for {arguments.timeout:.0f} s: giving up.")
                return
        bars.update(written_bar, completed=written.events)
        bars.update(delivered_bar, completed=tally.arrived)
    # A duplicate could still arrive: wait for a poll and a session.
    await asyncio.sleep(1.5)


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


def _table(summary: dict[str, Any]) -> Table:
    table = Table("", "count", title="What was committed, and what arrived")
    for name, value in summary.items():
        expected = value == 0 if name in _ERRORS else value
        style = ("green" if expected else "bold red") if name in (*_ERRORS, *_MATCHES) else ""
        table.add_row(name, str(value), style=style)
    return table
