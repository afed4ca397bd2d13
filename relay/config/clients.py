"""Connections to Azure: their strings, addresses and identities, and the SDKs' clients made from them.

The SDKs are imported when they are used, as a new process waits for its imports before its first event. What they
log and trace by themselves is set for the whole process: composition roots alone do so.
"""

from __future__ import annotations

import logging
import re
import ssl
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from relay.core.errors import UsageError

if TYPE_CHECKING:
    from azure.core.pipeline.transport import AsyncHttpTransport
    from azure.cosmos.aio import CosmosClient
    from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential
    from azure.servicebus.aio import ServiceBusClient
    from azure.servicebus.aio.management import ServiceBusAdministrationClient
    from azure.storage.blob.aio import ContainerClient

# Parts of the connection strings, spelt as the SDKs require them: the endpoint first, the key last.
COSMOS_PARTS = ("AccountEndpoint", "AccountKey")
SERVICEBUS_PARTS = ("Endpoint", "SharedAccessKeyName", "SharedAccessKey")
# Of a storage account, whose name is in its address. Another address is in BlobEndpoint.
BLOB_PARTS = ("AccountName", "AccountKey")
_ENDPOINTS = ("AccountEndpoint", "Endpoint", "BlobEndpoint")

# Read by `check` and `smoke` alone. In Azure it is not needed: a namespace has one address for everything.
ADMIN_VARIABLE = "SERVICEBUS_ADMIN"
ADMIN_OPTION = "--servicebus-admin"

# Seconds to connect, and seconds between two parts of an answer: a connection that was cut silently is noticed and
# replaced while its call can still succeed. The service answers a page of a query after 5 s at most.
_CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 6.0

ADDRESS = re.compile(r"[A-Za-z0-9.:/_\-\[\]]*")
"""The characters of an address: no user or password, no query, no fragment."""

ENTITY = re.compile(r"(?=.{1,260}\Z)\w(?:[\w./~-]*\w)?")
"""The name of a topic or a queue.

https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftservicebus
"""

ENTITY_FORM = (
    "the name of a topic or a queue: 1 to 260 letters, digits, periods, hyphens, underscores and slashes, which "
    "begin and end with a letter or digit"
)

_PRINTABLE = re.compile("[!-~]*")


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """A connection string, read part by part. Neither `repr` nor `str` shows a value, as one of them is a key.

    Names of parts are case-insensitive. A part without a value counts as missing; of a repeated part the last one
    counts, as in the SDKs.

    Attributes:
        text: The whole string, with its secret, for the SDKs.
    """

    text: str

    @property
    def parts(self) -> dict[str, str]:
        """The values by name as written, in their order. They hold a secret."""
        named = (part.partition("=") for part in self.text.split(";"))
        return {name.strip(): value.strip() for name, _, value in named if value.strip()}

    def get(self, name: str) -> str | None:
        """Return the value of a part, or None if it is missing."""
        values = {given.lower(): value for given, value in self.parts.items()}
        return values.get(name.lower())

    def problem(self, required: Sequence[str], *, base64: bool) -> str | None:
        """Return the reason why the SDKs cannot use it, or would show a part of it, or None.

        It has no value in it.

        Args:
            required: `COSMOS_PARTS`, `SERVICEBUS_PARTS` or `BLOB_PARTS`.
            base64: Whether the key has to be Base64, as that of Cosmos DB.
        """
        *_, key = required
        present = self.parts
        missing = [name for name in required if name not in present]
        if missing:
            return f"it lacks {' and '.join(missing)}"
        if not _PRINTABLE.fullmatch(self.text) or not all(
            "=" in part for part in self.text.rstrip(";").split(";")
        ):
            return "it has a space, a character that is not ASCII, or a part without ="
        for endpoint in _ENDPOINTS:
            if endpoint in present and not is_address(present[endpoint]):
                return f"its {endpoint} is no address, or has more in it than scheme, host and port"
        if base64 and not _is_base64(present[key]):
            return f"its {key} is no Base64"
        if "sharedaccesssignature" in map(str.lower, present):
            return f"it has both {key} and SharedAccessSignature"
        return None

    @property
    def uses_emulator(self) -> bool:
        """True if clients of Service Bus are to connect without TLS (`UseDevelopmentEmulator=true`)."""
        return self.get("UseDevelopmentEmulator") == "true"

    def __repr__(self) -> str:
        return f"ConnectionString({', '.join(self.parts)})"


