"""The properties of a description: how each is encoded, its bounds, and whether it may change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from outbox_relay.emulators.properties import parse_duration
from outbox_relay.emulators.servicebus.administration import atom
from outbox_relay.emulators.servicebus.administration.errors import BadRequest
from outbox_relay.emulators.servicebus.entity_types import Status
from outbox_relay.emulators.servicebus.namespace import path_of

Values = Mapping[str, Any]

_FOREVER = "P10675199DT2H48M5.4775807S"
"""The longest duration of .NET, which means no end; clients that compute with it round it."""
_FOREVER_MS = 922_337_203_685_000


@dataclass(frozen=True, slots=True)
class Type:
    """How values are read and written. Reading raises ValueError."""

    name: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]


def _read_boolean(text: str) -> bool:
    found = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    if found is None:
        raise ValueError(text)
    return found


def _read_duration(text: str) -> int | None:
    milliseconds = parse_duration(text)
    return None if milliseconds >= _FOREVER_MS else milliseconds


def write_duration(milliseconds: int | None) -> str:
    """Write a duration of milliseconds in ISO 8601; None is without end."""
    if milliseconds is None:
        return _FOREVER
    days, rest = divmod(milliseconds, 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".")
    parts = ((hours, f"{hours}H"), (minutes, f"{minutes}M"), (rest, f"{seconds}S"))
    time = "".join(text for amount, text in parts if amount)
    if not days and not time:
        return "PT0S"
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")


BOOLEAN = Type("boolean", _read_boolean, lambda value: "true" if value else "false")
INTEGER = Type("integer", int, str)
DURATION = Type("ISO 8601 duration", _read_duration, write_duration)
TEXT = Type("text", str, str)
ENTITY = Type("entity", path_of, str)
STATUS = Type("status", Status, lambda value: str(value.value))


@dataclass(frozen=True, slots=True)
class Field:
    """One property. `low` and `high` bound numbers, durations in milliseconds, and the length of texts.

    `fixed` ones are set on creation only; `unsupported` ones may be named, but only with their default;
    `premium` ones, on another tier, only with the value they have; `since` is the first API version that knows it.
    """

    name: str
    type: Type
    default: Any = None
    low: int | None = None
    high: int | None = None
    fixed: bool = False
    unsupported: bool = False
    premium: bool = False
    since: str = ""

    def read(self, text: str) -> Any:
        """Return the value of a text. Raises BadRequest."""
        try:
            value = self.type.read(text)
        except ValueError as error:
            raise BadRequest(
                f"The value '{text}' of the property '{self.name}' is no {self.type.name}."
            ) from error
        return value

    def check(self, value: Any) -> None:
        """Raise BadRequest unless a value lies within the bounds; a duration without end is above the low one."""
        if value is None and self.type is not DURATION:
            return
        measure = len(value) if isinstance(value, str) else value
        too_low = self.low is not None and measure is not None and measure < self.low
        too_high = self.high is not None and (measure is None or measure > self.high)
        if self.type in (INTEGER, DURATION, TEXT) and (too_low or too_high):
            low, high = (None if bound is None else self._bound(bound) for bound in (self.low, self.high))
            raise BadRequest(
                f"The value '{self.type.write(value)}' of the property '{self.name}' is out of range: "
                f"it must be from {low or 'nothing'} to {high or 'without end'}."
            )

    def _bound(self, bound: int) -> str:
        return f"{bound} characters" if self.type is TEXT else self.type.write(bound)


def read(
    description: Element, fields: Iterable[Field], current: Values | None, *, version: str, premium: bool
) -> dict[str, Any]:
    """Return the values of a description. Raises BadRequest.

    `current` are those of the entity to be updated, None on creation. What a description does not name has its
    default, but what is set on creation stays as it is. What has not changed is not checked, as an entities file
    may exceed these bounds.
    """
    values: dict[str, Any] = {}
    for field in fields:
        text = atom.text_of(description, field.name)
        before = field.default if current is None else current[field.name]
        keeps = field.fixed or field.premium
        if text is None:
            values[field.name] = before if current is not None and keeps else field.default
            continue
        value = values[field.name] = field.read(text)
        if value == before:
            continue
        _check_change(field, value, creation=current is None, version=version, premium=premium)
    return values


def _check_change(field: Field, value: Any, *, creation: bool, version: str, premium: bool) -> None:
    if field.unsupported:
        raise BadRequest(f"The property '{field.name}' is not supported by the local Service Bus.")
    if version < field.since:
        raise BadRequest(f"The property '{field.name}' is not known to the API version '{version}'.")
    if field.premium and not premium:
        raise BadRequest(f"The property '{field.name}' can be set in a namespace of the Premium tier only.")
    if field.fixed and not creation:
        raise BadRequest(f"The value of the property '{field.name}' cannot be changed once the entity exists.")
    field.check(value)


def write(values: Values, fields: Iterable[Field], *, version: str) -> list[Element]:
    """Return the elements of a description. What has no value is left out, a duration without end is not."""
    made = []
    for field in fields:
        value = values[field.name]
        if version >= field.since and (value is not None or field.type is DURATION):
            child = atom.element(field.name)
            child.text = field.type.write(value)
            made.append(child)
    return made
