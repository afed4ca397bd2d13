"""The app with the SDKs, over the emulators' servers and a network in memory."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from relay.config.settings import OnPoison
from relay.core.errors import PublishError
from relay.core.pipeline import Relay
from verification.simulation import runner
from verification.simulation.connected import ConnectedWorld
from verification.simulation.faults import Fault
from verification.simulation.plan import Plan, Result
from verification.simulation.wire import services, universe
from verification.simulation.wire.fault_injection import KINDS

pytestmark = [pytest.mark.slow, pytest.mark.weekly, pytest.mark.usefixtures("prepared")]


def run(plan: Plan) -> Result:
    return runner.run(universe, plan)


def kinds(result: Result) -> Counter[str]:
    return Counter(entry.kind for entry in result.journal)


def test_the_app_publishes_everything() -> None:
    result = run(Plan(1, 60, (), OnPoison.SKIP))

    found = kinds(result)
    assert result.violations == []
    assert found["committed"] >= 60
    assert found["accepted"] + found["set_aside"] >= 60
    assert found["checkpointed"] > 0


def test_every_kind_of_fault_is_survived() -> None:
    faults = [Fault(20.0 + 10 * number, kind, number, "topic", 15.0, 0.4) for number, kind in enumerate(KINDS)]
    # The relay connects to the account, too.
    faults += [
        Fault(25.0 + 40 * number, kind, 0, "account", 15.0, 0.2) for number, kind in enumerate(("cut", "down"))
    ]

    result = run(Plan(2, 60, tuple(sorted(faults, key=lambda fault: fault.at)), OnPoison.PARK))

    found = kinds(result)
    assert result.violations == []
    assert found["killed"] >= 3
    assert found["frozen"] >= 2


def test_partitions_are_split_and_merged() -> None:
    faults = [Fault(30.0, "split", 0, "account", 0.0, 0.0), Fault(90.0, "merge", 0, "account", 0.0, 0.0)]

    result = run(Plan(3, 60, tuple(faults), OnPoison.SKIP))

    leases = {entry.lease for entry in result.journal if entry.kind == "claimed"}  # type: ignore[attr-defined]
    assert result.violations == []
    # A merged partition's leases are named by their ranges.
    assert any("-" in lease for lease in leases)


def test_a_seed_gives_the_same_bytes_at_the_same_times(monkeypatch: pytest.MonkeyPatch) -> None:
    digests: list[str] = []

    class Digested(ConnectedWorld):
        def close(self) -> None:
            digests.append(self.network.digest())
            super().close()

    monkeypatch.setattr(universe, "ConnectedWorld", Digested)
    for seed in (5, 6, 5):
        run(universe.plan(seed, 10, 3))

    assert digests[0] == digests[2]
    assert digests[0] != digests[1]


# Without a safeguard, one of this many universes violates a guarantee.
WITHIN = 4


def violated(kind: str) -> Iterator[str]:
    """The violations of universes with these faults, of the topic."""
    faults = tuple(Fault(30.0 * number, kind, number, "topic", 20.0, 0.2) for number in range(1, 7))
    for seed in range(WITHIN):
        yield from run(Plan(seed, 60, faults, OnPoison.SKIP)).violations


def test_a_topic_without_duplicate_detection_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    entities = copy.deepcopy(services.ENTITIES)
    topic = entities["UserConfig"]["Namespaces"][0]["Topics"][0]
    topic["Properties"]["RequiresDuplicateDetection"] = False
    monkeypatch.setattr(services, "ENTITIES", entities)

    assert any(each.startswith("duplicated:") for each in violated("lose-answers"))


def test_an_app_that_checkpoints_what_it_has_not_published_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Relay.handle

    async def succeed(*arguments: Any) -> None:
        with suppress(PublishError):
            await handle(*arguments)

    monkeypatch.setattr(Relay, "handle", succeed)

    assert any(each.startswith("missing:") for each in violated("down"))
