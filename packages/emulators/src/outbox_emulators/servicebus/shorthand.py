"""Entities written in one line each, where a Config.json would be too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from outbox_emulators.servicebus.entities import Entities

Properties = Mapping[str, Any]
_SUBSCRIPTIONS = "Subscriptions"


def entities_of(
    queues: Iterable[str] | Mapping[str, Properties] = (),
    topics: Iterable[str] | Mapping[str, Properties] = (),
    *,
    namespace: str = "sbemulatorns",
) -> Entities:
    """Return the entities of a namespace. Raises EntitiesError naming each wrong property.

    Args:
        queues: Their names; or by name their properties, named as in Config.json.
        topics: `NAME`, or `NAME/SUBSCRIPTION` for each subscription; or by name their properties, named as in
            Config.json, with `Subscriptions` as the names of its subscriptions, or by name their properties.
        namespace: The namespace's name.
    """
    described = {
        "Name": namespace,
        "Queues": [_entity(name, properties) for name, properties in _by_name(queues).items()],
        "Topics": [_topic(name, properties) for name, properties in _topics(topics).items()],
    }
    return Entities.from_document({"UserConfig": {"Namespaces": [described]}})


def _topics(topics: Iterable[str] | Mapping[str, Properties]) -> Mapping[str, Properties]:
    if isinstance(topics, Mapping):
        return topics
    found: dict[str, dict[str, list[str]]] = {}
    for text in topics:
        topic, _, subscription = text.partition("/")
        subscriptions = found.setdefault(topic, {_SUBSCRIPTIONS: []})[_SUBSCRIPTIONS]
        subscriptions += [subscription] if subscription else []
    return found


def _topic(name: str, properties: Properties) -> dict[str, Any]:
    own = {key: value for key, value in properties.items() if key != _SUBSCRIPTIONS}
    subscriptions = _by_name(properties.get(_SUBSCRIPTIONS, ()))
    return _entity(name, own) | {_SUBSCRIPTIONS: [_entity(*each) for each in subscriptions.items()]}


def _entity(name: str, properties: Properties) -> dict[str, Any]:
    """Return an entity of Config.json; the rules of a subscription are next to its properties there."""
    rules = {"Rules": properties["Rules"]} if "Rules" in properties else {}
    own = {key: value for key, value in properties.items() if key != "Rules"}
    return {"Name": name, "Properties": own, **rules}


def _by_name(entities: Iterable[str] | Mapping[str, Properties]) -> Mapping[str, Properties]:
    return entities if isinstance(entities, Mapping) else {name: {} for name in entities}
