"""An app's settings as its bindings use them: `%NAME%` expressions, and connections by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from outbox_relay.emulators.functions.errors import HostError

_EXPRESSION = re.compile(r"%([^%]*)%")
_PREFIX = "AzureWebJobs"


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach an account: a connection string, or an endpoint and the properties of an identity."""

    connection_string: str | None
    account_endpoint: str | None
    credential: str | None
    client_id: str | None


class Settings:
    """Named values; names are case-insensitive, as in .NET configuration."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {name.casefold(): value for name, value in values.items()}

    def get(self, name: str) -> str | None:
        return self._values.get(name.casefold())

    def missing(self, text: str) -> list[str]:
        """Return the names in the `%NAME%` expressions of `text` that no setting has."""
        return [name for name in _EXPRESSION.findall(text) if self.get(name) is None]

    def resolve(self, text: str) -> str:
        """`text` with each `%NAME%` replaced by that setting's value. Raises HostError for a missing one."""
        missing = self.missing(text)
        if missing:
            raise HostError(f"'%{missing[0]}%' does not resolve to a value: set {missing[0]}")
        return _EXPRESSION.sub(lambda match: self.get(match[1]) or "", text)

    def disables(self, function: str) -> bool:
        """Return True if `AzureWebJobs.NAME.Disabled` is true, or the same with underscores.

        Linux allows underscores in names.

        FunctionIndexer's IsDisabledBySetting in Azure/azure-webjobs-sdk and IsSettingEnabled of its configuration.
        """
        names = (f"{_PREFIX}.{function}.Disabled", f"{_PREFIX}_{function}_Disabled")
        return any((self.get(name) or "").casefold() in ("true", "1") for name in names)

    def connection(self, name: str) -> Connection:
        """Return the connection a binding calls `name`.

        It is the setting of that name, or the family `NAME__accountEndpoint`.

        `AzureWebJobsNAME` is looked up first (WebJobsConfigurationExtensions in azure-webjobs-sdk-extensions).
        Raises HostError if there is neither.
        """
        for key in (_PREFIX + name, name):
            connection_string = self.get(key)
            endpoint = self.get(f"{key}__accountEndpoint")
            if connection_string or endpoint:
                return Connection(
                    connection_string=connection_string or None,
                    account_endpoint=endpoint,
                    credential=self.get(f"{key}__credential"),
                    client_id=self.get(f"{key}__clientId"),
                )
        raise HostError(
            f"the connection {name!r} is not set: set {name} to a connection string, or {name}__accountEndpoint "
            "(with an identity) to the account's address"
        )
