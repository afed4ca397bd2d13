"""Authorization rules: named keys, and what each allows.

The namespace has rules for all its entities; a queue or topic may have rules of its own ("Service Bus access
control with Shared Access Signatures", learn.microsoft.com).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Flag

MOST_RULES = 12
"""Rules that the namespace or an entity may have ("Service Bus quotas", learn.microsoft.com)."""


class Right(Flag):
    """The rights of a key or a token. If several are requested, one of them is enough."""

    LISTEN = 1
    SEND = 2
    MANAGE = 4
    ANY = 7

    @property
    def names(self) -> list[str]:
        """The rights as the service writes them."""
        return [str(right.name).capitalize() for right in Right if right in self]

    @classmethod
    def parse(cls, names: list[str]) -> Right:
        """Return rights from their names. Raises ValueError for an unknown name or a set that is not valid."""
        known = {str(right.name).capitalize(): right for right in cls}
        rights = cls(0)
        for name in names:
            if name not in known:
                raise ValueError(f"'{name}' is no right: there are Listen, Send and Manage")
            rights |= known[name]
        if not rights:
            raise ValueError("a rule needs at least one right: Listen, Send or Manage")
        if cls.MANAGE in rights and rights != cls.ANY:
            raise ValueError("Manage needs Send and Listen too")
        return rights


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A name with two keys, each of which grants the rights. Moments are milliseconds since the epoch."""

    name: str
    rights: Right
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    created_ms: int = 0
    modified_ms: int = 0

    @property
    def keys(self) -> tuple[str, str]:
        return self.primary_key, self.secondary_key
