from __future__ import annotations

import re

import pytest

from bench import capacity_doc
from bench.capacity_model import Deployment, forecast, plan
from bench.capacity_rates import Tier


@pytest.fixture(scope="module")
def text() -> str:
    return capacity_doc.DOCUMENT.read_text()


def test_the_tables_of_the_document_are_what_the_model_says(text: str) -> None:
    assert capacity_doc.rendered(text) == text, "python -m bench.capacity --write renders them anew"


def test_every_table_is_in_the_document_once(text: str) -> None:
    assert sorted(re.findall(r"<!-- model: ([a-z-]+) -->", text)) == sorted(capacity_doc.TABLES)


def test_a_number_that_was_changed_by_hand_is_noticed(text: str) -> None:
    changed = text.replace("| RU/s to read the change feed | ", "| RU/s to read the change feed | 1")
    assert changed != text
    assert capacity_doc.rendered(changed) == text


def test_a_table_nobody_knows_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        capacity_doc.rendered("<!-- model: nonsense -->\n<!-- end -->")


def test_a_million_events_a_minute_can_be_relayed_within_every_limit() -> None:
    demand = capacity_doc.MILLION_A_MINUTE
    found = forecast(demand, plan(demand, Deployment(tier=Tier.STANDARD)))
    assert found.first.rate >= demand.rate / 0.7
    assert found.p99_ms is not None
