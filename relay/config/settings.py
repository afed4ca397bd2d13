"""The settings of a stream in four parts: Service Bus, the outbox in Cosmos DB or SQL, and the policy."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from relay.config.clients import (
    BLOB_PARTS,
    COSMOS_PARTS,
    ENTITY,
    ENTITY_FORM,
    SERVICEBUS_PARTS,
    Connection,
    ConnectionString,
    Identity,
)
from relay.config.reader import Reader, is_encoded_url
from relay.config.secrecy import hidden, looks_secret, quoted
from relay.core.errors import DestinationSettings, SettingsError, UsageError
from relay.routes.selection import BY_DEFAULT, DEFAULT, Selection

MAX_SENDERS = 256

CONSUMER = "relay"
"""The name under which the first stream of an SQL feed claims shards and stores cursors; others add their own."""

QUARANTINE_TABLE = "relay.item"
"""The table of the quarantine of the first stream of an SQL feed; others add their own name."""

SERVICEBUS = "SERVICEBUS"
"""The setting of the namespace that a destination has if it names no other."""

TOPIC = "SERVICEBUS_TOPIC"
"""The setting of the topic to which events go if relay.toml names no other."""

FILE_VARIABLE = "RELAY_FILE"
"""The setting that names another file than relay.toml; relative to the app's folder."""

# Default of RELAY_ATTEMPT_TIMEOUT_S.
ATTEMPT_TIMEOUT_S = 480.0

# Seconds that an attempt may take after that: comparing with the leases, and writing to quarantine.
ATTEMPT_MARGIN_S = 60.0

# With about 2.3 times as much for their messages, that leaves room in an instance of 512 MiB.
_MAX_BYTES = 64 * 1024**2

_POSTGRESQL = ("postgresql://", "postgres://")

# Of a database or a container of Cosmos DB.
_MAX_NAME = 255
_ILLEGAL_IN_NAME = re.compile(r"[/\\?#\t\r\n]|%[0-9A-Fa-f]{2}")

# https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
_BLOB_CONTAINER = re.compile(r"(?=.{3,63}$)[a-z0-9]+(?:-[a-z0-9]+)*")


class OnPoison(StrEnum):
    """The treatment of a partition key's later events when one is set aside (RELAY_ON_POISON)."""

    SKIP = "skip"
    PARK = "park"
    BLOCK = "block"


class Large(StrEnum):
    """The treatment of an event whose message is larger than the topic takes (RELAY_LARGE)."""

    QUARANTINE = "quarantine"
    CLAIM_CHECK = "claim-check"


@dataclass(frozen=True, slots=True)
class ServiceBusSettings:
    """The topic or queue of a stream, and how to send to it.

    Attributes:
        connection: How to reach the namespace.
        entity: The topic's name, or the queue's.
        is_queue: Whether it is a queue.
        setting: The setting that has `connection`.
        entity_setting: The setting that has `entity`, or the place in relay.toml.
        pipelined: Whether all keys share one connection; else each sender of a pool has its own.
        senders: How many partition keys are sent at a time; None for the default.
        send_timeout_s: Seconds that a send may take.
        duplicate_window_s: The duplicate detection window of the topic or queue, in seconds.
    """

    connection: Connection
    entity: str
    pipelined: bool
    senders: int | None
    send_timeout_s: float
    duplicate_window_s: float
    is_queue: bool = False
    setting: str = SERVICEBUS
    entity_setting: str = TOPIC

    @property
    def kind(self) -> str:
        """The kind of entity: `topic` or `queue`."""
        return "queue" if self.is_queue else "topic"

    @property
    def destination(self) -> str:
        """The topic or the queue, in a sentence."""
        return f"the {self.kind} {self.entity!r}"

    @property
    def named_by(self) -> DestinationSettings:
        """The settings that name the topic or queue, for remedies."""
        return DestinationSettings(self.entity_setting, self.setting, self.kind)

    @classmethod
    def read(cls, reader: Reader, namespaces: Collection[str]) -> ServiceBusSettings:
        """Read the part.

        Args:
            reader: The settings.
            namespaces: As of `Settings.from_environment`.
        """
        connections = [read_namespace(reader, name) for name in namespaces]
        connections = connections or [read_namespace(reader, SERVICEBUS, required=False)]
        entity = reader.text(TOPIC, "domain-events")
        if not ENTITY.fullmatch(entity):
            reader.wrong(f"{TOPIC} is {quoted(entity)}: set it to {ENTITY_FORM}")
        return cls(
            connections[0],
            entity,
            reader.boolean("RELAY_PIPELINED", default=True),
            reader.optional_integer("RELAY_SENDERS", at_least=1, at_most=MAX_SENDERS),
            reader.seconds("RELAY_SEND_TIMEOUT_S", 30.0),
            # The range of the service; its default is ten minutes.
            reader.seconds("RELAY_DUPLICATE_WINDOW_S", 600.0, at_least=20, at_most=604_800),
        )


