"""Authorization rules in an entities file: of the namespace, of queues and of topics.

The official emulator's format has none. They are named as in ARM templates, next to their keys.
"""

from __future__ import annotations

from outbox_emulators.properties import Reader
from outbox_emulators.servicebus.authorization import MOST_RULES, AuthorizationRule, Right

NAME = "AuthorizationRules"


def read_rules(reader: Reader) -> tuple[AuthorizationRule, ...]:
    """Read the rules of the namespace or of an entity's properties."""
    rules = tuple(_read(each) for each in reader.children(NAME))
    names = {rule.name.lower() for rule in rules}
    if len(names) < len(rules) or len(rules) > MOST_RULES:
        reader.wrong(NAME, f"must have different names, and there may be {MOST_RULES} of them")
    return rules


def _read(rule: Reader) -> AuthorizationRule:
    name = rule.string("KeyName", required=True)
    primary = rule.string("PrimaryKey", required=True)
    rights = Right.ANY
    try:
        rights = Right.parse(rule.strings("Rights"))
    except ValueError as error:
        rule.wrong("Rights", f"is wrong: {error}")
    secondary = rule.string("SecondaryKey") or primary
    rule.done()
    return AuthorizationRule(name, rights, primary, secondary)
