"""Authorization rules of a queue or topic as the management API writes them."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Iterable
from xml.etree.ElementTree import Element

from outbox_relay.emulators.servicebus.administration import atom, xml
from outbox_relay.emulators.servicebus.administration.errors import BadRequest
from outbox_relay.emulators.servicebus.authorization import MOST_RULES, AuthorizationRule, Right

NAME = "AuthorizationRules"

_KIND = "SharedAccessAuthorizationRule"
_KEY_BYTES = 32


def read_rules(
    description: Element, before: Iterable[AuthorizationRule], now_ms: int
) -> tuple[AuthorizationRule, ...]:
    """Return the rules of a description, with the age of those that were there before. Raises BadRequest.

    A key that is left out is made.
    """
    created = {rule.name: rule.created_ms for rule in before}
    found = description.find(atom.name(NAME))
    rules = tuple(_read(each, created, now_ms) for each in (() if found is None else found))
    names = {rule.name.lower() for rule in rules}
    if len(names) < len(rules) or len(rules) > MOST_RULES:
        raise BadRequest(f"{NAME} must have different names, and there may be {MOST_RULES} of them.")
    return rules


def _read(rule: Element, created: dict[str, int], now_ms: int) -> AuthorizationRule:
    name = atom.text_of(rule, "KeyName")
    if name is None:
        raise BadRequest(f"Each of the {NAME} needs a KeyName.")
    rights = rule.find(atom.name("Rights"))
    try:
        allowed = Right.parse([(each.text or "").strip() for each in (() if rights is None else rights)])
    except ValueError as error:
        raise BadRequest(f"The Rights of '{name}' in {NAME} are not valid: {error}.") from error
    primary, secondary = (atom.text_of(rule, f"{which}Key") or make_key() for which in ("Primary", "Secondary"))
    return AuthorizationRule(name, allowed, primary, secondary, created.get(name, now_ms), now_ms)


def make_key() -> str:
    return b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def write_rules(rules: Iterable[AuthorizationRule]) -> Element:
    """Make the element of all rules, which is there even without any."""
    return atom.element(NAME, [_write(rule) for rule in rules])


def _write(rule: AuthorizationRule) -> Element:
    made = atom.element(
        "AuthorizationRule",
        [
            ("ClaimType", "SharedAccessKey"),
            ("ClaimValue", "None"),
            atom.element("Rights", [("AccessRights", name) for name in rule.rights.names]),
            ("CreatedTime", atom.moment(rule.created_ms)),
            ("ModifiedTime", atom.moment(rule.modified_ms)),
            ("KeyName", rule.name),
            ("PrimaryKey", rule.primary_key),
            ("SecondaryKey", rule.secondary_key),
        ],
    )
    made.set(atom.name("type", xml.INSTANCE), _KIND)
    return made