@dataclass(frozen=True, slots=True)
class CosmosSettings:
    """An outbox in Cosmos DB: its containers, which are in one database.

    Attributes:
        connection: How to reach the account.
        lease_prefix: The beginning of the ids of the stream's leases.
    """

    connection: Connection
    database: str
    container: str
    lease_container: str
    quarantine_container: str
    lease_prefix: str = ""

    @classmethod
    def read(cls, reader: Reader, *, required: bool) -> CosmosSettings | None:
        """Read the part; None if there is no outbox in Cosmos DB, which is wrong if it is `required`."""
        connection = reader.connection(
            "COSMOS",
            address="accountEndpoint",
            parts=COSMOS_PARTS,
            example="https://<account>.documents.azure.com:443/",
            required=required,
            otherwise="; or SQL, for an outbox in SQL",
        )
        database = _cosmos_name(reader, "COSMOS_DATABASE", "outbox")
        containers = {
            "COSMOS_CONTAINER": _cosmos_name(reader, "COSMOS_CONTAINER", "data"),
            "COSMOS_LEASE_CONTAINER": _cosmos_name(reader, "COSMOS_LEASE_CONTAINER", "leases"),
            "COSMOS_QUARANTINE_CONTAINER": _cosmos_name(reader, "COSMOS_QUARANTINE_CONTAINER", "quarantine"),
        }
        if len(set(containers.values())) < len(containers):
            reader.wrong(f"{', '.join(containers)} must name three different containers")
        return None if connection is None else cls(connection, database, *containers.values())


def _cosmos_name(reader: Reader, name: str, default: str) -> str:
    """Return the name of a database or container.

    https://learn.microsoft.com/azure/cosmos-db/concepts-limits has the length, and
    https://learn.microsoft.com/dotnet/api/microsoft.azure.documents.resource.id the characters. A gateway decodes
    `%` and two hexadecimal digits once more than the client that signed the path, and answers 401.
    """
    value = reader.text(name, default)
    if len(value) > _MAX_NAME or _ILLEGAL_IN_NAME.search(value):
        reader.wrong(
            f"{name} is {quoted(value)}: set a name of 1 to {_MAX_NAME} characters without / \\ ? or #, tabs or "
            "line breaks, or % before two hexadecimal digits"
        )
    return value


@dataclass(frozen=True, slots=True)
class SqlFeed:
    """The address of an SQL outbox, and the settings for reading it.

    Attributes:
        connection_string: A URL of PostgreSQL or a connection string of SQL Server. It may hold a password.
        identity: The identity whose token to use if the URL of a server of Azure has no password.
        feed: The event table, as it was given to setup_feed: `schema.Table`.
        shards: Number of shards: 0 to `shards` - 1.
        claim_s: After how many seconds without a sign of life a process has lost its shards.
        max_bytes: Size of the events that a process has in memory at a time, those of all its shards together.
        consumer: The name under which the relay claims shards and stores cursors.
        quarantine_table: The table of the quarantine, as `schema.Table`.
        selection: The rows that are events of the stream: those of the settings (`Settings.feed`).
        label: The stream's name: that of the settings (`Settings.feed`).
    """

    connection_string: str
    identity: Identity
    feed: str
    shards: int
    claim_s: float
    max_bytes: int = _MAX_BYTES
    consumer: str = CONSUMER
    quarantine_table: str = QUARANTINE_TABLE
    selection: Selection = BY_DEFAULT
    label: str | None = None

    @property
    def is_postgresql(self) -> bool:
        """Return True for PostgreSQL, where names differ by case."""
        return self.connection_string.startswith(_POSTGRESQL)

    @classmethod
    def read(cls, reader: Reader) -> SqlFeed | None:
        """Read the part; None if there is no outbox in SQL."""
        feed = reader.text("SQL_FEED", "outbox.domain_event")
        shards = reader.integer("SQL_SHARDS", 1, at_least=1, at_most=1024)
        claim_s = reader.seconds("SQL_CLAIM_S", 10.0, at_least=2, at_most=300)
        max_bytes = reader.integer("SQL_MAX_BYTES", _MAX_BYTES, at_least=1024**2, at_most=1024**4)
        identity = reader.identity("SQL")
        whole = reader.get("SQL")
        if whole is None:
            return None
        _check_sql(reader, whole)
        schema, _, table = feed.partition(".")
        if not (schema and table):
            reader.wrong(f"SQL_FEED is {quoted(feed)}: set it to the event table as schema.Table")
        return cls(whole, identity, feed, shards, claim_s, max_bytes)

    def __repr__(self) -> str:
        return f"SqlFeed(feed={self.feed!r}, shards={self.shards}, claim_s={self.claim_s:g}, connection_string=…)"