def is_address(text: str) -> bool:
    """Return True if this is a URL of a host, without user, password, query and fragment."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # such as a bracket that does not close
        return False
    return bool(ADDRESS.fullmatch(text) and parts.scheme and parts.hostname) and port != 0


def _is_base64(text: str) -> bool:
    try:
        return bool(b64decode(text, validate=True))
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Identity:
    """Which Microsoft Entra identity to use if there is no connection string.

    Attributes:
        managed: True for `__credential=managedidentity`; False lets DefaultAzureCredential find one.
        client_id: The client id of a user-assigned managed identity; None for the system-assigned one.
    """

    managed: bool
    client_id: str | None

    def credential(self) -> DefaultAzureCredential | ManagedIdentityCredential:
        """Return a credential of this identity. Asks for no token yet."""
        from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential

        if self.managed:
            return ManagedIdentityCredential(client_id=self.client_id)
        return DefaultAzureCredential(managed_identity_client_id=self.client_id)


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach one service, by the convention of the Functions host.

    https://learn.microsoft.com/azure/azure-functions/functions-reference#configure-an-identity-based-connection

    Attributes:
        connection_string: The whole connection string, a secret; None with an identity.
        address: The account endpoint or the fully qualified namespace; None with a connection string.
        identity: Whose token to ask for; None with a connection string.
    """

    connection_string: str | None = None
    address: str | None = None
    identity: Identity | None = None

    @property
    def host(self) -> str:
        """The host of a namespace of Service Bus, as hosts are compared; with its port if that is another one."""
        endpoint = ConnectionString(self.connection_string or "").get("Endpoint") or self.address or ""
        host = endpoint.rpartition("//")[2].partition("/")[0].lower()
        name, _, port = host.partition(":")
        return name.rstrip(".") if port in ("", "443", "5671") else host

    def by_identity(self) -> tuple[str, DefaultAzureCredential | ManagedIdentityCredential]:
        """Return the address of the service, and a credential for it."""
        if self.address is None or self.identity is None:
            raise ValueError("a connection has either a connection string, or an address and an identity")
        return self.address, self.identity.credential()

    def __repr__(self) -> str:
        return f"Connection(address={self.address!r}, identity={self.identity!r}, connection_string=…)"


def cosmos_client(connection: Connection) -> CosmosClient:
    """Return a client for the account. It is not connected yet."""
    from azure.cosmos.aio import CosmosClient

    timeouts: dict[str, Any] = {"connection_timeout": _CONNECT_TIMEOUT_S, "read_timeout": READ_TIMEOUT_S}
    options = {**timeouts, **_past_proxies(connection, "AccountEndpoint")}
    if connection.connection_string is not None:
        return CosmosClient.from_connection_string(connection.connection_string, **options)
    address, credential = connection.by_identity()
    return CosmosClient(address, credential=credential, **options)


def _past_proxies(connection: Connection, endpoint: str) -> dict[str, Any]:
    """Return the option that keeps requests to an address of this machine from the machine's proxy."""
    address = ConnectionString(connection.connection_string or "").get(endpoint) or connection.address or ""
    if not _is_loopback(urlsplit(address if "//" in address else f"//{address}").hostname or ""):
        return {}
    from azure.core.pipeline.transport import AioHttpTransport

    return {"transport": AioHttpTransport(use_env_settings=False)}


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def blob_container_client(connection: Connection, container: str) -> ContainerClient:
    """Return a client for a container of a storage account. It is not connected yet."""
    from azure.storage.blob.aio import ContainerClient, LinearRetry

    options: dict[str, Any] = {
        "connection_timeout": _CONNECT_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        # By default the SDK would pause for 15 seconds and more.
        "retry_policy": LinearRetry(backoff=1, retry_total=2, random_jitter_range=1),
        **_past_proxies(connection, "BlobEndpoint"),
    }
    if connection.connection_string is not None:
        return ContainerClient.from_connection_string(connection.connection_string, container, **options)
    address, credential = connection.by_identity()
    return ContainerClient(address, container, credential, **options)


def servicebus_client(connection: Connection, *, retry_total: int = 2) -> ServiceBusClient:
    """Return a client for the namespace that repeats what failed `retry_total` times. It is not connected yet."""
    import certifi
    from azure.servicebus.aio import ServiceBusClient

    # Left to itself, the SDK reads the certificates anew for each sender's connection: 25 ms of processor
    # time each. These are the ones it would read.
    options: dict[str, Any] = {
        "ssl_context": ssl.create_default_context(cafile=certifi.where()),
        "retry_total": retry_total,
        # By default the SDK would pause for 8 seconds and more.
        "retry_backoff_factor": 0.2,
    }
    if connection.connection_string is not None:
        return ServiceBusClient.from_connection_string(connection.connection_string, **options)
    address, credential = connection.by_identity()
    return ServiceBusClient(address, credential, **options)


def servicebus_administration_client(connection: Connection) -> ServiceBusAdministrationClient:
    """Return a client for the namespace's management endpoint. It is not connected yet."""
    from azure.servicebus.aio.management import ServiceBusAdministrationClient

    options: dict[str, Any] = {"retry_total": 1, **_past_proxies(connection, "Endpoint")}
    if connection.connection_string is not None:
        if ConnectionString(connection.connection_string).uses_emulator:
            options["transport"] = _plain_http_transport()
        return ServiceBusAdministrationClient.from_connection_string(connection.connection_string, **options)
    address, credential = connection.by_identity()
    return ServiceBusAdministrationClient(address, credential, **options)


