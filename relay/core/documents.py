"""A document of an outbox beside what the relay knows of it.

What was stored is its writer's: any member of it may have any name and any value, so nothing of the relay is ever
written into it, nor looked for there. The relay's own knowledge, which is its place in the feed, what relay.toml
maps it to and the text of its body, is kept beside it.

Its fields have the same names whatever the outbox calls them:

    {"id": …, "partitionKey": …, "type": …, "data": {"action": …, "createdAt": …, …},
     "traceparent": …, "order": …, "sequence": …}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from relay.core.place import Place, RowPlace, version_of

StoredDocument = Mapping[str, Any]
"""A document of Cosmos DB, or a row of an SQL outbox by its columns, in values that JSON has."""


class Numeric(str):
    """The digits of a decimal number of an SQL column, all of them: a double would lose some."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Decimal) -> Numeric:
        """Return the digits as the database writes them, without an exponent; NaN and infinities by name."""
        is_short = value.is_finite() and abs(value.adjusted()) < _MOST_DIGITS
        return cls(f"{value:f}" if is_short else value)

    @property
    def number(self) -> int | float | None:
        """The whole number, or the nearest double; None if JSON has no such number."""
        value = Decimal(self)
        if not value.is_finite():
            return None
        return (
            int(value) if value.adjusted() < _LONG_DIGITS and value == value.to_integral_value() else float(value)
        )

    def equals(self, other: object) -> bool:
        """Return True if it is this text, or has the value of this number."""
        if isinstance(other, str):
            return str(self) == other
        value = Decimal(self)
        is_number = isinstance(other, int | float) and not isinstance(other, bool)
        return is_number and value.is_finite() and value == Decimal(repr(other))


# PostgreSQL writes at most this many digits on either side of the point.
# https://www.postgresql.org/docs/current/datatype-numeric.html
_MOST_DIGITS = 131_072

# Maximum number of digits of a whole number that is made of such a text.
_LONG_DIGITS = 400


@dataclass(frozen=True, slots=True)
class Mapped:
    """The parts of a message that relay.toml maps, beside the fields of the document.

    Attributes:
        action: The message's subject.
        created_at: When its writer made it; None if the document does not say.
        properties: Application properties of the message.
        message: Further parts of the message, by a name of `mapping.MESSAGE`.
    """

    action: Any = None
    created_at: Any = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    message: Mapping[str, Any] = field(default_factory=dict)


class SourceDocument(NamedTuple):
    """One document of an outbox. A tuple, as a frozen dataclass takes several times as long to construct.

    Attributes:
        stored: The document or the row, as the outbox has it. Quarantine keeps this.
        fields: Its fields by the names above. A document that has these names already is this itself.
        placed: The place of a row, which its feed gives; None of a document of Cosmos DB, which has its own.
        mapped: What relay.toml makes of it beside its fields; None if that maps nothing.
        body: `data` as the JSON text that was stored; None if the outbox has no text.
        problem: The rule of relay.toml that does not fit it, without any value; None if all of them fit.
        views: Where the JSON Pointers of relay.toml lead, to the first that has a value there; `fields` if empty.
    """

    stored: StoredDocument
    fields: Mapping[str, Any]
    placed: Place | RowPlace | None = None
    mapped: Mapped | None = None
    body: str | None = None
    problem: str | None = None
    views: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def plain(cls, stored: StoredDocument) -> SourceDocument:
        """Return a document of Cosmos DB whose fields have the names above."""
        return cls(stored, stored)

    @property
    def action(self) -> Any:
        """Return the action, or None if the document has none."""
        if self.mapped is not None:
            return self.mapped.action
        return _within(self.fields.get("data"), "action")

    @property
    def created_at(self) -> Any:
        """Return the writer's time of creation, or None if the document has none."""
        if self.mapped is not None:
            return self.mapped.created_at
        return _within(self.fields.get("data"), "createdAt")

    @property
    def is_row(self) -> bool:
        """Return True for a row of an SQL outbox, in which members such as `_ts` are columns."""
        return self.placed is not None

    @property
    def lsn(self) -> int | None:
        """The `_lsn` that Cosmos DB gave it; None if there is none."""
        if self.placed is not None:
            return self.place.lsn
        lsn = self.stored.get("_lsn")
        return lsn if type(lsn) is int else None

    @property
    def place(self) -> Place:
        """Its place in the feed; the version of its content if its source gives no place."""
        if self.placed is not None:
            return self.placed.place if isinstance(self.placed, RowPlace) else self.placed
        if self.lsn is None:
            return Place(version=version_of(self.stored))
        order = self.fields.get("order")
        return Place(lsn=self.lsn, order=order if type(order) is int else None)


def _within(data: Any, name: str) -> Any:
    # It nearly always is a dict, and to look for a Mapping takes several times as long.
    return data.get(name) if type(data) is dict or isinstance(data, Mapping) else None
