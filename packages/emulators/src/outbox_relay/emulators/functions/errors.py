"""The host's errors, and how they are described."""

from __future__ import annotations

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.cosmos.exceptions import CosmosHttpResponseError

_TRANSIENT = frozenset({408, 410, 429, 449})


class HostError(Exception):
    """The app, its settings or its containers do not allow it to run; the message names it and the remedy."""


class ContainerMissing(HostError):
    """The monitored container or the lease container does not exist; the message names it and the remedy."""


class UnableToStart(Exception):
    """A listener cannot start as things are: the host stays up, says so, and tries again."""


def is_transient(error: AzureError) -> bool:
    """Return True if the same request may succeed later.

    So it is without a connection, and for a timeout, throttling or a failing service.
    """
    if isinstance(error, CosmosHttpResponseError):
        status = error.status_code or 0
        return status in _TRANSIENT or status >= 500
    return not isinstance(error, ClientAuthenticationError)


def describe(error: Exception) -> str:
    """Describe an error in one line, without the details that the SDK appends."""
    if isinstance(error, CosmosHttpResponseError):
        return f"{error.status_code} {_first_line(error)}"
    if isinstance(error, ClientAuthenticationError):
        return f"no credential was accepted: {_first_line(error)}"
    return _first_line(error)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
