"""The layouts of docs/mapping.md, by the files that the page shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from azure.cosmos.aio import CosmosClient

from local.stack.environment import DATABASE
from relay.config.settings import Settings
from relay.config.streams import read_streams
from tests.support.pages import ROOT

DEBEZIUM = (
    "id uuid primary key, aggregatetype varchar(255) not null, aggregateid varchar(255) not null, "
    "type varchar(255) not null, payload jsonb"
)
"""The columns of Debezium's outbox table."""


def layout(name: str) -> str:
    """The file that the page shows for a layout."""
    blocks = (ROOT / "docs/mapping.md").read_text(encoding="utf-8").split("```toml\n")[1:]
    (found,) = [block for each in blocks if (block := each.split("```")[0]).startswith(f'layout = "{name}"')]
    return found


def only_stream(environment: dict[str, str], folder: Path, text: str) -> Settings:
    (folder / "relay.toml").write_text(text)
    (stream,) = read_streams(environment | {"RELAY_DUPLICATE_WINDOW_S": "604800"}, app=folder)
    return stream


async def delivered(account: CosmosClient, container: str) -> list[dict[str, Any]]:
    """All documents of a container, as a trigger would deliver them."""
    feed = account.get_database_client(DATABASE).get_container_client(container)
    return [each async for each in feed.query_items_change_feed(start_time="Beginning")]
