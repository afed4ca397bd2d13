"""Compiling the parsed text of a rule to functions of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from lark import Token, Transformer

from outbox_relay.emulators.patterns import PatternTooLargeError, like_pattern
from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.sql.terms import (
    ARITHMETIC,
    COMPARISONS,
    INTEGERS,
    MISSING,
    SYSTEM_PROPERTIES,
    EvaluationError,
    Node,
    PropertyName,
    SqlError,
    are_numbers,
    bounded,
    comparable,
    expression,
    invert,
    is_number,
    like_pieces,
    mismatched,
    predicate,
    unquote,
)


class Builder(Transformer[Token, Any]):
    """Turns the parsed text into functions of a message."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__()
        self._parameters = {name.lstrip("@").lower(): value for name, value in parameters.items()}

    def filter(self, parts: list[Any]) -> Node:
        return Node(predicate(self._value(parts[0])), predicate=True)

    def action(self, parts: list[Any]) -> tuple[Any, ...]:
        return tuple(parts)

    def set(self, parts: list[Any]) -> Callable[[Message], Message]:
        name = self._writable(parts[0])
        value = parts[1].copied if isinstance(parts[1], PropertyName) else expression(parts[1])
        return lambda message: name.set(message, value(message))

    def remove(self, parts: list[Any]) -> Callable[[Message], Message]:
        return self._writable(parts[0]).remove

    @staticmethod
    def _writable(name: PropertyName) -> PropertyName:
        if name.system and name.name.lower() not in SYSTEM_PROPERTIES:
            raise SqlError(f"sys.{name.name} cannot be set")
        return name

    @staticmethod
    def _value(part: Node | PropertyName) -> Node:
        if isinstance(part, PropertyName):
            read = part.read

            def evaluate(message: Message) -> Any:
                value = read(message)
                return None if value is MISSING else value

            return Node(evaluate)
        return part

    def or_(self, parts: list[Any]) -> Node:
        left, right = (predicate(self._value(part)) for part in parts)

        def evaluate(message: Message) -> bool | None:
            first = left(message)
            if first is True:
                return True
            second = right(message)
            return True if second is True else (None if first is None or second is None else False)

        return Node(evaluate, predicate=True)

    def and_(self, parts: list[Any]) -> Node:
        left, right = (predicate(self._value(part)) for part in parts)

        def evaluate(message: Message) -> bool | None:
            first = left(message)
            if first is False:
                return False
            second = right(message)
            return False if second is False else (None if first is None or second is None else True)

        return Node(evaluate, predicate=True)

    def not_(self, parts: list[Any]) -> Node:
        inner = predicate(self._value(parts[0]))
        return Node(lambda message: invert(inner(message)), predicate=True)

    def compare(self, parts: list[Any]) -> Node:
        left, sign, right = expression(self._value(parts[0])), parts[1], expression(self._value(parts[2]))
        compare = COMPARISONS[str(sign)]

        def evaluate(message: Message) -> bool | None:
            first, second = left(message), right(message)
            if first is None or second is None:
                return None
            if not comparable(first, second):
                raise mismatched(str(sign), first, second)
            return compare(first, second)

        return Node(evaluate, predicate=True)

    def is_null(self, parts: list[Any]) -> Node:
        value = expression(self._value(parts[0]))
        return Node(lambda message: value(message) is None, predicate=True)

    def is_not_null(self, parts: list[Any]) -> Node:
        value = expression(self._value(parts[0]))
        return Node(lambda message: value(message) is not None, predicate=True)

    def in_(self, parts: list[Any]) -> Node:
        value, *choices = (expression(self._value(part)) for part in parts)

        def evaluate(message: Message) -> bool | None:
            wanted = value(message)
            if wanted is None:
                return None
            found = [choice(message) for choice in choices]
            if any(each is not None and comparable(wanted, each) and wanted == each for each in found):
                return True
            return None if None in found else False

        return Node(evaluate, predicate=True)

    def not_in(self, parts: list[Any]) -> Node:
        inside = self.in_(parts).evaluate
        return Node(lambda message: invert(inside(message)), predicate=True)

    def like(self, parts: list[Any]) -> Node:
        value, pattern = (expression(self._value(part)) for part in parts[:2])
        escape = expression(self._value(parts[2])) if len(parts) > 2 and parts[2] is not None else None

        def evaluate(message: Message) -> bool | None:
            text, wanted = value(message), pattern(message)
            mark = escape(message) if escape else None
            if text is None or wanted is None or (escape and mark is None):
                return None
            if not isinstance(wanted, str):
                raise EvaluationError("The pattern of LIKE is not a string.")
            if mark is not None and (not isinstance(mark, str) or len(mark) != 1):
                raise EvaluationError("The escape character of LIKE is not a string of length 1.")
            if not isinstance(text, str):
                return None
            try:
                return like_pattern(like_pieces(wanted, mark)).is_all_of(text)
            except PatternTooLargeError as error:
                raise EvaluationError(str(error)) from error

        return Node(evaluate, predicate=True)

    def not_like(self, parts: list[Any]) -> Node:
        matched = self.like(parts).evaluate
        return Node(lambda message: invert(matched(message)), predicate=True)

    def arithmetic_sum(self, parts: list[Any]) -> Node:
        left, sign, right = expression(self._value(parts[0])), parts[1], expression(self._value(parts[2]))
        calculate = ARITHMETIC[str(sign)]

        def evaluate(message: Message) -> Any:
            first, second = left(message), right(message)
            if first is None or second is None:
                return None
            numbers = are_numbers(first, second)
            strings = sign == "+" and isinstance(first, str) and isinstance(second, str)
            if not numbers and not strings:
                raise mismatched(str(sign), first, second)
            return bounded(calculate(first, second))

        return Node(evaluate)

    arithmetic_product = arithmetic_sum

    def signed(self, parts: list[Any]) -> Node:
        negative, value = parts[0] == "-", expression(self._value(parts[1]))

        def evaluate(message: Message) -> Any:
            number = value(message)
            if number is None:
                return None
            if not is_number(number):
                raise EvaluationError(f"Operator '{parts[0]}' cannot be applied to an operand that is no number")
            return bounded(-number) if negative else number

        return Node(evaluate)

    def exists(self, parts: list[PropertyName]) -> Node:
        read = parts[0].read
        return Node(lambda message: read(message) is not MISSING, predicate=True)

    def newid(self, parts: list[Any]) -> Node:
        return Node(lambda message: uuid4())

    def property_function(self, parts: list[Any]) -> Node:
        """Read the property whose name an expression yields; any expression of a string is valid."""
        name = expression(self._value(parts[0]))

        def evaluate(message: Message) -> Any:
            found = name(message)
            if not isinstance(found, str):
                return None
            value = PropertyName(found, system=False).read(message)
            return None if value is MISSING else value

        return Node(evaluate)

    def parameter(self, parts: list[Any]) -> Node:
        name = str(parts[0]).lower()
        if name not in self._parameters:
            raise SqlError(f"the parameter @{parts[0]} has no value")
        value = self._parameters[name]
        return Node(lambda message: value)

    def string(self, parts: list[Any]) -> Node:
        text = unquote(str(parts[0]))
        return Node(lambda message: text)

    def integer(self, parts: list[Any]) -> Node:
        number = int(parts[0])
        if number not in INTEGERS:
            raise SqlError(f"{parts[0]} has more than 64 bits")
        return Node(lambda message: number)

    def number(self, parts: list[Any]) -> Node:
        number = float(parts[0])
        return Node(lambda message: number)

    def true(self, parts: list[Any]) -> Node:
        return Node(lambda message: True)

    def false(self, parts: list[Any]) -> Node:
        return Node(lambda message: False)

    def property(self, parts: list[Token]) -> PropertyName:
        scope = str(parts[0]).lower() if len(parts) > 1 else "user"
        name = unquote(str(parts[-1])) if parts[-1].type != "NAME" else str(parts[-1])
        system = scope == "sys"
        if system and name.lower() not in SYSTEM_PROPERTIES and name.lower() != "partitionkey":
            raise SqlError(f"there is no system property '{name}'")
        return PropertyName(name, system)
