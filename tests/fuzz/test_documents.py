"""Whatever a batch of changes holds: each document is published, quarantined or ignored, and nothing raises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import cast

import pytest
from azure.servicebus.aio import ServiceBusClient
from hypothesis import given
from hypothesis import strategies as st

from relay.backends.cosmos.source import ChangeBatch, CosmosBatch
from relay.core.errors import PublishError
from relay.core.evidence import AcceptedLedger
from relay.core.pipeline import Relay
from relay.core.results import Outcome
from relay.servicebus import messages
from relay.servicebus.pool import SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from tests.fuzz import oracle
from tests.fuzz.budget import DOCUMENTS, count, trying
from tests.fuzz.documents import batches
from tests.fuzz.judging import judge
from tests.fuzz.service import FAULTS, Client, NeverCheckpointed, Shelf, Topic
from tests.support.watchdog import WATCHDOG_S

# As after five attempts: each event is sent alone.
LASTING = 5

# Each refused event is refused three times, with an acceptance in between; an id may occur under several keys.
MOST_UNCERTAIN = 100


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Silence the lines about each invocation, tens of thousands of which would be kept for a failure."""
    logging.getLogger("relay").setLevel(logging.CRITICAL)


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    """Limits small enough to be met, and faults and refusals in some of the runs."""
    limit = draw(st.sampled_from([262_144, 262_144, 1500, 4000]))
    faults = draw(st.one_of(st.just([]), st.lists(st.sampled_from(FAULTS), max_size=8)))
    refused = draw(st.one_of(st.just([]), st.lists(st.integers(0, 199).map(str), max_size=3)))
    return Topic(limit, faults, frozenset(refused))


@pytest.mark.timeout(WATCHDOG_S + DOCUMENTS // 10)
# A batch has 28 documents on average at the least, as was measured: so this many batches have DOCUMENTS.
@trying(DOCUMENTS // 28)
@given(text=batches(), topic=topics(), senders=st.integers(1, 4), formatted=st.booleans())
def test_each_document_is_published_or_quarantined_or_ignored_as_the_contract_says(
    runner: asyncio.Runner, text: str, topic: Topic, senders: int, formatted: bool
) -> None:
    shelf = Shelf()
    pool = SenderPool(cast(ServiceBusClient, Client(topic)), "t", senders)
    message_of = messages.cloudevents("/fuzz") if formatted else messages.plain
    publisher = ServiceBusPublisher(
        pool,
        message_of,
        AcceptedLedger(),
        send_timeout_s=30,
        attempt_timeout_s=60,
        duplicate_window_s=600,
        pauses_s=(0.0, 0.0),
    )
    relay = Relay(NeverCheckpointed(), publisher, shelf, duplicate_window_s=600)
    stored = oracle.read(text)

    outcome = runner.run(handled(relay, topic, text))

    fates = judge(stored, outcome, topic.accepted, shelf.records, cloudevents=formatted)
    assert topic.too_large == 0
    count(fates)


async def handled(relay: Relay[CosmosBatch], topic: Topic, text: str) -> Outcome:
    """The outcome, after as many attempts as there were faults, as it takes to be certain of poison, and one."""
    uncertain = 0
    while True:
        faulty = topic.faulty
        try:
            outcome = await relay.handle(ChangeBatch(text), "fuzz", LASTING)
        except PublishError as error:
            if "refused alike" in str(error) or "Nothing else was accepted" in str(error):
                topic.accept_all()
            elif "It is not certain yet" in str(error):
                uncertain += 1
                assert uncertain <= MOST_UNCERTAIN
            else:
                assert topic.faulty > faulty
        else:
            await relay.close()
            return outcome