def _check_sql(reader: Reader, value: str) -> None:
    # The message shows no part of the value: it may hold a password.
    if value.startswith(_POSTGRESQL):
        if not is_encoded_url(value):
            reader.wrong(
                "SQL is no URL of PostgreSQL: set it to postgresql://user:password@host:5432/database, with "
                "%25 for %, %40 for @, %2F for /, %3A for : and %20 for a space in the password"
            )
        return
    given = ConnectionString(value)
    if given.get("Server") is None or given.get("Database") is None:
        reader.wrong(
            "SQL is no connection string: set it to postgresql://user@host/database, or to "
            "Server=…;Database=…;… for Azure SQL and SQL Server"
        )


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """Where the contents of large events are stored: a container of Blob Storage."""

    connection: Connection
    container: str

    @classmethod
    def read(cls, reader: Reader) -> ClaimCheck | None:
        """Read the part; None if large events are quarantined."""
        is_chosen = reader.choice("RELAY_LARGE", tuple(Large)) == Large.CLAIM_CHECK
        container = reader.text("RELAY_BLOB_CONTAINER", "large-events")
        if not _BLOB_CONTAINER.fullmatch(container):
            reader.wrong(
                f"RELAY_BLOB_CONTAINER is {quoted(container)}: set 3 to 63 small letters, digits and single "
                "hyphens"
            )
        connection = reader.connection(
            "BLOBS",
            address="serviceUri",
            parts=BLOB_PARTS,
            example="https://<account>.blob.core.windows.net",
            required=is_chosen,
            otherwise="; or leave RELAY_LARGE out",
        )
        return cls(connection, container) if is_chosen and connection is not None else None


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The choice of events, the form of their messages, and the treatment of those that cannot be sent.

    Attributes:
        event_type: The type of the documents that are events.
        max_items: The most changes of a page.
        poll_delay_ms: Milliseconds between two looks for changes where there were none.
        attempt_timeout_s: Seconds after which an attempt to publish a page gives up.
        on_poison: The treatment of a partition key's later events when one is set aside.
        cloudevents_source: The source of messages in the CloudEvents format; None for the plain one.
        claim_check: Where the contents of large events are stored; None if large events are quarantined.
    """

    event_type: str
    max_items: int
    poll_delay_ms: int
    attempt_timeout_s: float
    on_poison: OnPoison
    cloudevents_source: str | None
    claim_check: ClaimCheck | None

    @classmethod
    def read(cls, reader: Reader) -> PolicySettings:
        """Read the part."""
        return cls(
            reader.text("RELAY_EVENT_TYPE", "domainEvent"),
            reader.integer("RELAY_MAX_ITEMS", 1000, at_least=1, at_most=100_000),
            reader.integer("RELAY_POLL_DELAY_MS", 500, at_least=1, at_most=3_600_000),
            reader.seconds("RELAY_ATTEMPT_TIMEOUT_S", ATTEMPT_TIMEOUT_S),
            OnPoison(reader.choice("RELAY_ON_POISON", tuple(OnPoison))),
            _cloudevents_source(reader),
            ClaimCheck.read(reader),
        )


def _cloudevents_source(reader: Reader) -> str | None:
    """Return the CloudEvents source if that format is chosen, None for the plain one."""
    chosen = reader.choice("RELAY_MESSAGE_FORMAT", ("plain", "cloudevents"))
    source = reader.get("RELAY_CLOUDEVENTS_SOURCE")
    if source is not None and looks_secret(source):
        reader.wrong(f"RELAY_CLOUDEVENTS_SOURCE is {hidden(source)}: each message would have it")
    if chosen == "plain":
        return None
    if source is None or any(character.isspace() for character in source):
        reader.wrong(
            "RELAY_CLOUDEVENTS_SOURCE must be a URI-reference when RELAY_MESSAGE_FORMAT is 'cloudevents', "
            "such as /contacts"
        )
    return source


@dataclass(frozen=True, slots=True)
class DeployedRules:
    """The rules that a process was deployed with, where they have generations.

    Attributes:
        text: As `streams.text_of_rules` writes them.
        since: When the process has read them, in seconds since 1970.
    """

    text: str
    since: float


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one stream. `docs/settings.md` lists their names in the environment.

    Attributes:
        servicebus: The topic or queue.
        cosmos: The outbox in Cosmos DB; None if there is none.
        sql: The outbox in SQL; None if there is none.
        policy: What counts for every source.
        stream: The name of the stream, `default` where relay.toml makes no others.
        outbox: The name of its outbox in relay.toml.
        routed: The events of the stream by relay.toml; None if the event type alone decides.
        several: Whether the app has other streams too.
        rules: The rules that the app is deployed with, where they have generations; None where they count for all
            events, whenever those were committed.
        says_which_count: Whether relay.toml has chosen for which events changed rules count.
    """

    servicebus: ServiceBusSettings
    cosmos: CosmosSettings | None
    sql: SqlFeed | None
    policy: PolicySettings
    stream: str = DEFAULT
    outbox: str = DEFAULT
    routed: Selection | None = None
    several: bool = False
    rules: DeployedRules | None = None
    says_which_count: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that have an outbox of the stream, by the names that `--source` has for them."""
        outboxes = {"cosmos": self.cosmos, "sql": self.sql}
        return tuple(name for name, outbox in outboxes.items() if outbox is not None)

    def with_source(self, source: str) -> Settings:
        """Return the settings without the outboxes of all other sources."""
        cosmos = self.cosmos if source == "cosmos" else None
        return replace(self, cosmos=cosmos, sql=self.sql if source == "sql" else None)

    def function_name(self, base: str) -> str:
        """Return the name of a function of the app for this stream: the base alone for the first stream."""
        return base if self.stream == DEFAULT else f"{base}_{self.stream.replace('-', '_')}"

    @property
    def label(self) -> str | None:
        """The stream's name for commands and telemetry; None where the app has no stream but `default`."""
        return self.stream if self.several or self.stream != DEFAULT else None

    @property
    def selection(self) -> Selection:
        """The documents that are events of this stream."""
        return self.routed or Selection((self.policy.event_type,))

    @property
    def in_cosmos(self) -> CosmosSettings:
        """The outbox in Cosmos DB. Raises UsageError if there is none."""
        if self.cosmos is None:
            raise UsageError("COSMOS is not set: this works on an outbox in Cosmos DB only")
        return self.cosmos

    @property
    def feed(self) -> SqlFeed | None:
        """The SQL outbox, with the selection and the label of these settings."""
        return None if self.sql is None else replace(self.sql, selection=self.selection, label=self.label)

    @classmethod
    def from_environment(
        cls,
        environment: Mapping[str, str],
        *,
        function_timeout_s: float | None = None,
        namespaces: Collection[str] = (SERVICEBUS,),
    ) -> Settings:
        """Read and check every setting. A blank value counts as not set.

        Args:
            environment: The values by their names.
            function_timeout_s: The host's `functionTimeout`, below which an attempt has to end; None if no host
                ends it.
            namespaces: The settings that say how to reach a namespace of Service Bus. The first is the one of
                the settings; the others are checked, and `read_namespace` reads them. Without any, it is not known
                which one has to be set.

        Raises:
            SettingsError: Naming everything that is missing or wrong, not only the first.
        """
        reader = Reader(environment)
        sql = SqlFeed.read(reader)
        settings = cls(
            cosmos=CosmosSettings.read(reader, required=sql is None),
            sql=sql,
            servicebus=ServiceBusSettings.read(reader, namespaces),
            policy=PolicySettings.read(reader),
        )
        reader.text(FILE_VARIABLE, "")
        _check_timeouts(reader, settings, function_timeout_s)
        reader.misspelt()
        if reader.problems:
            raise SettingsError(reader.problems)
        return settings


