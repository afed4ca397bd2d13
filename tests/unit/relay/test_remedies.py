"""The remedy in a blocking event's error: the command suffices for any event id."""

from __future__ import annotations

from typing import Any

import pytest

from relay.config.settings import OnPoison
from relay.core import holds
from relay.core.errors import PublishError
from relay.quarantine.quarantine import StoredQuarantine
from tests.support.in_memory_items import InMemoryItems
from tests.support.operators import shell_words
from tests.unit.relay.test_pipeline_in_memory import Running, document

COMMAND = "To set it aside: python -m relay quarantine add "

INVALID: dict[str, dict[str, Any]] = {
    "an id that is a number": {"id": 5},
    "an id that is null": {"id": None},
    "an id that is an object": {"id": {"a": "x y"}},
    "an empty id": {"id": ""},
    "an id that is too long": {"id": "x" * 129},
    "an id with half of a surrogate pair": {"id": "a\ud800"},
    "an id on two lines": {"id": "a\nb", "data": 7},
    "an id like an option": {"id": "-x", "data": 7},
    "an id with quotes": {"id": "it's `x`", "data": 7},
    "data that is no object": {"data": 7},
    "an action that is no string": {"data": {"action": 1}},
    "an action with half of a surrogate pair": {"data": {"action": "\ud800"}},
    "properties that are too large": {"data": {"action": "x" * 20_000}},
}


def ordered(error: str) -> dict[str, Any]:
    """The order that an operator gives who copies the command from an error."""
    # As a log or a terminal takes it.
    line = error.encode().decode()
    key, identifier = (each for each in shell_words(line[line.index(COMMAND) + len(COMMAND) :]) if each != "--")
    return holds.order_item(key, identifier)


@pytest.mark.parametrize("changes", INVALID.values(), ids=INVALID)
async def test_the_command_of_an_error_sets_the_event_aside_for_good(changes: dict[str, Any]) -> None:
    running, items = Running(OnPoison.BLOCK), InMemoryItems()
    running.relay = running.relay_with(StoredQuarantine(items))
    batch = [document("e") | changes, document("s")]
    with pytest.raises(PublishError) as raised:
        await running.relay.handle(batch, "i1")
    await items.create(ordered(str(raised.value)))

    outcome = await running.relay.handle(batch, "i1", 1)
    assert (outcome.quarantined.total(), outcome.published) == (1, 1)

    running.relay = running.relay_with(StoredQuarantine(items))
    assert (await running.relay.handle(batch, "i2")).superseded == 1
