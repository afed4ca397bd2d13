"""The resources that a stack needs for the relay.toml of its app.

They are topics and queues, further namespaces, and containers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from azure.cosmos import PartitionKey

from local.stack.options import StackOptions
from local.stack.parts import ENTITIES, PartFailed
from outbox_relay.emulators import jsonc
from relay.config.clients import cosmos_client
from relay.config.settings import SERVICEBUS, Settings
from relay.config.streams import read_file
from relay.routes.file import Destination

# As in Azure. In the project's file both are the official emulator's longest, which are shorter.
_DUPLICATE_WINDOW = "PT10M"
_TIME_TO_LIVE = "P1D"

_RECEIVING = {
    "DeadLetteringOnMessageExpiration": True,
    "DefaultMessageTimeToLive": _TIME_TO_LIVE,
    "LockDuration": "PT1M",
    "MaxDeliveryCount": 10,
    "RequiresSession": True,
}


def namespaces(options: StackOptions) -> dict[str, Path]:
    """Return, by setting, the file of each namespace's entities, in the format of the emulators' Config.json.

    The file of SERVICEBUS is the one of the options if the relay.toml of the app needs no more than that has.
    Without one, it has the project's entities, as they are provisioned in Azure. Raises SettingsError.
    """
    _, found = read_file({**os.environ, **options.settings}, options.app)
    named = sorted((each for each in found.destinations.values() if each.entity), key=attrgetter("connection"))
    needed = {connection: list(each) for connection, each in groupby(named, key=attrgetter("connection"))}
    main = needed.pop(SERVICEBUS, [])
    if options.entities is not None and not main:
        made = {SERVICEBUS: options.entities}
    else:
        given = options.entities
        document = jsonc.read(ENTITIES if given is None else given)
        document = as_in_azure(document) if given is None else document
        made = {SERVICEBUS: _written(options, SERVICEBUS, with_destinations(document, main))}
    for connection, destinations in needed.items():
        made[connection] = _written(options, connection, with_destinations(_empty(connection), destinations))
    return made


def as_in_azure(document: dict[str, Any]) -> dict[str, Any]:
    """Give the topics of the project's Config.json what the official emulator lacks and `relay check` asks for."""
    for topic in document["UserConfig"]["Namespaces"][0]["Topics"]:
        topic["Properties"] |= {
            "DefaultMessageTimeToLive": _TIME_TO_LIVE,
            "DuplicateDetectionHistoryTimeWindow": _DUPLICATE_WINDOW,
            "EnablePartitioning": True,
        }
        for subscription in topic["Subscriptions"]:
            subscription["Properties"]["DefaultMessageTimeToLive"] = _TIME_TO_LIVE
    return document


def with_destinations(document: dict[str, Any], destinations: Iterable[Destination]) -> dict[str, Any]:
    """Add the topics and queues that a document does not have: with sessions and duplicate detection."""
    namespace = document["UserConfig"]["Namespaces"][0]
    queues, topics = namespace.setdefault("Queues", []), namespace.setdefault("Topics", [])
    for each in destinations:
        if each.entity in {known["Name"] for known in (*queues, *topics)}:
            continue
        window = _DUPLICATE_WINDOW if each.duplicate_window_s is None else f"PT{each.duplicate_window_s}S"
        sending = {
            "DefaultMessageTimeToLive": _TIME_TO_LIVE,
            "DuplicateDetectionHistoryTimeWindow": window,
            "EnablePartitioning": True,
            "RequiresDuplicateDetection": True,
        }
        if each.is_queue:
            queues.append({"Name": each.entity, "Properties": {**sending, **_RECEIVING}})
        else:
            subscriptions = [{"Name": "all", "Properties": _RECEIVING}]
            topics.append({"Name": each.entity, "Properties": sending, "Subscriptions": subscriptions})
    return document


def _empty(name: str) -> dict[str, Any]:
    namespace = {"Name": name.lower().replace("_", "-"), "Queues": [], "Topics": []}
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}}


def _written(options: StackOptions, connection: str, document: dict[str, Any]) -> Path:
    options.logs.mkdir(parents=True, exist_ok=True)
    path = options.logs / f"{connection.lower()}.entities.json"
    path.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return path


def containers_of(streams: Sequence[Settings]) -> dict[tuple[str, str], tuple[str, int | None]]:
    """Return the containers in Cosmos DB that these streams need.

    Returns:
        By database and name, the path of the partition key and the default time to live in seconds; None for none.
    """
    needed: dict[tuple[str, str], tuple[str, int | None]] = {}
    for each in streams:
        if each.cosmos is not None:
            key = each.selection.fields.of_document("key")[0]
            needed[each.in_cosmos.database, each.in_cosmos.container] = (key.text, -1)
            needed[each.in_cosmos.database, each.in_cosmos.lease_container] = ("/id", -1)
            needed[each.in_cosmos.database, each.in_cosmos.quarantine_container] = ("/partitionKey", None)
    return needed


async def create_containers(streams: Sequence[Settings]) -> None:
    """Create the containers in Cosmos DB that these streams need and the account does not have.

    An empty one with another partition key is made anew: the emulator makes those of the article's layout.

    Raises:
        PartFailed: A container with another partition key has documents.
    """
    needed = containers_of(streams)
    if not needed:
        return
    async with cosmos_client(next(each.cosmos.connection for each in streams if each.cosmos)) as client:
        for (database, container), (path, ttl) in needed.items():
            made = await client.create_database_if_not_exists(database)
            there = await made.create_container_if_not_exists(container, PartitionKey(path), default_ttl=ttl)
            existing = ", ".join((await there.read())["partitionKey"]["paths"])
            if existing == path:
                continue
            if [each async for each in there.query_items("SELECT TOP 1 c.id FROM c")]:
                raise PartFailed(
                    f"The container '{container}' has the partition key {existing}, and relay.toml names {path}: "
                    "name another container, or start the stack with new data."
                )
            await made.delete_container(container)
            await made.create_container(container, PartitionKey(path), default_ttl=ttl)
