"""The part that has the outbox: Cosmos DB's emulator, or PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from local.stack.environment import CONTAINERS, Source, container_argument, cosmos_settings, sql_settings
from local.stack.options import StackOptions
from local.stack.parts import Part, emulator, output_of

_INSTALL_TIMEOUT_S = 60.0


async def start(options: StackOptions) -> Part:
    """Start the outbox of the stack's source. Raises PartFailed."""
    return await (_start_postgresql(options) if options.source is Source.SQL else _start_cosmos(options))


@contextmanager
def keeping(options: StackOptions) -> Iterator[StackOptions]:
    """Yield options with which an outbox that is killed keeps its data until the block ends."""
    if options.data is not None:
        yield options
    elif options.source is Source.SQL:
        # Not among the logs, where the user that PostgreSQL runs as may not read.
        folder = Path(mkdtemp(prefix="outbox-postgresql-"))
        try:
            yield replace(options, data=folder, temporary=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    else:
        file = options.logs / "cosmos.sqlite"
        _remove(file)
        try:
            yield replace(options, data=file)
        finally:
            _remove(file)


def _remove(file: Path) -> None:
    """Remove a file of SQLite, with those beside it."""
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
        file.with_name(name).unlink(missing_ok=True)


def settings(outbox: Part, options: StackOptions) -> dict[str, str]:
    """Return the settings that point the relay and the contact service at the outbox."""
    if options.source is Source.SQL:
        return sql_settings(outbox.details, options.shards)
    return cosmos_settings(outbox.details)


async def install(environment: Mapping[str, str]) -> None:
    """Make the event table of an SQL outbox and its feed, as an operator does.

    Args:
        environment: The settings.

    Raises:
        RuntimeError: The command failed; the message has the end of its standard error.
        TimeoutError: It took too long.
    """
    command = ("-m", "relay", "install", "--create-table", "--keep", "forever")
    await output_of(*command, environment=environment, within_s=_INSTALL_TIMEOUT_S)


async def _start_cosmos(options: StackOptions) -> Part:
    arguments = ["--port", str(options.cosmos_port), *options.edge_options, *options.cosmos_options]
    arguments += options.record_options("cosmos")
    for name, partition_key, ttl in CONTAINERS:
        arguments += ["--container", container_argument(name, partition_key, ttl)]
    if options.data is not None:
        arguments += ["--data", str(options.data)]
    return await emulator("cosmos", *arguments, log=options.logs / "cosmos.log")


async def _start_postgresql(options: StackOptions) -> Part:
    data = () if options.data is None else ("--data", str(options.data))
    data = (*data, "--temporary") if options.temporary else data
    return await Part.start(
        "postgresql",
        *("local", "postgresql", "--exit-with-stdin", "--port", str(options.postgresql_port), *data),
        log=options.logs / "postgresql.log",
    )
