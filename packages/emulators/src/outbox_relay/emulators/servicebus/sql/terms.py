"""Evaluating the parts of a rule's SQL: values, truth values and properties of a message."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from outbox_relay.emulators.servicebus.codec import Encoded, TimeSpan, Timestamp, decode
from outbox_relay.emulators.servicebus.message import MAX_PROPERTY_BYTES, Message, Property

SYSTEM_PROPERTIES: dict[str, Property] = {
    "contenttype": Property.CONTENT_TYPE,
    "correlationid": Property.CORRELATION_ID,
    "label": Property.SUBJECT,
    "messageid": Property.MESSAGE_ID,
    "replyto": Property.REPLY_TO,
    "replytosessionid": Property.REPLY_TO_GROUP_ID,
    "sessionid": Property.GROUP_ID,
    "to": Property.TO,
}

MISSING = object()
INTEGERS = range(-(1 << 63), 1 << 63)
_LARGEST_DECIMAL = Decimal(2**96 - 1)


class SqlError(ValueError):
    """The expression of a rule is not valid."""


class EvaluationError(Exception):
    """An expression has no value for a message, not even an unknown one: a filter or an action fails."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression: what it yields for a message (None: unknown), and whether that is a truth value."""

    evaluate: Callable[[Message], Any]
    predicate: bool = False


@dataclass(frozen=True, slots=True)
class PropertyName:
    """A property of a message, of the system's scope or the user's."""

    name: str
    system: bool

    def read(self, message: Message) -> Any:
        """Return the value, or a special marker when the message does not have the property."""
        if not self.system:
            properties = message.application_properties
            return next((properties[name] for name in spellings(properties, self.name)), MISSING)
        key = self.name.lower()
        value = message.partition_key if key == "partitionkey" else message.field(SYSTEM_PROPERTIES[key])
        return MISSING if value is None else value

    def copied(self, message: Message) -> Any:
        """Return the value to be set as another property: it keeps its AMQP type."""
        value = self.read(message)
        if value is MISSING or value is None:
            return None
        if self.system:
            return value
        return message.encoded_property(spellings(message.application_properties, self.name)[0])

    def set(self, message: Message, value: Any) -> Message:
        if self.system:
            if isinstance(value, Encoded):
                value = decode(value)[0]
            return message.with_property(SYSTEM_PROPERTIES[self.name.lower()], value)
        # An existing property keeps its spelling, as in the dictionary that .NET clients have for them.
        names = spellings(message.application_properties, self.name) or [self.name]
        changes = dict.fromkeys(names[1:])
        return message.with_application_properties({names[0]: value, **changes})

    def remove(self, message: Message) -> Message:
        return self.set(message, None)


def spellings(properties: Mapping[str, Any], name: str) -> list[str]:
    """Return the properties of that name, the exact spelling first: names are not case-sensitive.

    Source: PropertyDictionary of azure-service-bus-dotnet, which messages and correlation filters use.
    """
    folded = name.lower()
    return sorted((each for each in properties if each.lower() == folded), key=lambda each: each != name)


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def _divide(left: Any, right: Any) -> Any:
    """Divide as C# does: integers towards zero, and numbers with a fraction by zero too."""
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        if not right:
            raise EvaluationError("Attempted to divide by zero.")
        return left / right
    if isinstance(left, int) and isinstance(right, int):
        if not right:
            raise EvaluationError("Attempted to divide by zero.")
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if right:
        return left / right
    return math.copysign(math.inf, left) * math.copysign(1.0, right) if left and left == left else math.nan


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        if not right:
            raise EvaluationError("Attempted to divide by zero.")
        return left % right
    if isinstance(left, int) and isinstance(right, int):
        return left - right * _divide(left, right)
    return math.fmod(left, right) if right and math.isfinite(left) else math.nan


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
}


def bounded(value: Any) -> Any:
    """A result, if a property can have it: at most 32 KB, or 64 bits, or 96 bits of a decimal of .NET.

    Raises EvaluationError otherwise.
    """
    if isinstance(value, str) and len(value) > MAX_PROPERTY_BYTES:
        raise EvaluationError(f"The result has more than {MAX_PROPERTY_BYTES} characters.")
    if isinstance(value, int) and value not in INTEGERS:
        raise EvaluationError("Arithmetic operation resulted in an overflow.")
    if isinstance(value, Decimal) and not abs(value) <= _LARGEST_DECIMAL:
        raise EvaluationError("Value was either too large or too small for a Decimal.")
    return value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool | Timestamp | TimeSpan)


def are_numbers(left: Any, right: Any) -> bool:
    """Return True if C# calculates with both: a decimal goes with integers, and with no double.

    https://learn.microsoft.com/dotnet/csharp/language-reference/builtin-types/numeric-conversions
    """
    mixed = {type_ for type_ in (Decimal, float) for each in (left, right) if isinstance(each, type_)}
    return is_number(left) and is_number(right) and len(mixed) < 2


def comparable(left: Any, right: Any) -> bool:
    return are_numbers(left, right) or any(
        isinstance(left, kind) and isinstance(right, kind)
        for kind in (bool, str, Timestamp, TimeSpan, UUID, bytes)
    )


def mismatched(sign: str, left: Any, right: Any) -> EvaluationError:
    """Return the error for operands that C# has no such operator for, in the words of its binder."""
    types = " and ".join(f"'{_type_name(each)}'" for each in (left, right))
    return EvaluationError(f"Operator '{sign}' cannot be applied to operands of type {types}")


_TYPES = {
    bool: "bool",
    Timestamp: "System.DateTime",
    TimeSpan: "System.TimeSpan",
    int: "long",
    float: "double",
    Decimal: "decimal",
    str: "string",
    UUID: "System.Guid",
}


def _type_name(value: Any) -> str:
    return next((name for type_, name in _TYPES.items() if isinstance(value, type_)), type(value).__name__)


def expression(node: Node) -> Callable[[Message], Any]:
    if node.predicate:
        raise SqlError("a value was expected where a condition stands")
    return node.evaluate


def predicate(node: Node) -> Callable[[Message], Any]:
    if not node.predicate:
        raise SqlError("a condition was expected where a value stands")
    return node.evaluate


def invert(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def unquote(text: str) -> str:
    end = text[-1]
    return text[1:-1].replace(end * 2, end)


def like_pieces(pattern: str, escape: str | None) -> list[str | None]:
    """Return the pattern for `like_pattern`."""
    out: list[str | None] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            out.append(re.escape(next(characters, "")))
        elif character == "%":
            out.append(None)
        elif character == "_":
            out.append(".")
        else:
            out.append(re.escape(character))
    return out
