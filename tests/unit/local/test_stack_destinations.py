"""The entities that a local stack makes for the relay.toml of its app, in one or several namespaces."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from local.stack.destinations import namespaces
from local.stack.options import StackOptions
from local.stack.parts import Part
from local.stack.supervisor import Stack
from outbox_emulators.servicebus.entities import Entities
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


def made(folder: Path, text: str) -> dict[str, Entities | None]:
    (folder / "relay.toml").write_text(text)
    found = namespaces(StackOptions(app=folder, logs=folder / "logs"))
    return {name: None if path is None else Entities.from_file(path) for name, path in found.items()}


def test_a_namespace_gets_what_it_lacks_with_sessions_and_duplicate_detection(tmp_path: Path) -> None:
    found = made(tmp_path, FILE)

    main, elsewhere = found["SERVICEBUS"], found["SERVICEBUS_ELSEWHERE"]
    assert main is not None
    assert elsewhere is not None
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


def test_without_further_destinations_the_project_s_entities_are_used_as_they_are(tmp_path: Path) -> None:
    assert made(tmp_path, "") == {"SERVICEBUS": None}


def test_commands_are_told_the_management_endpoint_of_every_namespace(tmp_path: Path) -> None:
    stack = Stack(StackOptions(app=tmp_path, logs=tmp_path))
    parts = [cast(Part, SimpleNamespace(details={"admin_port": port})) for port in (5300, 5301)]
    stack.servicebus, stack._namespaces["ORDERS_BUS"] = parts

    assert stack.administration == {
        "SERVICEBUS_ADMIN": "http://127.0.0.1:5300",
        "ORDERS_BUS_ADMIN": "http://127.0.0.1:5301",
    }
    assert administration_address(None, stack.administration, "ORDERS_BUS") == ManagementAddress(
        "http://127.0.0.1:5301", "ORDERS_BUS_ADMIN", "ORDERS_BUS"
    )
