"""Rules as a function of a document: every document of an outbox is asked about, once for each stream.

Fields that cannot change the answer are not read. Most files name values of one field, which are then looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relay.core.documents import SourceDocument
from relay.routes.conditions import Condition

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
