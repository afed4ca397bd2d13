"""The settings of the relay: read from the environment once, and checked all together."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote

from relay.config.clients import (
    ADDRESS,
    BLOB_PARTS,
    COSMOS_PARTS,
    ENTITY,
    ENTITY_FORM,
    SERVICEBUS_PARTS,
    Connection,
    ConnectionString,
    Identity,
    is_address,
)
from relay.config.secrecy import hidden, looks_secret, quoted
from relay.core.errors import DestinationSettings, SettingsError
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


class OnPoison(StrEnum):
    """The treatment of a partition key's later events when one is set aside (RELAY_ON_POISON)."""

    SKIP = "skip"
    PARK = "park"
    BLOCK = "block"


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

    def __repr__(self) -> str:
        return f"SqlFeed(feed={self.feed!r}, shards={self.shards}, claim_s={self.claim_s:g}, connection_string=…)"


class Large(StrEnum):
    """The treatment of an event whose message is larger than the topic takes (RELAY_LARGE)."""

    QUARANTINE = "quarantine"
    CLAIM_CHECK = "claim-check"


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """Where the contents of large events are stored: a container of Blob Storage."""

    connection: Connection
    container: str


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

    `cosmos` is None if the only outbox is in SQL, and `sql` if there is none in SQL.

    Attributes:
        stream: The name of the stream, `default` where relay.toml makes no others.
        outbox: The name of its outbox in relay.toml.
        servicebus_topic: The topic's name, or the queue's.
        servicebus_is_queue: Whether it is a queue.
        servicebus_topic_setting: The setting that has its name, or the place in relay.toml.
        servicebus_setting: The setting that says how to reach its namespace.
        lease_prefix: The beginning of the ids of the stream's leases.
        routed: The events of the stream by relay.toml; None if `event_type` alone decides.
        several: Whether the app has other streams too.
        claim_check: Where the contents of large events are stored; None if large events are quarantined.
        rules: The rules that the app is deployed with, where they have generations; None where they count for all
            events, whenever those were committed.
        says_which_count: Whether relay.toml has chosen for which events changed rules count.
    """

    cosmos: Connection | None
    cosmos_database: str
    cosmos_container: str
    cosmos_lease_container: str
    cosmos_quarantine_container: str
    sql: SqlFeed | None
    servicebus: Connection
    servicebus_topic: str
    event_type: str
    max_items: int
    poll_delay_ms: int
    pipelined: bool
    senders: int | None
    send_timeout_s: float
    attempt_timeout_s: float
    duplicate_window_s: float
    on_poison: OnPoison
    cloudevents_source: str | None
    stream: str = DEFAULT
    outbox: str = DEFAULT
    servicebus_is_queue: bool = False
    servicebus_topic_setting: str = TOPIC
    servicebus_setting: str = SERVICEBUS
    lease_prefix: str = ""
    routed: Selection | None = None
    several: bool = False
    claim_check: ClaimCheck | None = None
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
    def destination(self) -> str:
        """The topic or the queue, in a sentence."""
        return f"the {'queue' if self.servicebus_is_queue else 'topic'} {self.servicebus_topic!r}"

    @property
    def named_by(self) -> DestinationSettings:
        """Return the settings that name the topic or queue, for remedies."""
        kind = "queue" if self.servicebus_is_queue else "topic"
        return DestinationSettings(self.servicebus_topic_setting, self.servicebus_setting, kind)

    @property
    def selection(self) -> Selection:
        """The documents that are events of this stream."""
        return self.routed or Selection((self.event_type,))

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
            function_timeout_s: The host's `functionTimeout`, below which an attempt has to end; None if no host
                ends it.
            namespaces: The settings that say how to reach a namespace of Service Bus. The first is the one of
                the settings; the others are checked, and `namespace` reads them.

        Raises:
            SettingsError: Naming everything that is missing or wrong, not only the first.
        """
        reader = _Reader(environment)
        sql = reader.sql()
        cosmos = reader.connection(
            "COSMOS",
            address="accountEndpoint",
            parts=COSMOS_PARTS,
            example="https://<account>.documents.azure.com:443/",
            required=sql is None,
        )
        settings = cls(
            cosmos=cosmos,
            sql=sql,
            cosmos_database=reader.text("COSMOS_DATABASE", "outbox"),
            cosmos_container=reader.text("COSMOS_CONTAINER", "data"),
            cosmos_lease_container=reader.text("COSMOS_LEASE_CONTAINER", "leases"),
            cosmos_quarantine_container=reader.text("COSMOS_QUARANTINE_CONTAINER", "quarantine"),
            servicebus=[reader.namespace(name) for name in namespaces][0],  # noqa: RUF015 - each is checked
            servicebus_topic=reader.topic(),
            event_type=reader.text("RELAY_EVENT_TYPE", "domainEvent"),
            max_items=reader.integer("RELAY_MAX_ITEMS", 1000, at_least=1, at_most=100_000),
            poll_delay_ms=reader.integer("RELAY_POLL_DELAY_MS", 500, at_least=1, at_most=3_600_000),
            pipelined=reader.boolean("RELAY_PIPELINED", default=True),
            senders=reader.optional_integer("RELAY_SENDERS", at_least=1, at_most=MAX_SENDERS),
            send_timeout_s=reader.seconds("RELAY_SEND_TIMEOUT_S", 30.0),
            attempt_timeout_s=reader.seconds("RELAY_ATTEMPT_TIMEOUT_S", ATTEMPT_TIMEOUT_S),
            # The range of the service; its default is ten minutes.
            duplicate_window_s=reader.seconds("RELAY_DUPLICATE_WINDOW_S", 600.0, at_least=20, at_most=604_800),
            on_poison=reader.on_poison(),
            cloudevents_source=reader.cloudevents_source(),
            claim_check=reader.claim_check(),
        )
        reader.text(FILE_VARIABLE, "")
        reader.distinct_containers(settings)
        reader.nested_timeouts(settings, function_timeout_s)
        reader.misspelt()
        if reader.problems:
            raise SettingsError(reader.problems)
        return settings


