"""The entities that a local stack makes for the relay.toml of its app, in one or several namespaces."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from local.stack.destinations import namespaces
from local.stack.options import StackOptions
from local.stack.parts import Part
from local.stack.supervisor import Stack
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.entity_types import DAY_MS
from relay.config.clients import ManagementAddress, administration_address

FILE = """
[destinations.audit]
queue = "audit"
duplicate_window_s = 120

[destinations.contacts]
topic = "contacts"

[destinations.elsewhere]
topic = "contacts"
connection = "SERVICEBUS_ELSEWHERE"

[[routes]]
to = ["default", "audit", "contacts", "elsewhere"]
"""


def made(folder: Path, text: str) -> dict[str, Entities]:
    (folder / "relay.toml").write_text(text)
    found = namespaces(StackOptions(app=folder, logs=folder / "logs"))
    return {name: Entities.from_file(path) for name, path in found.items()}


def test_a_namespace_gets_what_it_lacks_with_sessions_and_duplicate_detection(tmp_path: Path) -> None:
    found = made(tmp_path, FILE)

    main, elsewhere = found["SERVICEBUS"], found["SERVICEBUS_ELSEWHERE"]
    assert sorted(main.names) == ["audit", "contacts", "domain-events"]
    assert elsewhere.names == ["contacts"]
    sending = {each.name: each.sending for each in main.queues} | {each.name: each.sending for each in main.topics}
    assert {name: each.duplicates and each.duplicates.window_ms for name, each in sending.items()} == {
        "audit": 120_000,
        "contacts": 600_000,
        "domain-events": 600_000,
    }
    receiving = [each.receiving for topic in main.topics for each in topic.subscriptions]
    assert all(each.requires_session for each in (*receiving, main.queues[0].receiving))


def test_every_entity_has_what_check_asks_for(tmp_path: Path) -> None:
    """The time to live of a day, and the partitioning, are as `check` wants them without options."""
    for found in made(tmp_path, FILE).values():
        sending = [each.sending for each in found.queues] + [each.sending for each in found.topics]
        assert {each.partitioned for each in sending} == {True}
        receiving = [each.receiving for topic in found.topics for each in topic.subscriptions]
        receiving += [each.receiving for each in found.queues]
        lives = {each.default_ttl_ms for each in found.topics} | {each.default_ttl_ms for each in receiving}
        assert lives == {DAY_MS}


def test_without_further_destinations_the_stack_has_the_projects_entities(tmp_path: Path) -> None:
    found = made(tmp_path, "")

    assert list(found) == ["SERVICEBUS"]
    [topic] = found["SERVICEBUS"].topics
    assert [each.name for each in topic.subscriptions] == ["all", "names"]


def test_entities_of_the_options_are_used_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "relay.toml").write_text("")
    given = tmp_path / "Config.json"

    assert namespaces(StackOptions(app=tmp_path, logs=tmp_path, entities=given)) == {"SERVICEBUS": given}


def test_commands_are_told_the_management_endpoint_of_every_namespace(tmp_path: Path) -> None:
    stack = Stack(StackOptions(app=tmp_path, logs=tmp_path))
    parts = [cast(Part, SimpleNamespace(details={"admin_port": port})) for port in (5300, 5301)]
    stack.servicebus, stack.namespaces["ORDERS_BUS"] = parts

    assert stack.administration == {
        "SERVICEBUS_ADMIN": "http://127.0.0.1:5300",
        "ORDERS_BUS_ADMIN": "http://127.0.0.1:5301",
    }
    assert administration_address(None, stack.administration, "ORDERS_BUS") == ManagementAddress(
        "http://127.0.0.1:5301", "ORDERS_BUS_ADMIN", "ORDERS_BUS"
    )
