"""Adapt an event of a test to the rules of one stream.

The event gets the layout of the outbox, and values that match a rule which leads to the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from relay.backends.canary import PREFIX
from relay.core.documents import SourceDocument, StoredDocument
from relay.core.place import Place
from relay.routes.conditions import Condition, Scalar
from relay.routes.pointers import MISSING, Pointer
from relay.routes.selection import Route, Selection

_SMOKE_TEST = f"{PREFIX}test"


@dataclass(frozen=True, slots=True)
class Example:
    """An event of a stream.

    Attributes:
        stored: What the outbox stores: the document, or the row by its columns if relay.toml names fields of one.
        document: What the relay makes of that, with its fields.
    """

    stored: dict[str, Any]
    document: SourceDocument


class Unplaceable(Exception):
    """Why no event of a test can have the outbox's layout, in a part of a sentence."""


def in_layout(
    document: StoredDocument, selection: Selection, *, is_row: bool = False, some: str = _SMOKE_TEST
) -> Example:
    """Return the document in the layout of the outbox, whether the stream takes it or not.

    The arguments and errors are those of `example`.
    """
    layout = _Layout(selection, is_row, some)
    made = layout.stored(document)
    return Example(made, layout.document(made))


def example(
    document: StoredDocument, selection: Selection, *, is_row: bool = False, some: str = _SMOKE_TEST
) -> Example | None:
    """Return the document as one of the stream, or None if that would do harm.

    It changes as little as a rule asks for.

    Its action stays, and its key keeps its own end: an event with the action or the key of real ones would be
    handled by their consumers.

    Args:
        document: With the usual names (relay/core/documents.py), and all that an event may have.
        selection: Of the stream.
        is_row: Whether the outbox is an SQL one, of which relay.toml names fields.
        some: The value of what is a text and has to have one.

    Raises:
        Unplaceable: Two fields of the layout exclude each other, or the event would be set aside.
    """
    layout = _Layout(selection, is_row, some)
    for route in selection.routes or (Route((), (selection.destination,)),):
        if selection.destination not in route.to:
            continue
        for kind in selection.types or (selection.type,):
            made = layout.stored({**document, "type": kind})
            for condition in (*route.when, *selection.events):
                if not condition.holds(layout.document(made)):
                    layout.fulfil(condition, made)
            found = layout.document(made)
            if selection.takes(found) and (not selection.routes or selection.route_of(found) is not None):
                if found.problem is not None:
                    raise Unplaceable(found.problem)
                return Example(made, found)
    return None


class _Layout:
    """Where the fields of an event are in what the outbox stores."""

    def __init__(self, selection: Selection, is_row: bool, some: str) -> None:
        self._selection = selection
        self._is_row = is_row
        self._some = some
        fields = selection.fields
        self._place = fields.of_columns if is_row else fields.of_document
        names = ("id", "key", "action", "type")
        self._kept = [pointer.names for name in names for pointer in self._place(name)]

    def document(self, stored: StoredDocument) -> SourceDocument:
        """Return the document that the relay makes of a stored one."""
        fields = self._selection.fields
        return (
            fields.of_row(stored, {}, Place(), self._selection.type) if self._is_row else fields.document(stored)
        )

    def stored(self, document: StoredDocument) -> dict[str, Any]:
        """Return a document with the usual names, as the outbox stores it."""
        if not self._selection.fields.is_mapped:
            return deepcopy(dict(document))
        made: dict[str, Any] = {} if self._is_row else {name: document[name] for name in ("id", "ttl")}
        data = document["data"]
        *others, own = self._place("id")
        values: list[tuple[Pointer, Any]] = [
            (self._place("data")[0], deepcopy(data)),
            (self._place("key")[0], document["partitionKey"]),
            (own, document["id"]),
            *((pointer, self._some) for pointer in others),
        ]
        if self._selection.types:
            values.append((self._place("type")[0], document["type"]))
        values += [(self._place("action")[0], data["action"]), (self._place("time")[0], self._time(data))]
        if "traceparent" in document:
            values.append((self._place("trace")[0], document["traceparent"]))
        if "sequence" in document:
            values.append((self._place("sequence")[0], document["sequence"]))
        for pointer, value in values:
            there = pointer.find(made)
            if there != value and (isinstance(there, dict) or not _set(made, pointer, value)):
                raise Unplaceable(f"{pointer} is also the place of another field, or within one")
        if self._is_row:
            self._add_texts(made)
        return made

    def fulfil(self, condition: Condition, made: dict[str, Any]) -> None:
        """Set the value of a condition, if it may be set."""
        if condition.name in ("action", "key"):
            pointer = self._place(condition.name)[0]
            if condition.prefix is not None:
                _set(made, pointer, f"{condition.prefix}{pointer.find(made)}")
        elif condition.name.startswith("/"):
            pointer = Pointer.parse(condition.name)
            is_own = self._selection.fields.is_mapped or pointer.names[0] == "data"
            if is_own and not any(_overlap(pointer.names, names) for names in self._kept):
                _set(made, pointer, self._value(condition))

    def _value(self, condition: Condition) -> Scalar:
        return condition.values[0] if condition.prefix is None else f"{condition.prefix}{self._some}"

    def _time(self, data: Mapping[str, Any]) -> str:
        """Format a time in a form that every database reads."""
        if not self._is_row:
            return str(data["createdAt"])
        return f"{datetime.fromisoformat(data['createdAt']).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

    def _add_texts(self, made: dict[str, Any]) -> None:
        """Add values of the columns that become properties: such a column often has to have one."""
        for each in self._selection.fields.properties:
            if (
                len(each.pointer.names) == 1
                and each.type in (None, "string")
                and each.pointer.find(made) is MISSING
            ):
                _set(made, each.pointer, self._some)


def _overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _set(made: dict[str, Any], pointer: Pointer, value: Any) -> bool:
    """Put a value where a pointer leads; returns whether nothing else is on the way."""
    *way, last = pointer.names
    inner = made
    for name in way:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            return False
    inner[last] = value
    return True
