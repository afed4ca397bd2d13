"""Conditions on a document, and rules of them as a function, which is asked for every document of an outbox.

Fields that cannot change the answer are not read. Most files name values of one field, which are then looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relay.core.documents import Numeric, SourceDocument
from relay.routes.pointers import Pointer

Scalar = str | int | float | bool

NAMED: Mapping[str, Callable[[SourceDocument], Any]] = {
    "id": lambda document: document.fields.get("id"),
    "key": lambda document: document.fields.get("partitionKey"),
    "type": lambda document: document.fields.get("type"),
    "action": lambda document: document.action,
}
"""The fields that a condition may name, whatever the outbox calls them."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one value of a document.

    Attributes:
        name: A name of `NAMED`, or a JSON Pointer into the document as the outbox has it.
        values: The values that it may have; none if there is a `prefix`.
        prefix: The beginning that it has to have, as text.
        find: The value of a document.

    Raises:
        ValueError: The name is neither.
    """

    name: str
    values: tuple[Scalar, ...] = ()
    prefix: str | None = None
    find: Callable[[SourceDocument], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "find", _finder(self.name))

    def holds(self, document: SourceDocument) -> bool:
        """Return True if the document's value is one of `values`, or begins with `prefix`."""
        return self._fits(self.find(document))

    def implies(self, other: Condition) -> bool:
        """Return True if the other condition is known to hold wherever this one does."""
        if self.name != other.name:
            return False
        if self.prefix is not None:
            return other.prefix is not None and self.prefix.startswith(other.prefix)
        return all(map(other._fits, self.values))

    def _fits(self, value: Any) -> bool:
        if self.prefix is not None:
            return isinstance(value, str) and value.startswith(self.prefix)
        if isinstance(value, Numeric):
            return any(map(value.equals, self.values))
        # In JSON, true is not 1.
        return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in self.values)

    def __str__(self) -> str:
        if self.prefix is not None:
            return f"{self.name} begins with {self.prefix!r}"
        values = (repr(each).lower() if isinstance(each, bool) else repr(each) for each in self.values)
        return f"{self.name} is {' or '.join(values)}"


def _finder(name: str) -> Callable[[SourceDocument], Any]:
    if name in NAMED:
        return NAMED[name]
    if not name.startswith("/"):
        raise ValueError(f"is no field: write {', '.join(NAMED)}, or a JSON Pointer such as /data/tenant")
    pointer = Pointer.parse(name)

    def find(document: SourceDocument) -> Any:
        return pointer.find_in(document.views) if document.views else pointer.find(document.fields)

    return find


Rule = tuple[Sequence[Condition], bool]
"""Conditions, and the answer for a document that fulfils all of them. The first such rule counts."""

Decision = Callable[[SourceDocument], bool] | bool
"""The answer for a document, or for every one."""


def decision(rules: Sequence[Rule], *, otherwise: bool) -> Decision:
    """Return the answer of the rules as a function; `otherwise` where none counts."""
    needed = []
    for when, answer in rules:
        if not when:
            otherwise = answer
            break
        needed.append((when, answer))
    # Without the last rules, the answer is the same if it is theirs.
    while needed and needed[-1][1] == otherwise:
        needed.pop()
    if not needed:
        return otherwise
    return _looked_up(needed, otherwise) or _one_by_one(needed, otherwise)


def _looked_up(rules: Sequence[Rule], otherwise: bool) -> Callable[[SourceDocument], bool] | None:
    """Return the answer by the value of one field.

    It is None if the rules are about more than the texts that it may be.
    """
    conditions = [condition for when, _ in rules for condition in when]
    has_one_each, has_one_field = len(conditions) == len(rules), len({each.name for each in conditions}) == 1
    if not (has_one_each and has_one_field and all(map(_names_texts, conditions))):
        return None
    find = conditions[0].find
    answers: dict[object, bool] = {}
    for condition, (_, answer) in zip(conditions, rules, strict=True):
        for value in condition.values:
            answers.setdefault(value, answer)

    def decide(document: SourceDocument) -> bool:
        value = find(document)
        return answers.get(value, otherwise) if isinstance(value, str) else otherwise

    return decide


def _names_texts(condition: Condition) -> bool:
    return condition.prefix is None and all(isinstance(value, str) for value in condition.values)


def _one_by_one(rules: Sequence[Rule], otherwise: bool) -> Callable[[SourceDocument], bool]:
    def decide(document: SourceDocument) -> bool:
        for when, answer in rules:
            for condition in when:
                if not condition.holds(document):
                    break
            else:
                return answer
        return otherwise

    return decide