def _check_timeouts(reader: Reader, settings: Settings, function_timeout_s: float | None) -> None:
    """Check that a send ends within its attempt, and an attempt before the host ends the whole process."""
    send_s, attempt_s = settings.servicebus.send_timeout_s, settings.policy.attempt_timeout_s
    if send_s > attempt_s / 2:
        reader.wrong(
            f"RELAY_SEND_TIMEOUT_S is {send_s:g}: set at most half of RELAY_ATTEMPT_TIMEOUT_S ({attempt_s:g})"
        )
    if function_timeout_s is not None and attempt_s > (longest := function_timeout_s - ATTEMPT_MARGIN_S):
        reader.wrong(
            f"RELAY_ATTEMPT_TIMEOUT_S is {attempt_s:g}: set at most {longest:g}, which "
            f"is host.json's functionTimeout less {ATTEMPT_MARGIN_S:g} s, or raise functionTimeout"
        )


def read_namespace(reader: Reader, name: str, *, required: bool = True) -> Connection:
    """Read the connection to a namespace of Service Bus, an empty one if it is not set."""
    # Operators' commands read it (clients.administration_address).
    reader.knows(f"{name}_ADMIN")
    found = reader.connection(name, address="fullyQualifiedNamespace", parts=SERVICEBUS_PARTS, required=required)
    return found or Connection()
