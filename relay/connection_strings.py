"""Azure connection strings: `Name=value` parts, separated by semicolons."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

_EMULATOR = "UseDevelopmentEmulator"


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """A connection string, read part by part. Neither `repr` nor `str` shows a value, as one of them is a key.

    Names of parts are case-insensitive. A part without a value counts as missing; of a repeated part the last one
    counts, as in the SDKs.

    Attributes:
        text: The whole string as it was given, with its secret: what the SDKs take.
    """

    text: str

    @classmethod
    def build(cls, parts: Mapping[str, str]) -> Self:
        """A connection string of these parts, in this order."""
        return cls(";".join(f"{name}={value}" for name, value in parts.items()))

    @property
    def parts(self) -> dict[str, str]:
        """The values by name as written, in their order. They hold a secret."""
        named = (part.partition("=") for part in self.text.split(";"))
        return {name.strip(): value.strip() for name, _, value in named if value.strip()}

    def get(self, name: str) -> str | None:
        """The value of a part; None where it is missing."""
        values = {given.lower(): value for given, value in self.parts.items()}
        return values.get(name.lower())

    def missing(self, required: Iterable[str]) -> list[str]:
        """The names in `required` that this connection string lacks."""
        return [name for name in required if self.get(name) is None]

    def problem(self, required: Sequence[str], *, base64: bool) -> str | None:
        """Why the SDKs cannot use it, or would show a part of it; None if they can. It has no value in it.

        Args:
            required: The names of the endpoint first, and of the key last, as they have to be spelt.
            base64: Whether the key has to be Base64, as that of Cosmos DB.
        """
        endpoint, *_, key = required
        present = self.parts
        missing = [name for name in required if name not in present]
        if missing:
            return f"it lacks {' and '.join(missing)}"
        if not _PRINTABLE.fullmatch(self.text) or not all(
            "=" in part for part in self.text.rstrip(";").split(";")
        ):
            return "it has a space, a character that is not ASCII, or a part without ="
        if not is_address(present[endpoint]):
            return f"its {endpoint} is no address, or has more in it than scheme, host and port"
        if base64 and not _is_base64(present[key]):
            return f"its {key} is no Base64"
        if "sharedaccesssignature" in map(str.lower, present):
            return f"it has both {key} and SharedAccessSignature"
        return None

    def without(self, names: Iterable[str]) -> dict[str, str]:
        """The other parts, for `build`."""
        left_out = {name.lower() for name in names}
        return {name: value for name, value in self.parts.items() if name.lower() not in left_out}

    @property
    def uses_emulator(self) -> bool:
        """Whether it asks Service Bus clients to connect without TLS (`UseDevelopmentEmulator=true`)."""
        return self.get(_EMULATOR) == "true"

    def __repr__(self) -> str:
        return f"ConnectionString({', '.join(self.parts)})"


ADDRESS = re.compile(r"[A-Za-z0-9.:/_\-\[\]]*")
"""The characters of an address: no user or password, no query, no fragment."""

_PRINTABLE = re.compile("[!-~]*")


def is_address(text: str) -> bool:
    """Whether this is a URL of a host, without user, password, query and fragment."""
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
