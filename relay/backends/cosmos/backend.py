"""The backend of an outbox in Cosmos DB, whose change feed the Functions host reads."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import azure.functions as func

from relay.backends import assembly
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.quarantine import CosmosItems
from relay.backends.cosmos.source import (
    ChangeBatch,
    CosmosBatch,
    CosmosSource,
    CosmosSourceInTime,
    install_decoder,
)
from relay.config.settings import Settings
from relay.core.pipeline import Relay
from relay.telemetry import instruments
from relay.telemetry.gauges import LeaseAges

if TYPE_CHECKING:
    from relay.backends.cosmos.ages import LeaseWatch
    from relay.quarantine.items import Items
    from relay.routes.rulebook import Timelines

CosmosRelay = Relay[CosmosBatch]


class CosmosBackend:
    """An outbox in Cosmos DB (`relay.backends.backend.Backend`)."""

    name = "cosmos"
    shards: int | None = None
    has_rows = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.outbox = settings.in_cosmos

    @cached_property
    def relay(self) -> CosmosRelay:
        """The process's relay of the stream.

        The first invocation creates it: it belongs to the worker's event loop.
        """
        containers, selection = Containers(self.outbox), self.settings.selection
        rules = assembly.rules_in_time(self.settings, lambda: self._timelines(containers))
        source = CosmosSource(selection, containers)
        if rules is not None:
            source = CosmosSourceInTime(selection, containers, rules)
        return assembly.assemble(self.settings, source, CosmosItems(containers))

    @cached_property
    def watch(self) -> LeaseWatch:
        """The process's watch that measures how long changes wait. It is connected only while it looks."""
        from relay.backends.cosmos.ages import LeaseWatch

        ages = LeaseAges()
        instruments.observe_leases(ages)
        return LeaseWatch(self.settings, ages, assembly.rules_in_time(self.settings, self.open_timelines))

    def add_functions(self, app: func.FunctionApp) -> None:
        install_decoder()

        # Without a retry policy the trigger checkpoints a batch whose invocation failed: its events would be
        # lost (docs/decisions/0001-retry-policy.md). Unlimited, as an outage has no limit either; poison is
        # quarantined.
        @app.retry(
            strategy="exponential_backoff",
            max_retry_count="-1",
            minimum_interval="00:00:01",
            maximum_interval="00:01:00",
        )
        @app.cosmos_db_trigger(
            arg_name="documents",
            connection="COSMOS",
            database_name=self.outbox.database,
            container_name=self.outbox.container,
            lease_container_name=self.outbox.lease_container,
            lease_container_prefix=self.outbox.lease_prefix or None,
            create_lease_container_if_not_exists=False,
            max_items_per_invocation=self.settings.policy.max_items,
            feed_poll_delay=self.settings.policy.poll_delay_ms,
            start_from_beginning=True,  # type: ignore[arg-type]  # the binding's is a boolean; the stub says time
        )
        @app.function_name(self.settings.function_name("relay"))
        async def relay_changes(documents: ChangeBatch, context: func.Context) -> None:
            """Relay one batch of changes; raising keeps the checkpoint where it is until the retry succeeds."""
            await self.relay.handle(documents, context.invocation_id, context.retry_context.retry_count)

        # The host runs a timer in one instance. A lease that is stuck calls nobody: this looks at all of them.
        @app.timer_trigger(schedule="0 * * * * *", arg_name="timer", run_on_startup=False, use_monitor=False)
        @app.function_name(self.settings.function_name("relay_age"))
        async def look_at_leases(timer: func.TimerRequest) -> None:
            """Measure how long changes have waited that the leases have not passed."""
            await self.watch.look()

    def open_store(self) -> Items:
        return CosmosItems(Containers(self.outbox))

    def open_timelines(self) -> Timelines:
        return self._timelines(Containers(self.outbox))

    def _timelines(self, containers: Containers) -> Timelines:
        from relay.backends.cosmos.timelines import CosmosTimelines

        return CosmosTimelines(containers, self.outbox.container, self.outbox.lease_container)
