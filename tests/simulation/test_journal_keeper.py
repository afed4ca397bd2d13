"""The events that an operator orders to be set aside, by the journal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from relay.config.settings import OnPoison
from verification.journal.entries import Checkpointed, Committed, SetAside
from verification.simulation.journal_keeper import Notes


@pytest.mark.parametrize("policy", OnPoison)
@pytest.mark.parametrize(("position", "is_behind"), [((2,), True), ((3,), False)])
def test_an_event_blocks_again_once_a_new_lease_begins_before_it(
    policy: OnPoison, position: tuple[int, ...], is_behind: bool
) -> None:
    world: Any = SimpleNamespace(now=10.0)
    notes = Notes(world, policy)
    event = Committed(at=1.0, key="k", id="e", position=(3, 0), digest="", place="1", sound=False)
    elsewhere = Committed(at=1.0, key="j", id="f", position=(3, 0), digest="", place="2", sound=False)

    notes.journal += [event, elsewhere]
    assert notes.waiting(9.0) == [("k", "e"), ("j", "f")]
    assert notes.waiting(9.5) == []
    notes.journal += [SetAside(at=2.0, key=each.key, id=each.id, reason="r") for each in (event, elsewhere)]
    assert notes.waiting(0.0) == []
    notes.journal.append(Checkpointed(at=3.0, lease="0-2", owner="host", covers=("0", "2"), position=position))

    blocks = is_behind and policy is OnPoison.BLOCK
    assert notes.waiting(0.0) == ([("k", "e")] if blocks else [])
