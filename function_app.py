"""The composition root: for each stream of the settings, a trigger for its outbox: Cosmos DB, SQL or both.

For Cosmos DB there is a timer in addition, which looks at the leases. With wrong settings there is one
timer alone, which fails with their names.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import azure.functions as func

from relay.assembly import CosmosRelay, SqlRelay, assemble, assemble_sql, assemble_watch
from relay.clients import quiet_libraries, switch_off_sdk_tracing
from relay.cosmos.source import ChangeBatch, install_decoder
from relay.errors import SettingsError
from relay.routes.selection import DEFAULT
from relay.settings import Settings, function_timeout_s
from relay.streams import read_streams

if TYPE_CHECKING:
    from relay.cosmos.ages import LeaseWatch

APP = Path(__file__).parent

quiet_libraries()
switch_off_sdk_tracing()
install_decoder()
app = func.FunctionApp()
streams: dict[str, Settings] = {}


@functools.cache
def relay(stream: str) -> CosmosRelay:
    """Return the process's relay of a stream.

    The first invocation creates it: it belongs to the worker's event loop.
    """
    return assemble(streams[stream])


@functools.cache
def sql_relay(stream: str) -> SqlRelay:
    """Return the process's relay of a stream from an SQL outbox, which the first tick creates."""
    return assemble_sql(streams[stream])


@functools.cache
def watch(stream: str) -> LeaseWatch:
    """Return the stream's lease watch, which the first tick creates."""
    return assemble_watch(streams[stream])


def named(base: str, settings: Settings) -> str:
    """Return the name of a stream's function: the base alone for the first stream."""
    return base if settings.stream == DEFAULT else f"{base}_{settings.stream.replace('-', '_')}"


def add_cosmos(settings: Settings) -> None:
    """Relay the outbox in Cosmos DB of one stream."""

    # Without a retry policy the trigger checkpoints a batch whose invocation failed: its events would be lost
    # (docs/decisions/0001-retry-policy.md). Unlimited, as an outage has no limit either; poison is quarantined.
    @app.retry(
        strategy="exponential_backoff",
        max_retry_count="-1",
        minimum_interval="00:00:01",
        maximum_interval="00:01:00",
    )
    @app.cosmos_db_trigger(
        arg_name="documents",
        connection="COSMOS",
        database_name=settings.cosmos_database,
        container_name=settings.cosmos_container,
        lease_container_name=settings.cosmos_lease_container,
        lease_container_prefix=settings.lease_prefix or None,
        create_lease_container_if_not_exists=False,
        max_items_per_invocation=settings.max_items,
        feed_poll_delay=settings.poll_delay_ms,
        start_from_beginning=True,  # type: ignore[arg-type]  # the binding's is a boolean; the stub says time
    )
    @app.function_name(named("relay", settings))
    async def relay_changes(documents: ChangeBatch, context: func.Context) -> None:
        """Relay one batch of changes; raising keeps the checkpoint where it is until the retry succeeds."""
        await relay(settings.stream).handle(documents, context.invocation_id, context.retry_context.retry_count)

    # The host runs a timer in one instance. A lease that is stuck calls nobody: this looks at all of them.
    @app.timer_trigger(schedule="0 * * * * *", arg_name="timer", run_on_startup=False, use_monitor=False)
    @app.function_name(named("relay_age", settings))
    async def look_at_leases(timer: func.TimerRequest) -> None:
        """Measure how long changes have waited that the leases have not passed."""
        await watch(settings.stream).look()


def add_sql(settings: Settings) -> None:
    """Relay the SQL outbox of one stream."""
    # A process waits for its imports before its first event.
    from relay.sql.worker import SCHEDULE, read_until_next_tick

    @app.timer_trigger(schedule=SCHEDULE, arg_name="timer", run_on_startup=True, use_monitor=False)
    @app.function_name(named("relay_sql", settings))
    async def relay_feed(timer: func.TimerRequest) -> None:
        """Publish from the SQL feed until shortly before the next tick; the cursors are stored by the worker."""
        await read_until_next_tick(sql_relay(settings.stream).worker)


def add_refusal(problems: list[str]) -> None:
    """Fail once a minute with the settings to correct, in place of all other functions.

    A host that cannot index the app shows no reason (4.1037: "0 functions loaded"), and counts as healthy.
    """

    @app.timer_trigger(schedule="0 * * * * *", arg_name="timer", run_on_startup=True, use_monitor=False)
    @app.function_name("relay_settings")
    async def refuse_settings(timer: func.TimerRequest) -> None:
        """Raise what is wrong, where the log, the portal and alerts show it."""
        raise SettingsError(problems)


def add_functions() -> None:
    """Add the functions of every stream, or the one that names wrong settings."""
    try:
        found = read_streams(os.environ, app=APP, function_timeout_s=function_timeout_s(APP))
    except SettingsError as error:
        add_refusal(error.problems)
        return
    for each in found:
        streams[each.stream] = each
        if each.cosmos is not None:
            add_cosmos(each)
        if each.sql is not None:
            add_sql(each)


add_functions()