def namespace(environment: Mapping[str, str], name: str) -> Connection:
    """Return the connection to the namespace that a setting names, which `from_environment` has checked."""
    return _Reader(environment).namespace(name)


class _Reader:
    """Reads settings one by one, and gathers what is wrong with them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._known: set[str] = set()
        self.problems: list[str] = []

    def _get(self, name: str) -> str | None:
        self._known.add(name)
        value = self._environment.get(name, "").strip()
        return value or None

    def text(self, name: str, default: str) -> str:
        """Return a value that commands and logs show, so it must be no secret."""
        value = self._get(name) or default
        if looks_secret(value):
            self.problems.append(f"{name} is {hidden(value)}: set it to a name, as docs/settings.md says")
            return default
        return value

    def topic(self) -> str:
        value = self.text(TOPIC, "domain-events")
        if not ENTITY.fullmatch(value):
            self.problems.append(f"{TOPIC} is {quoted(value)}: set it to {ENTITY_FORM}")
        return value

    def integer(self, name: str, default: int, *, at_least: int, at_most: int) -> int:
        number = self.optional_integer(name, at_least=at_least, at_most=at_most)
        return default if number is None else number

    def optional_integer(self, name: str, *, at_least: int, at_most: int) -> int | None:
        value = self._get(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = at_least - 1
        if not at_least <= number <= at_most:
            self.problems.append(f"{name} is {quoted(value)}: set a whole number from {at_least} to {at_most}")
        return number

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self._get(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            self.problems.append(f"{name} is {quoted(value)}: set true or false")
        return value.lower() == "true"

    def seconds(self, name: str, default: float, *, at_least: float = 0.001, at_most: float = 3600) -> float:
        value = self._get(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not at_least <= number <= at_most:
            self.problems.append(
                f"{name} is {quoted(value)}: set a number of seconds from {at_least:g} to {at_most:g}"
            )
            return default
        return number

    def on_poison(self) -> OnPoison:
        value = self._get("RELAY_ON_POISON") or OnPoison.SKIP
        try:
            return OnPoison(value)
        except ValueError:
            self.problems.append(f"RELAY_ON_POISON is {quoted(value)}: set 'skip', 'park' or 'block'")
            return OnPoison.SKIP

    def sql(self) -> SqlFeed | None:
        """Return the SQL outbox, or None if there is none."""
        feed = self.text("SQL_FEED", "outbox.domain_event")
        shards = self.integer("SQL_SHARDS", 1, at_least=1, at_most=1024)
        claim_s = self.seconds("SQL_CLAIM_S", 10.0, at_least=2, at_most=300)
        max_bytes = self.integer("SQL_MAX_BYTES", _MAX_BYTES, at_least=1024**2, at_most=1024**4)
        credential, client_id = self._get("SQL__credential"), self.text("SQL__clientId", "") or None
        identity = self._identity("SQL__credential", credential, client_id)
        whole = self._get("SQL")
        if whole is None:
            return None
        self._check_sql(whole)
        schema, _, table = feed.partition(".")
        if not (schema and table):
            self.problems.append(f"SQL_FEED is {quoted(feed)}: set it to the event table as schema.Table")
        return SqlFeed(whole, identity, feed, shards, claim_s, max_bytes)

    def _check_sql(self, value: str) -> None:
        # The message shows no part of the value: it may hold a password.
        if value.startswith(_POSTGRESQL):
            if not _is_encoded_url(value):
                self.problems.append(
                    "SQL is no URL of PostgreSQL: set it to postgresql://user:password@host:5432/database, with "
                    "%25 for %, %40 for @, %2F for /, %3A for : and %20 for a space in the password"
                )
            return
        given = ConnectionString(value)
        if given.get("Server") is None or given.get("Database") is None:
            self.problems.append(
                "SQL is no connection string: set it to postgresql://user@host/database, or to "
                "Server=…;Database=…;… for Azure SQL and SQL Server"
            )

    def namespace(self, name: str) -> Connection:
        # Operators' commands read it (clients.administration_address).
        self._known.add(f"{name}_ADMIN")
        found = self.connection(name, address="fullyQualifiedNamespace", parts=SERVICEBUS_PARTS)
        return found or Connection()

    def claim_check(self) -> ClaimCheck | None:
        """Return the container for large events, or None if they are quarantined."""
        chosen = self._get("RELAY_LARGE") or Large.QUARANTINE
        if chosen not in list(Large):
            self.problems.append(
                f"RELAY_LARGE is {quoted(chosen)}: set {' or '.join(repr(str(each)) for each in Large)}"
            )
        container = self.text("RELAY_BLOB_CONTAINER", "large-events")
        if not _CONTAINER.fullmatch(container):
            self.problems.append(
                f"RELAY_BLOB_CONTAINER is {quoted(container)}: set 3 to 63 small letters, digits and single "
                "hyphens"
            )
        connection = self.connection(
            "BLOBS",
            address="serviceUri",
            parts=BLOB_PARTS,
            example="https://<account>.blob.core.windows.net",
            required=chosen == Large.CLAIM_CHECK,
        )
        if chosen != Large.CLAIM_CHECK or connection is None:
            return None
        return ClaimCheck(connection, container)

    def connection(
        self,
        name: str,
        *,
        address: str,
        parts: tuple[str, ...],
        example: str | None = None,
        required: bool = True,
    ) -> Connection | None:
        """Return the connection to a service.

        `example` is a URL of its accounts, None for a namespace of Service Bus.
        """
        whole = self._get(name)
        address_name, credential_name, client_name = (
            f"{name}__{suffix}" for suffix in (address, "credential", "clientId")
        )
        host = self._get(address_name)
        credential, client_id = self._get(credential_name), self.text(client_name, "") or None
        if whole and host:
            self.problems.append(f"{name} and {address_name} are both set: keep one of them")
        elif whole:
            problem = ConnectionString(whole).problem(parts, base64=example is not None)
            if problem is not None:
                self.problems.append(f"{name} is no connection string: {problem}")
            return Connection(connection_string=whole)
        elif host:
            self._check_address(address_name, host, example)
            return Connection(address=host, identity=self._identity(credential_name, credential, client_id))
        elif required:
            otherwise = {
                "COSMOS": "; or SQL, for an outbox in SQL",
                "BLOBS": "; or leave RELAY_LARGE out",
            }
            self.problems.append(
                f"{name} is not set: set {name} to a connection string, or {address_name} to use an identity"
                + otherwise.get(name, "")
            )
        return None

    def _identity(self, name: str, credential: str | None, client_id: str | None) -> Identity:
        if credential is not None and credential.lower() != "managedidentity":
            self.problems.append(f"{name} is {quoted(credential)}: set 'managedidentity', or leave it out")
        return Identity(managed=credential is not None, client_id=client_id)

    def _check_address(self, name: str, value: str, example: str | None) -> None:
        # A value with other characters than an address is not shown: it may be a connection string with its key.
        shown = f" is {quoted(value)}" if ADDRESS.fullmatch(value) else " is no address"
        if example is not None and not (is_address(value) and value.startswith(("https://", "http://"))):
            self.problems.append(f"{name}{shown}: set it as {example}")
        is_host = "/" not in value and "." in value and ADDRESS.fullmatch(value) and not looks_secret(value)
        if example is None and not is_host:
            self.problems.append(f"{name}{shown}: set it as <namespace>.servicebus.windows.net")

    def cloudevents_source(self) -> str | None:
        """Return the CloudEvents source if that format is chosen, None for the plain one."""
        chosen = self._get("RELAY_MESSAGE_FORMAT") or "plain"
        source = self._get("RELAY_CLOUDEVENTS_SOURCE")
        if source is not None and looks_secret(source):
            self.problems.append(f"RELAY_CLOUDEVENTS_SOURCE is {hidden(source)}: each message would have it")
        if chosen not in ("plain", "cloudevents"):
            self.problems.append(f"RELAY_MESSAGE_FORMAT is {quoted(chosen)}: set 'plain' or 'cloudevents'")
        if chosen != "cloudevents":
            return None
        if source is None or any(character.isspace() for character in source):
            self.problems.append(
                "RELAY_CLOUDEVENTS_SOURCE must be a URI-reference when RELAY_MESSAGE_FORMAT is 'cloudevents', "
                "such as /contacts"
            )
        return source

    def distinct_containers(self, settings: Settings) -> None:
        names = {
            "COSMOS_CONTAINER": settings.cosmos_container,
            "COSMOS_LEASE_CONTAINER": settings.cosmos_lease_container,
            "COSMOS_QUARANTINE_CONTAINER": settings.cosmos_quarantine_container,
        }
        if len(set(names.values())) < len(names):
            self.problems.append(f"{', '.join(names)} must name three different containers")

    def nested_timeouts(self, settings: Settings, function_timeout_s: float | None) -> None:
        """Check that a send ends within its attempt, and an attempt before the host ends the whole process."""
        if settings.send_timeout_s > settings.attempt_timeout_s / 2:
            self.problems.append(
                f"RELAY_SEND_TIMEOUT_S is {settings.send_timeout_s:g}: set at most half of "
                f"RELAY_ATTEMPT_TIMEOUT_S ({settings.attempt_timeout_s:g})"
            )
        if function_timeout_s is not None:
            longest = function_timeout_s - ATTEMPT_MARGIN_S
            if settings.attempt_timeout_s > longest:
                self.problems.append(
                    f"RELAY_ATTEMPT_TIMEOUT_S is {settings.attempt_timeout_s:g}: set at most {longest:g}, which "
                    f"is host.json's functionTimeout less {ATTEMPT_MARGIN_S:g} s, or raise functionTimeout"
                )

    def misspelt(self) -> None:
        """Report a name that is nearly a setting's, which would be ignored in silence."""
        prefixes = ("RELAY_", "COSMOS_", "SERVICEBUS_", "SQL_", "BLOBS_")
        for name in sorted(set(self._environment) - self._known):
            if name.startswith(prefixes):
                import difflib  # Two milliseconds, which no start needs whose settings are right.

                near = difflib.get_close_matches(name, sorted(self._known), n=1, cutoff=0.85)
                if near:
                    self.problems.append(f"{name} is not a setting: did you mean {near[0]}?")


