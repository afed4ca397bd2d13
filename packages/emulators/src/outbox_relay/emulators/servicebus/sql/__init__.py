"""The SQL of subscription rules: filters and actions.

The language is that of "Subscription rule SQL filter syntax" and "SQL action syntax" (learn.microsoft.com,
service-bus-messaging-sql-filter and -rule-actions): three-valued logic, where a property that is not there is
unknown, and a message matches only what is true. Operators are those of C#: what it
cannot apply to the operands, or a division of integers by zero, is an error of the evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lark.exceptions import LarkError, VisitError

from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.sql.builder import Builder
from outbox_relay.emulators.servicebus.sql.grammar import parser
from outbox_relay.emulators.servicebus.sql.terms import EvaluationError, Node, SqlError, comparable, spellings

_LONGEST = 1024
_MOST_STATEMENTS = 32
"""Of a filter or an action, and of an action ("Service Bus quotas", learn.microsoft.com)."""

__all__ = [
    "EvaluationError",
    "SqlAction",
    "SqlError",
    "SqlExpression",
    "comparable",
    "parse_action",
    "parse_filter",
    "spellings",
]


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """A filter's predicate. `text` and `parameters` are those it was made from."""

    text: str
    node: Node
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def matches(self, message: Message) -> bool:
        """Return whether the predicate is true of a message: neither false nor unknown. Raises EvaluationError."""
        try:
            return self.node.evaluate(message) is True
        except ArithmeticError as error:
            raise EvaluationError(str(error)) from error


@dataclass(frozen=True, slots=True)
class SqlAction:
    """The action of a rule on its copy of a message."""

    text: str
    steps: tuple[Callable[[Message], Message], ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, message: Message) -> Message:
        """Return the message as it is after the statements. Raises EvaluationError."""
        try:
            for step in self.steps:
                message = step(message)
        except ArithmeticError as error:
            raise EvaluationError(str(error)) from error
        return message


def parse_filter(text: str, parameters: Mapping[str, Any] | None = None) -> SqlExpression:
    """Read the expression of a SQL filter. Raises SqlError saying what is wrong and where."""
    known = parameters or {}
    _check_length(text, "filter")
    return SqlExpression(text, _read(text, "filter", known), known)


def parse_action(text: str, parameters: Mapping[str, Any] | None = None) -> SqlAction:
    """Read the statements of a SQL action. Raises SqlError saying what is wrong and where."""
    known = parameters or {}
    _check_length(text, "action")
    steps = _read(text, "action", known)
    if len(steps) > _MOST_STATEMENTS:
        raise SqlError(f"the action has {len(steps)} statements; the limit is {_MOST_STATEMENTS}")
    return SqlAction(text, steps, known)


def _check_length(text: str, what: str) -> None:
    if len(text) > _LONGEST:
        raise SqlError(f"the {what} has {len(text)} characters; the limit is {_LONGEST}")


def _read(text: str, start: str, parameters: Mapping[str, Any]) -> Any:
    try:
        return Builder(parameters).transform(parser().parse(text, start=start))
    except VisitError as error:
        raise SqlError(str(error.orig_exc)) from error
    except LarkError as error:
        raise SqlError(str(error).strip().splitlines()[0]) from error
