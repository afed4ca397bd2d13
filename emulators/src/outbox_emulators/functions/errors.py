"""Why this host cannot run an app, and how errors are told."""

from __future__ import annotations

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.cosmos.exceptions import CosmosHttpResponseError

_TRANSIENT = frozenset({408, 410, 429, 449})


class HostError(Exception):
    """The app, its settings or its containers do not allow it to run; the message says which, and what to do."""


class ContainerMissing(HostError):
    """The monitored container or the lease container does not exist; the message says which, and what to do."""


def is_transient(error: AzureError) -> bool:
    """Whether the same request may succeed later: no connection, a timeout, throttling, the service in trouble."""
    if isinstance(error, CosmosHttpResponseError):
        status = error.status_code or 0
        return status in _TRANSIENT or status >= 500
    return not isinstance(error, ClientAuthenticationError)


def describe(error: Exception) -> str:
    """One line that says what went wrong, without the dump that the SDK's messages carry along."""
    if isinstance(error, CosmosHttpResponseError):
        return f"{error.status_code} {_first_line(error)}"
    if isinstance(error, ClientAuthenticationError):
        return f"no credential was accepted: {_first_line(error)}"
    return _first_line(error)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
