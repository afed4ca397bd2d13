"""Entities written in one line each, where a Config.json would be too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from outbox_relay.emulators.servicebus.entities import Entities, EntitiesError

Properties = Mapping[str, Any]
_SUBSCRIPTIONS = "Subscriptions"
_SESSIONS: Properties = {"RequiresSession": True}


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


def entities_of_names(queues: Iterable[str], topics: Iterable[str], sessions: Iterable[str]) -> Entities:
    """Return the entities that options name. Raises EntitiesError naming each wrong one.

    Args:
        queues: Names of queues without sessions.
        topics: `NAME`, or `NAME/SUBSCRIPTION` for each subscription without sessions.
        sessions: `NAME` of a queue, or `NAME/SUBSCRIPTION`, that requires sessions.
    """
    found_queues: dict[str, Properties] = {name: {} for name in queues}
    found_topics: dict[str, dict[str, Properties]] = {
        name: dict(_by_name(each[_SUBSCRIPTIONS])) for name, each in _topics(topics).items()
    }
    for text in sessions:
        name, separator, subscription = text.partition("/")
        if separator and not (name and subscription):
            raise EntitiesError([f"'{text}' is neither the name of a queue nor NAME/SUBSCRIPTION"])
        entities = found_topics.setdefault(name, {}) if separator else found_queues
        if entities.setdefault(subscription if separator else name, _SESSIONS) is not _SESSIONS:
            raise EntitiesError([f"'{text}' is given with --sessions and without: give it once"])
    return entities_of(found_queues, {name: {_SUBSCRIPTIONS: each} for name, each in found_topics.items()})


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
