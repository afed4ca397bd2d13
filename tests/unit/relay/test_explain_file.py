"""`python -m relay explain FILE` on a machine that knows no outbox and no namespace."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.operators import Run, relay_command

DOCUMENT = {"id": "e", "partitionKey": "k", "type": "domainEvent", "data": {"action": "Placed", "n": 1}}
ROW = {"id": "e", "partition_key": "k", "action": "Placed", "data": {"n": 1}}

RULES = """
[destinations.audit]
topic = "audit"
connection = "AUDIT_BUS"

[[routes]]
when.action = "Placed"
to = ["audit"]

[[routes]]
to = ["default"]
"""


async def explain(folder: Path, stored: dict[str, Any], rules: str = "") -> Run:
    """Explain a document or a row by these rules, with no other setting than their place."""
    event, file = folder / "event.json", folder / "relay.toml"
    await asyncio.to_thread(event.write_text, json.dumps(stored), encoding="utf-8")
    await asyncio.to_thread(file.write_text, rules, encoding="utf-8")
    return await relay_command({"RELAY_FILE": str(file)}, "explain", str(event), "--json")


@pytest.mark.parametrize("stored", [DOCUMENT, ROW])
async def test_a_document_or_a_row_is_explained_without_settings(stored: dict[str, Any], tmp_path: Path) -> None:
    run = await explain(tmp_path, stored)

    [stream] = run.json["streams"]
    assert (run.code, stream["outcome"]) == (0, "publish")
    assert stream["message"]["session_id"] == "k"
    assert json.loads(stream["message"]["body"]) == {"action": "Placed", "n": 1}


async def test_rules_and_namespaces_of_relay_toml_need_no_settings(tmp_path: Path) -> None:
    run = await explain(tmp_path, {**DOCUMENT, "_ts": 1_770_000_000}, RULES)

    assert [(each["stream"], each["outcome"]) for each in run.json["streams"]] == [
        ("default", "ignore"),
        ("audit", "publish"),
    ]


async def test_rules_with_generations_are_those_of_the_file(tmp_path: Path) -> None:
    """The rules of the time of the commit are in the outbox, which is not there."""
    rules = f"changed_rules = 'later'\n{RULES}"

    run = await explain(tmp_path, {**DOCUMENT, "_ts": 1_770_000_000}, rules)

    assert [each["outcome"] for each in run.json["streams"]] == ["ignore", "publish"]


async def test_a_feed_of_relay_toml_has_rows(tmp_path: Path) -> None:
    run = await explain(tmp_path, ROW, '[outboxes.default]\nfeed = "shop.event"\n')

    assert [each["outcome"] for each in run.json["streams"]] == ["publish"]


async def test_wrong_rules_are_named(tmp_path: Path) -> None:
    run = await explain(tmp_path, DOCUMENT, "[[routes]]\nto = ['nowhere']\n")

    assert run.code == 2
    assert "nowhere" in run.json["error"]


async def test_with_a_key_the_outbox_is_needed() -> None:
    run = await relay_command({}, "explain", "e", "--key", "k", "--json")

    assert run.code == 2
    assert "COSMOS" in run.json["error"]
