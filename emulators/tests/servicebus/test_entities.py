"""The entities file: what it says, and everything that is wrong with it at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outbox_emulators.properties import parse_duration
from outbox_emulators.servicebus.entities import Entities, EntitiesError
from outbox_emulators.servicebus.entity_types import DuplicateDetection
from outbox_emulators.servicebus.filters import CorrelationFilter, TrueFilter
from outbox_emulators.servicebus.message import Property

ROOT = Path(__file__).resolve().parents[3]


def document(**namespace: Any) -> dict[str, Any]:
    found = {"Name": "sbemulatorns", "Queues": [], "Topics": [], **namespace}
    return {"UserConfig": {"Namespaces": [found], "Logging": {"Type": "File"}}}


def problems(wrong: Any) -> str:
    with pytest.raises(EntitiesError) as raised:
        Entities.from_document(wrong)
    return str(raised.value)


def test_the_projects_own_file_has_the_topic_the_relay_needs() -> None:
    entities = Entities.from_file(ROOT / "infra" / "emulators" / "Config.json")

    [topic] = entities.topics
    subscriptions = {each.name: each for each in topic.subscriptions}
    assert topic.name == "domain-events"
    assert topic.sending.duplicates is not None
    assert topic.sending.duplicates.window_ms == 300_000
    assert all(each.receiving.requires_session for each in topic.subscriptions)
    assert isinstance(subscriptions["all"].rules[0].filter, TrueFilter)
    assert subscriptions["names"].rules[0].filter == CorrelationFilter(
        {Property.SUBJECT: "ContactNameUpdatedEvent"}
    )


def test_a_file_may_have_comments_and_slashes_in_its_strings(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text(
        """{ // a comment with "quotes"
        "UserConfig": {"Namespaces": [{"Name": "n", /* "Queues": 1, */ "Queues": [{"Name": "a//b"}]}],
        "Logging": {"Type": "File"}}}"""
    )

    assert [queue.name for queue in Entities.from_file(path).queues] == ["a//b"]


def test_a_file_that_is_not_json_says_where(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text('{\n "UserConfig": ]')

    with pytest.raises(EntitiesError, match="line 2, column 16"):
        Entities.from_file(path)


def test_properties_left_out_have_the_formats_defaults() -> None:
    [queue] = Entities.from_document(document(Queues=[{"Name": "q"}])).queues

    assert queue.receiving.lock_ms == 60_000
    assert queue.receiving.max_delivery_count == 3
    assert queue.receiving.default_ttl_ms == 3_600_000
    assert queue.sending.duplicates is None
    assert not queue.sending.partitioned


def test_everything_wrong_is_named_in_one_error() -> None:
    text = problems(
        document(
            Queues=[
                {
                    "Name": "q",
                    "Properties": {
                        "LockDuration": "PT6M",
                        "MaxDeliveryCount": 0,
                        "RequiresSession": "yes",
                        "DefaultMessageTimeToLive": "soon",
                        "Nonsense": 1,
                    },
                },
                {"Name": "Q"},
                {"Name": "-bad-"},
                {},
            ],
            Topics=[
                {
                    "Name": "t",
                    "Subscriptions": [
                        {
                            "Name": "s",
                            "Properties": {"ForwardTo": "no"},
                            "Rules": [
                                {"Name": "1", "Properties": {"FilterType": "Magic"}},
                                {"Name": "2", "Properties": {"FilterType": "Correlation"}},
                                {
                                    "Name": "3",
                                    "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a ="}},
                                },
                            ],
                        }
                    ],
                }
            ],
        )
    )

    for wrong in (
        "Queues[0].Properties.LockDuration is 'PT6M'",
        "Queues[0].Properties.MaxDeliveryCount must be",
        "Queues[0].Properties.RequiresSession must be true or false",
        "Queues[0].Properties.DefaultMessageTimeToLive is wrong",
        "Queues[0].Properties.Nonsense is not a known property",
        "has 'Q' more than once",
        "'-bad-'",
        "Queues[3].Name is missing",
        "forward to 'no', which is no queue",
        "Rules[0].Properties.FilterType is 'Magic'",
        "Rules[1].Properties.CorrelationFilter must have at least one",
        "Rules[2].Properties.SqlFilter.SqlExpression is not a valid filter",
    ):
        assert wrong in text


@pytest.mark.parametrize("wrong", [[], {}, {"UserConfig": {}}, {"UserConfig": {"Namespaces": [], "Logging": {}}}])
def test_a_document_of_another_shape_is_refused(wrong: Any) -> None:
    assert problems(wrong)


def test_a_topic_can_be_made_partitioned_without_saying_so_in_the_file() -> None:
    entities = Entities.from_document(document(Topics=[{"Name": "t", "Subscriptions": [{"Name": "s"}]}]))

    assert entities.with_partitioning("t").topics[0].sending.partitioned
    with pytest.raises(EntitiesError, match="no queue or topic 'u'"):
        entities.with_partitioning("u")


def test_every_entity_that_detects_duplicates_can_be_given_another_window() -> None:
    detecting = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT5M"}
    entities = Entities.from_document(
        document(Topics=[{"Name": "t", "Properties": detecting}, {"Name": "plain"}])
    ).with_duplicate_window(600_000)

    windows = {topic.name: topic.sending.duplicates for topic in entities.topics}
    assert windows == {"t": DuplicateDetection(600_000), "plain": None}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT5S", 5_000), ("P1DT2H3M4.5S", 93_784_500), ("PT1H", 3_600_000), ("P7D", 604_800_000)],
)
def test_durations_are_read_as_iso_8601_has_them(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "5S", "P1M", "PT1H ", "-PT1S"])
def test_what_is_no_duration_of_days_and_less_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no ISO 8601 duration"):
        parse_duration(text)
