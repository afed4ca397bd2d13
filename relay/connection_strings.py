"""Azure connection strings: `Name=value` parts, separated by semicolons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

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
