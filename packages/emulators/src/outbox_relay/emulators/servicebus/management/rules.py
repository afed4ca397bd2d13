"""Operations on the rules of a subscription, for clients that have no right to manage it."""

from __future__ import annotations

from outbox_relay.emulators.servicebus.errors import ArgumentInvalid
from outbox_relay.emulators.servicebus.management.request import Request, Result
from outbox_relay.emulators.servicebus.management.rule_messages import read_rule, write_rule

_LONGEST_NAME = 50


def add_rule(request: Request) -> Result:
    subscription = request.subscription()
    name = _name(request)
    now = request.broker.namespace.timers.now()
    subscription.add_rule(read_rule(name, request.body["rule-description"], now))
    return {}


def remove_rule(request: Request) -> Result:
    request.subscription().remove_rule(_name(request))
    return {}


def enumerate_rules(request: Request) -> Result:
    subscription = request.subscription()
    rules = subscription.rules[request.page()]
    if not rules:
        return None
    created = subscription.times.created_ms
    return {"rules": [{"rule-description": write_rule(rule, created)} for rule in rules]}


def _name(request: Request) -> str:
    name = request.body["rule-name"]
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME:
        raise ArgumentInvalid(f"The rule-name must be a string of 1 to {_LONGEST_NAME} characters.")
    return name
