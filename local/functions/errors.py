"""Why this host cannot run an app, and how errors are told."""

from __future__ import annotations

from azure.core.exceptions import ClientAuthenticationError
from azure.cosmos.exceptions import CosmosHttpResponseError


class HostError(Exception):
    """The app, its settings or its containers do not allow it to run; the message says which, and what to do."""


def describe(error: Exception) -> str:
    """One line that says what went wrong, without the dump that the SDK's messages carry along."""
    if isinstance(error, CosmosHttpResponseError):
        return f"{error.status_code} {_first_line(error)}"
    if isinstance(error, ClientAuthenticationError):
        return f"no credential was accepted: {_first_line(error)}"
    return _first_line(error)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
