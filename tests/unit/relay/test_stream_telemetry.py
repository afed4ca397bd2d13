"""The telemetry of a stream names it, and that of the stream `default` does not."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter

import pytest

from outbox_relay.emulators.testing import ManualClock
from relay.core.errors import PublishError, RefusedAlikeError
from relay.core.events import Reason, Received
from relay.core.pipeline import Relay
from relay.core.remedy import Remedy
from relay.core.results import KeyFailure, Outcome
from relay.telemetry import instruments
from relay.telemetry.attempt import RelayTelemetry
from relay.telemetry.gauges import Batch
from relay.telemetry.instruments import BoundedActions
from relay.telemetry.stream import as_logged, logger_of, working_for
from tests.support.in_memory import InMemoryPublisher, InMemoryQuarantine, InMemorySource
from tests.support.pages import ROOT
from tests.support.telemetry import Telemetry
from tests.unit.relay.topics import event


def attempt(label: str | None, *, fails: bool = False) -> RelayTelemetry:
    """An attempt with one event of each fate; if it fails, the remedies are logged."""
    relay = RelayTelemetry(ManualClock(0.0), ManualClock(0.0), label=label)
    events = [event(f"e{number}", _ts=1, ttl=600) for number in range(2)]
    stuck = KeyFailure("k", 1, RefusedAlikeError("refused"), "e0") if fails else None
    outcome = Outcome(
        documents=4 if fails else 3,
        ignored=1,
        published=1,
        already_published=0,
        superseded=0,
        quarantined=Counter({"no-route": 1}),
        unsent=1 if fails else 0,
        partition_keys=1,
        sends=1,
        failed=[stuck] if stuck is not None else [],
        set_aside=[],
    )
    try:
        with relay.attempting("i1", 1, "topic") as made:
            made.received(Received(events, [], 1), lambda _: False)
            instruments.accepted(events[:1], 0.1, BoundedActions())
            instruments.already_published(1)
            instruments.quarantined(Reason.NO_ROUTE)
            made.record_outcome(outcome)
            if fails:
                raise PublishError("later")
    except PublishError:
        pass
    relay.headroom.begin(Batch(events, [], lambda _: False))
    return relay


def documented() -> set[str]:
    rows = re.findall(
        r"^\| `(relay\.[a-z.]+)` \| [a-z ]+ \|", (ROOT / "docs/telemetry.md").read_text("utf-8"), re.M
    )
    return set(rows)


@pytest.mark.parametrize(("label", "named"), [(None, set()), ("default", set()), ("orders", {"orders"})])
def test_every_metric_and_the_span_of_a_stream_name_it(
    reported: Telemetry, label: str | None, named: set[str | None]
) -> None:
    relay = attempt(label)
    with relay.shard_ages.watched(3, lambda: 1.0):
        seen = reported.metrics()

    assert seen.names == documented()
    streams = {name: {point.attributes.get("stream") for point in seen.points(name)} for name in seen.names}
    assert streams.pop("relay.feed.age") == {None}
    assert all(each == (named or {None}) for each in streams.values()), streams
    assert [point.attributes["shard"] for point in seen.points("relay.feed.age")] == ["orders/3" if named else 3]
    [span] = reported.spans()
    assert dict(span.attributes or {}).get("relay.stream") == next(iter(named), None)


def test_the_headroom_of_each_stream_is_reported_by_itself(reported: Telemetry) -> None:
    relays = [attempt(None), attempt("orders"), attempt("orders")]

    seen = reported.metrics().points("relay.ttl.headroom")

    assert len(relays) == 3
    assert sorted(str(point.attributes.get("stream")) for point in seen) == ["None", "orders"]


@pytest.mark.parametrize(
    ("label", "option"), [(None, ""), ("default", " --stream default"), ("orders", " --stream orders")]
)
def test_log_records_name_the_stream_and_their_commands_choose_it(
    caplog: pytest.LogCaptureFixture, label: str | None, option: str
) -> None:
    with caplog.at_level(logging.DEBUG, "relay"):
        attempt(label, fails=True)

    lines = {vars(record)["action"]: record for record in caplog.records}
    assert lines.keys() == {"relay_batch", "quarantine", "relay_failed", "relay_blocked"}
    assert f"`python -m relay quarantine list{option}`" in lines["quarantine"].getMessage()
    assert f"python -m relay quarantine add{option} k e0" in lines["relay_blocked"].getMessage()
    named = {vars(record).get("stream") for record in caplog.records}
    assert named == ({"orders"} if label == "orders" else {None})
    # As without a stream, a record has the place that logs.
    assert {record.filename for record in caplog.records} == {"attempt.py"}


async def test_tasks_of_a_stream_log_for_it_and_others_for_theirs(caplog: pytest.LogCaptureFixture) -> None:
    logger = logger_of("relay.test")

    async def log(name: str) -> None:
        with working_for(name):
            await asyncio.gather(asyncio.sleep(0), asyncio.create_task(within(name)))

    async def within(name: str) -> None:
        await asyncio.sleep(0)
        error = ValueError(f"of {name}: python -m relay replay")
        logger.warning("%s: %s", Remedy("replay").render(as_logged()), error, extra={"action": name})

    with caplog.at_level(logging.INFO, "relay.test"):
        await asyncio.gather(log("a"), log("b"))
        logger.warning("of none: %s", Remedy("replay").render(as_logged()))

    assert sorted((record.getMessage(), vars(record).get("stream")) for record in caplog.records[:2]) == [
        ("python -m relay replay --stream a: of a: python -m relay replay", "a"),
        ("python -m relay replay --stream b: of b: python -m relay replay", "b"),
    ]
    # The arguments of the call are those of its record.
    assert all(
        isinstance(record.args, tuple) and isinstance(record.args[1], ValueError) for record in caplog.records[:2]
    )
    assert caplog.records[2].getMessage() == "of none: python -m relay replay"
    assert "stream" not in vars(caplog.records[2])


async def test_the_error_of_an_attempt_names_commands_of_its_stream() -> None:
    publisher = InMemoryPublisher()
    publisher.refused = {"i": "amqp:not-allowed"}
    relay = Relay(
        InMemorySource(),
        publisher,
        InMemoryQuarantine(),
        duplicate_window_s=600,
        telemetry=RelayTelemetry(label="orders"),
    )
    document = {"id": "i", "partitionKey": "k", "type": "domainEvent", "data": {"action": "A"}}

    with pytest.raises(PublishError, match="python -m relay quarantine add --stream orders k i"):
        await relay.handle([document], "i1")
