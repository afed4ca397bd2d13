"""Where the management endpoint of the Service Bus namespace is, and how to connect to it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from relay.connection_strings import ConnectionString, is_address
from relay.errors import UsageError
from relay.settings import Connection

# Read by `check` and `smoke` alone. In Azure it is not needed: a namespace has one address for everything.
ADMIN_VARIABLE = "SERVICEBUS_ADMIN"


def administration_address(given: str | None, environment: Mapping[str, str]) -> str | None:
    """The address from `--servicebus-admin` or the environment; None where `SERVICEBUS` has it."""
    return given or environment.get(ADMIN_VARIABLE, "").strip() or None


def administration_connection(connection: Connection, address: str | None) -> Connection:
    """How to connect to the management endpoint.

    Args:
        connection: The setting `SERVICEBUS`, whose credentials are used for a URL.
        address: A connection string, or a URL: `https://`, or `http://` for a broker that speaks without TLS. None
            for the address in `connection`.

    Raises:
        UsageError: `address` is neither, or cannot be combined with `connection`.
    """
    if address is None:
        return connection
    if "=" in address:
        problem = ConnectionString(address).problem(
            ("Endpoint", "SharedAccessKeyName", "SharedAccessKey"), base64=False
        )
        if problem is not None:
            raise UsageError(f"--servicebus-admin is no connection string: {problem}")
        return Connection(connection_string=address)
    url = address if "//" in address else f"https://{address}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not is_address(url):
        raise UsageError("--servicebus-admin: give a URL such as http://127.0.0.1:5300, or a connection string")
    if connection.connection_string is not None:
        return Connection(connection_string=_at(parts.netloc, parts.scheme, connection.connection_string))
    if parts.scheme == "http":
        raise UsageError("--servicebus-admin: an http:// URL requires SERVICEBUS to be a connection string")
    return Connection(address=parts.netloc, identity=connection.identity)


def _at(host: str, scheme: str, connection_string: str) -> str:
    """The connection string with another endpoint."""
    credentials = ConnectionString(connection_string).without(["Endpoint", "UseDevelopmentEmulator", "EntityPath"])
    # The SDKs' only way to ask for a connection without TLS.
    plain = {"UseDevelopmentEmulator": "true"} if scheme == "http" else {}
    return ConnectionString.build({"Endpoint": f"sb://{host}", **credentials, **plain}).text