def _plain_http_transport() -> AsyncHttpTransport[Any, Any]:
    """Return a transport for an emulator, for which the administration client (7.15.0) also asks for https."""
    from azure.core.pipeline.transport import AioHttpTransport

    class PlainHttpTransport(AioHttpTransport):  # type: ignore[misc]  # azure-core exports it untyped
        async def send(self, request: Any, **config: Any) -> Any:
            request.url = request.url.replace("https://", "http://", 1)
            return await super().send(request, **config)

    # It is on this machine, or in a container beside it.
    return PlainHttpTransport(use_env_settings=False)


@dataclass(frozen=True, slots=True)
class ManagementAddress:
    """Address of a namespace's management endpoint.

    Attributes:
        text: A connection string, or a URL: `https://`, or `http://` for a broker that speaks without TLS.
        given_as: The option or the variable that has it.
        setting: The setting of the namespace, whose credentials are used for a URL.
    """

    text: str
    given_as: str = ADMIN_OPTION
    setting: str = "SERVICEBUS"


def administration_address(
    given: str | None, environment: Mapping[str, str], setting: str = "SERVICEBUS"
) -> ManagementAddress | None:
    """Return the address from `--servicebus-admin` or the environment, or None if the namespace's setting has it.

    For the namespace of another setting, such as `ORDERS_BUS`, the variable is `ORDERS_BUS_ADMIN`.
    """
    if given:
        return ManagementAddress(given, setting=setting)
    variable = f"{setting}_ADMIN"
    text = environment.get(variable, "").strip()
    return ManagementAddress(text, variable, setting) if text else None


def administration_connection(connection: Connection, address: ManagementAddress | None) -> Connection:
    """Return the connection to the management endpoint of a namespace.

    Args:
        connection: The namespace's setting.
        address: None for the address in `connection`.

    Raises:
        UsageError: `address` is no address, or cannot be combined with `connection`.
    """
    if address is None:
        return connection
    text, given_as = address.text, address.given_as
    if "=" in text:
        problem = ConnectionString(text).problem(SERVICEBUS_PARTS, base64=False)
        if problem is not None:
            raise UsageError(f"{given_as} is no connection string: {problem}")
        return Connection(connection_string=text)
    url = text if "//" in text else f"https://{text}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not is_address(url):
        raise UsageError(f"{given_as}: give a URL such as http://127.0.0.1:5300, or a connection string")
    if connection.connection_string is not None:
        return Connection(connection_string=_at(parts.netloc, parts.scheme, connection.connection_string))
    if parts.scheme == "http":
        raise UsageError(f"{given_as}: an http:// URL requires {address.setting} to be a connection string")
    return Connection(address=parts.netloc, identity=connection.identity)


def _at(host: str, scheme: str, connection_string: str) -> str:
    replaced = ("endpoint", "usedevelopmentemulator", "entitypath")
    given = ConnectionString(connection_string).parts.items()
    parts = {"Endpoint": f"sb://{host}", **{name: value for name, value in given if name.lower() not in replaced}}
    if scheme == "http":
        # The SDKs' only way to ask for a connection without TLS.
        parts["UseDevelopmentEmulator"] = "true"
    return ";".join(f"{name}={value}" for name, value in parts.items())


HANDLERS = (
    "azure.servicebus.aio._base_handler_async",
    "azure.servicebus.aio._async_utils",
    "azure.servicebus._pyamqp.aio._connection_async",
)
"""The loggers of azure-servicebus (7.15.0) for senders and receivers, and their connections. For each one that is
closed while it opens, they log tracebacks and states, and the error is raised too: in an outage, some for each
sender of the pool and attempt."""


def quiet_libraries() -> None:
    """Let the Azure SDKs log warnings and errors alone, unless a level has been set for them.

    They log every request and every state of a connection at INFO: the Cosmos DB client with the partition key,
    azure-servicebus with some thirty lines a failed send, and the exporter its own requests, which would be rows
    for its next one.

    The Functions worker sets the root logger to INFO, exports what reaches the root logger (or the one that
    PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME names), and hands the same records to the host, which shows them as
    `Function.relay.User`. The log levels of host.json do not reach the worker's exporter.
    https://learn.microsoft.com/azure/azure-functions/opentelemetry-howto
    """
    logger = logging.getLogger("azure")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
        for name in HANDLERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)


def switch_off_sdk_tracing() -> None:
    """Switch the Azure SDKs' tracing off in this process. Call it after anything that switches it on.

    The Functions worker does so together with telemetry, before it loads the app. azure-servicebus (7.15.0) then
    makes a span of each message, and gives the message a second `traceparent`, which is the one that the consumer
    sees: the request that caused the event could not be followed to it. There is no switch for one client.
    """
    from azure.core.settings import settings

    settings.tracing_implementation = None
