"""A short campaign of kills against a consumer that parks keys, on PostgreSQL; and its judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.parking import campaign

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

PUBLISHED = [("k", number, f"k-{number}") for number in (1, 2, 3)]


async def test_every_effect_is_had_once_and_in_order(postgres_database: str, tmp_path: Path) -> None:
    outcome = await campaign.run(postgres_database, tmp_path / "logs", events=60, kills=4, limit_s=100)

    assert outcome.wrong == []
    assert outcome.effects + outcome.discarded == outcome.events >= 60
    assert outcome.kills >= 4


@pytest.mark.parametrize(
    ("effects", "wrong"),
    [
        ([1, 3], []),
        ([1, 2], ["k-3 had no effect"]),
        ([1, 3, 3], ["k-3 had 2 effects", "k-3 came behind k-3"]),
        ([3, 1], ["k-1 came behind k-3"]),
    ],
)
def test_what_is_wrong_is_found(effects: list[int], wrong: list[str]) -> None:
    had = [("k", number, f"k-{number}") for number in effects]

    assert campaign.judge(PUBLISHED, had, {"k-2"}) == wrong