# https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
_CONTAINER = re.compile(r"(?=.{3,63}$)[a-z0-9]+(?:-[a-z0-9]+)*")

# As libpq takes a URL apart: the user ends at the first @, unless a / comes before it.
_URL = re.compile(
    r"postgres(?:ql)?://(?:[^@/]*@)?(?P<hosts>[^@/?]*)(?:/(?P<database>[^@?]*))?(?:\?.*)?",
)
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")


def _is_encoded_url(value: str) -> bool:
    """Return True if libpq can parse a URL; its error message would show parts of it, even of a password."""
    found = _URL.fullmatch(value)
    try:
        sound = re.fullmatch(r"(?:[^\s%]|%[0-9A-Fa-f]{2})*", value) is not None and "\0" not in unquote(
            value, errors="strict"
        )
    except UnicodeError:
        return False
    return found is not None and sound and all(_HOST.fullmatch(host) for host in found["hosts"].split(","))


_OVERRIDE = "AzureFunctionsJobHost__functionTimeout"
# The host takes comments in host.json, and a byte order mark before it.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TIMESPAN = re.compile(r"(?:(?P<days>\d+)\.)?(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+(?:\.\d+)?)")


def function_timeout_s(app: Path, environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the host's functionTimeout in seconds, or None if it is unlimited (-1), or not set.

    Args:
        app: The folder that has host.json.
        environment: The settings, one of which may override it.
            https://learn.microsoft.com/azure/azure-functions/functions-host-json#override-hostjson-values

    Raises:
        SettingsError: It is no time span, or host.json cannot be read.
    """
    try:
        text = (app / "host.json").read_text(encoding="utf-8").removeprefix("\ufeff")
        content = json.loads(_COMMENT.sub(lambda found: found[1] or "", text))
    except (OSError, ValueError) as error:
        raise SettingsError([f"host.json cannot be read: {error}"]) from error
    configured = content.get("functionTimeout") if isinstance(content, dict) else None
    timeout = environment.get(_OVERRIDE) or configured
    if timeout is None or timeout == "-1":
        return None
    match = _TIMESPAN.fullmatch(str(timeout))
    if match is None:
        raise SettingsError([f"functionTimeout is {quoted(timeout)}: set it as hh:mm:ss, such as 00:10:00"])
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
