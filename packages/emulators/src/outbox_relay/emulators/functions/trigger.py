"""The Cosmos DB trigger's binding: its properties, defaults and `%SETTING%` expressions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.settings import Settings

DEFAULT_FEED_POLL_DELAY_MS = 5_000
DEFAULT_LEASE_ACQUIRE_MS = 13_000
DEFAULT_LEASE_RENEW_MS = 17_000
DEFAULT_LEASE_EXPIRATION_MS = 60_000
DEFAULT_LEASE_CONTAINER = "leases"
DEFAULT_CONNECTION = "CosmosDB"

_UNSPECIFIED = (
    "startFromTime is {!r}: StartTime cannot have DateTimeKind.Unspecified. "
    "Write a zone, as in 2021-02-16T14:19:29Z"
)
_EXPRESSIONS = (
    "databaseName",
    "containerName",
    "leaseDatabaseName",
    "leaseContainerName",
    "leaseContainerPrefix",
    "startFromTime",
)


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """Seconds between two searches for leases, between two renewals of a lease, and until a lease expires."""

    acquire_s: float
    renew_s: float
    expiration_s: float


@dataclass(frozen=True, slots=True)
class LeaseOverrides:
    """Milliseconds that override the trigger's, so that a take-over need not take a minute."""

    acquire_ms: int | None = None
    renew_ms: int | None = None
    expiration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CosmosTrigger:
    """A trigger with its expressions resolved. `start_from` is "Beginning", "Now" or a moment in UTC.

    `start_refused` says why the processor cannot start from the time that is set; None if it can.
    """

    connection: str
    database: str
    container: str
    lease_connection: str
    lease_database: str
    lease_container: str
    lease_container_prefix: str
    create_lease_container: bool
    feed_poll_delay_s: float
    max_items_per_invocation: int | None
    start_from: str | datetime
    timings: LeaseTimings
    start_refused: str | None = None

    @classmethod
    def from_binding(
        cls, function: str, binding: Mapping[str, Any], settings: Settings, overrides: LeaseOverrides
    ) -> CosmosTrigger:
        """Read a binding, with the defaults of CosmosDBTriggerAttribute of Azure/azure-webjobs-sdk-extensions.

        Raises HostError.
        """
        text = _resolved(function, binding, settings)
        numbers = _Numbers(function, binding)
        connection = str(binding.get("connection") or DEFAULT_CONNECTION)
        start_from = _start_from(function, _flag(binding.get("startFromBeginning")), text["startFromTime"])
        is_unspecified = isinstance(start_from, datetime) and start_from.tzinfo is None
        trigger = cls(
            connection=connection,
            database=text["databaseName"],
            container=text["containerName"],
            lease_connection=str(binding.get("leaseConnection") or connection),
            lease_database=text["leaseDatabaseName"] or text["databaseName"],
            lease_container=text["leaseContainerName"] or DEFAULT_LEASE_CONTAINER,
            lease_container_prefix=text["leaseContainerPrefix"],
            create_lease_container=_flag(binding.get("createLeaseContainerIfNotExists")),
            feed_poll_delay_s=numbers.positive("feedPollDelay", DEFAULT_FEED_POLL_DELAY_MS) / 1_000,
            max_items_per_invocation=numbers.positive("maxItemsPerInvocation", 0) or None,
            start_from=start_from if isinstance(start_from, str) else start_from.astimezone(UTC),
            timings=LeaseTimings(
                (overrides.acquire_ms or numbers.positive("leaseAcquireInterval", DEFAULT_LEASE_ACQUIRE_MS))
                / 1_000,
                (overrides.renew_ms or numbers.positive("leaseRenewInterval", DEFAULT_LEASE_RENEW_MS)) / 1_000,
                (
                    overrides.expiration_ms
                    or numbers.positive("leaseExpirationInterval", DEFAULT_LEASE_EXPIRATION_MS)
                )
                / 1_000,
            ),
            start_refused=_UNSPECIFIED.format(text["startFromTime"]) if is_unspecified else None,
        )
        trigger._check(function)
        return trigger

    def _check(self, function: str) -> None:
        if not self.database or not self.container:
            raise HostError(f"function {function}: its trigger must name a database and a container")
        monitored = (self.connection, self.database, self.container)
        if monitored == (self.lease_connection, self.lease_database, self.lease_container):
            raise HostError(
                f"function {function}: {self.container} cannot hold its own leases: name another container"
            )


def _resolved(function: str, binding: Mapping[str, Any], settings: Settings) -> dict[str, str]:
    texts = {name: str(binding.get(name) or "") for name in _EXPRESSIONS}
    missing = [f"{setting} (for {name})" for name, text in texts.items() for setting in settings.missing(text)]
    if missing:
        raise HostError(f"function {function}: its trigger needs settings that are not set: {', '.join(missing)}")
    return {name: settings.resolve(text) for name, text in texts.items()}


@dataclass(frozen=True, slots=True)
class _Numbers:
    function: str
    binding: Mapping[str, Any]

    def positive(self, name: str, default: int) -> int:
        """Return the property if it is above zero, else the default: to the extension zero means "not set"."""
        value = self.binding.get(name)
        try:
            number = int(value) if value is not None else 0
        except (TypeError, ValueError):
            raise HostError(
                f"function {self.function}: {name} is {value!r}; it must be a number (the host resolves %SETTING% "
                "only in text)"
            ) from None
        return number if number > 0 else default


def _flag(value: object) -> bool:
    return str(value).casefold() == "true"


def _start_from(function: str, from_beginning: bool, from_time: str) -> str | datetime:
    """Return the start that the extension reads with DateTime.TryParse.

    Without a zone, the moment has none either.
    """
    if not from_time:
        return "Beginning" if from_beginning else "Now"
    if from_beginning:
        raise HostError(f"function {function}: only one of startFromBeginning and startFromTime can be used")
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError):
            return read(from_time)
    raise HostError(
        f"function {function}: startFromTime is {from_time!r}; write ISO 8601 in UTC, as 2021-02-16T14:19:29Z"
    )
