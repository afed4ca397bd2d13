"""Reads settings by name and type and gathers what is wrong with them, and reads the host's functionTimeout."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from relay.config.clients import ADDRESS, Connection, ConnectionString, Identity, is_address
from relay.config.secrecy import hidden, looks_secret, quoted
from relay.core.errors import SettingsError


class Reader:
    """The settings of an environment, read one by one. A blank value counts as not set.

    Attributes:
        problems: What is wrong, each with the setting's name and the remedy.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._known: set[str] = set()
        self.problems: list[str] = []

    def wrong(self, problem: str) -> None:
        """Add what is wrong."""
        self.problems.append(problem)

    def knows(self, *names: str) -> None:
        """Take these names for settings that others read."""
        self._known.update(names)

    def get(self, name: str) -> str | None:
        """Return a value that may be a secret, or None if it is not set."""
        self._known.add(name)
        value = self._environment.get(name, "").strip()
        return value or None

    def text(self, name: str, default: str) -> str:
        """Return a value that commands and logs show, so it must be no secret."""
        value = self.get(name) or default
        if looks_secret(value):
            self.wrong(f"{name} is {hidden(value)}: set it to a name, as docs/settings.md says")
            return default
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Return one of the choices, the first if it is not set."""
        value = self.get(name) or choices[0]
        if value not in choices:
            *most, last = map(repr, map(str, choices))
            self.wrong(f"{name} is {quoted(value)}: set {', '.join(most)} or {last}")
            return choices[0]
        return value

    def integer(self, name: str, default: int, *, at_least: int, at_most: int) -> int:
        """Return a whole number within these limits."""
        number = self.optional_integer(name, at_least=at_least, at_most=at_most)
        return default if number is None else number

    def optional_integer(self, name: str, *, at_least: int, at_most: int) -> int | None:
        """Return a whole number within these limits, or None if it is not set."""
        value = self.get(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = at_least - 1
        if not at_least <= number <= at_most:
            self.wrong(f"{name} is {quoted(value)}: set a whole number from {at_least} to {at_most}")
        return number

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return true or false, written in any case."""
        value = self.get(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            self.wrong(f"{name} is {quoted(value)}: set true or false")
        return value.lower() == "true"

    def seconds(self, name: str, default: float, *, at_least: float = 0.001, at_most: float = 3600) -> float:
        """Return a number of seconds within these limits."""
        value = self.get(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not at_least <= number <= at_most:
            self.wrong(f"{name} is {quoted(value)}: set a number of seconds from {at_least:g} to {at_most:g}")
            return default
        return number

    def connection(
        self,
        name: str,
        *,
        address: str,
        parts: tuple[str, ...],
        example: str | None = None,
        required: bool,
        otherwise: str = "",
    ) -> Connection | None:
        """Return the connection to a service, or None if it is not set.

        Args:
            name: The setting of the connection string.
            address: The end of the name of the setting that has its address.
            parts: The parts that a connection string has to have.
            example: A URL of its accounts, None for a namespace of Service Bus.
            required: Whether it has to be set.
            otherwise: What can be done instead of setting it, for the error.
        """
        whole = self.get(name)
        address_name = f"{name}__{address}"
        host = self.get(address_name)
        credential, client_id = self.get(f"{name}__credential"), self.text(f"{name}__clientId", "")
        if whole and host:
            self.wrong(f"{name} and {address_name} are both set: keep one of them")
        elif whole:
            problem = ConnectionString(whole).problem(parts, base64=example is not None)
            if problem is not None:
                self.wrong(f"{name} is no connection string: {problem}")
            return Connection(connection_string=whole)
        elif host:
            self._check_address(address_name, host, example)
            return Connection(address=host, identity=self._identity(name, credential, client_id))
        elif required:
            self.wrong(
                f"{name} is not set: set {name} to a connection string, or {address_name} to use an identity"
                + otherwise
            )
        return None

    def identity(self, name: str) -> Identity:
        """Return the identity that goes with a connection without a secret."""
        return self._identity(name, self.get(f"{name}__credential"), self.text(f"{name}__clientId", ""))

    def _identity(self, name: str, credential: str | None, client_id: str) -> Identity:
        if credential is not None and credential.lower() != "managedidentity":
            self.wrong(f"{name}__credential is {quoted(credential)}: set 'managedidentity', or leave it out")
        return Identity(managed=credential is not None, client_id=client_id or None)

    def _check_address(self, name: str, value: str, example: str | None) -> None:
        # A value with other characters than an address is not shown: it may be a connection string with its key.
        shown = f" is {quoted(value)}" if ADDRESS.fullmatch(value) else " is no address"
        if example is not None and not (is_address(value) and value.startswith(("https://", "http://"))):
            self.wrong(f"{name}{shown}: set it as {example}")
        is_host = "/" not in value and "." in value and ADDRESS.fullmatch(value) and not looks_secret(value)
        if example is None and not is_host:
            self.wrong(f"{name}{shown}: set it as <namespace>.servicebus.windows.net")

    def misspelt(self) -> None:
        """Report a name that is nearly a setting's, which would be ignored in silence."""
        prefixes = ("RELAY_", "COSMOS_", "SERVICEBUS_", "SQL_", "BLOBS_")
        for name in sorted(set(self._environment) - self._known):
            if name.startswith(prefixes):
                import difflib  # Two milliseconds, which no start needs whose settings are right.

                near = difflib.get_close_matches(name, sorted(self._known), n=1, cutoff=0.85)
                if near:
                    self.wrong(f"{name} is not a setting: did you mean {near[0]}?")


# As libpq takes a URL apart: the user ends at the first @, unless a / comes before it.
_URL = re.compile(
    r"postgres(?:ql)?://(?:[^@/]*@)?(?P<hosts>[^@/?]*)(?:/(?P<database>[^@?]*))?(?:\?.*)?",
)
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")


def is_encoded_url(value: str) -> bool:
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
