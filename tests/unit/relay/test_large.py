"""Large events with RELAY_LARGE=claim-check, on a topic and a store in memory: their order, and failures."""

from __future__ import annotations

import hashlib
import time
from base64 import b64encode
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ServiceRequestError
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.storage.blob.aio import ContainerClient

from outbox_relay.emulators.servicebus.message import Message as Accepted
from relay.config.clients import Connection
from relay.config.settings import ClaimCheck, OnPoison
from relay.core.errors import ContentError
from relay.core.events import Event
from relay.core.results import KeyOutcome
from relay.core.verdict import Judge
from relay.large.blobs import Blobs, explained
from relay.large.claims import Claims
from relay.large.content import Content
from relay.servicebus import encoding, messages
from relay.servicebus.pool import annotated
from relay.servicebus.publisher import ServiceBusPublisher
from tests.fuzz.service import encoded
from tests.support import virtual_time
from tests.support.in_memory_contents import InMemoryContents
from tests.support.pages import ROOT
from tests.unit.relay.topics import FakeTopic, event

LIMIT = 5_000
LARGE = 6_000


class World:
    """A topic that takes messages of LIMIT bytes, and a publisher to it that stores the contents of others."""

    def __init__(self, **options: Any) -> None:
        self.topic = FakeTopic(limit=LIMIT)
        self.contents = InMemoryContents()
        self.publisher: ServiceBusPublisher = self.topic.publisher(
            claims=Claims(self.contents, messages.plain), **options
        )

    async def publish(self, *events: Event, **options: Any) -> KeyOutcome:
        (outcome,) = await self.publisher.publish({"k": list(events)}, **options)
        return outcome

    def accepted(self, identifier: str) -> Accepted:
        [message] = [each for each in self.topic.accepted["k"] if each.message_id == identifier]
        return message


async def test_a_claim_takes_the_place_of_a_large_event_among_its_neighbours() -> None:
    world = World()
    large = event("large", size=LARGE)

    outcome = await world.publish(event("a"), event("b"), large, event("c"), event("d"))

    assert world.topic.transfers == [["a", "b"], ["large"], ["c", "d"]]
    assert (outcome.published, outcome.rejected, outcome.error) == (5, [], None)
    content = Content.of(messages.plain(large))
    assert world.contents.stored == {content.name: content.body}
    assert max(world.topic.sizes) <= LIMIT


async def test_a_claim_says_where_the_content_is_and_what_it_is() -> None:
    large = event("large", size=LARGE, traceparent="00-1", sequence=7)
    whole = messages.plain(large)

    claim = await Claims(InMemoryContents(), messages.plain).claim(large, 1.0, 1.0)

    sha256 = hashlib.sha256(whole.body).hexdigest()
    assert claim == whole._replace(body=b"", application_properties=claim.application_properties)
    assert claim.application_properties == {
        **whole.application_properties,
        "dataRef": f"memory://contents/{Content.of(whole).name}",
        "dataSha256": sha256,
        "dataLength": len(whole.body),
        "dataContentType": "application/json",
    }


async def test_the_length_in_a_claim_is_an_amqp_long_from_both_senders() -> None:
    claim = await Claims(InMemoryContents(), messages.plain).claim(event("large", size=LARGE), 1.0, 1.0)
    page = (ROOT / "docs/large-events.md").read_text(encoding="utf-8")

    # In AMQP, 0x81 is a long of eight bytes; an int of .NET would begin with 0x71.
    length = b"\xa1\x0adataLength" + b"\x81" + len(messages.plain(event("large", size=LARGE)).body).to_bytes(8)
    assert length in encoding.encode(claim)
    assert length in encoded(annotated(claim))
    assert "| `dataLength` | number of its bytes, as an AMQP long |" in page


async def test_a_claim_of_a_cloudevent_has_its_data_by_reference() -> None:
    claim = await Claims(InMemoryContents(), messages.cloudevents("/contacts")).claim(event("a"), 1.0, 1.0)

    properties = claim.application_properties
    assert properties["cloudEvents:dataref"] == properties["dataRef"]


async def test_the_name_of_a_content_shows_nothing_of_the_event() -> None:
    name = Content.of(messages.plain(event("jane@contoso.com", "jane"))).name

    assert "jane" not in name
    assert len(name) == 129


async def test_each_event_and_each_content_has_a_name_of_its_own() -> None:
    names = [("e", "k"), ("e", "K"), ("e", "k "), ("ek", ""), ('e", "k', "k"), ("k", "e"), ("\u00e9", "k")]
    names.append(("e\u0301", "k"))
    made = [messages.plain(event("e", "k", size=size)) for size in (0, 1)]
    made += [made[0]._replace(id=identifier, partition_key=key) for identifier, key in names[1:]]

    assert len({Content.of(each).name for each in made}) == len(made)
    assert Content.of(made[0]).name == Content.of(messages.plain(event("e", "k"))).name


@pytest.mark.parametrize("policy", list(OnPoison))
async def test_an_event_whose_content_cannot_be_stored_holds_up_its_key_and_is_no_poison(policy: OnPoison) -> None:
    world = World()
    world.contents.broken = True
    events = [event("a"), event("large", size=LARGE), event("b")]

    outcome = await world.publish(*events, judge=Judge(policy))

    assert isinstance(outcome.error, ContentError)
    assert "'large'" in str(outcome.error)
    assert "Create the container" in str(outcome.error)
    assert (outcome.published, outcome.unsent, outcome.rejected, outcome.blocked_by) == (1, 2, [], None)
    assert world.topic.ids() == ["a"]

    world.contents.broken = False
    outcome = await world.publish(*events[1:], judge=Judge(policy))

    assert (outcome.published, world.topic.ids()) == (2, ["a", "large", "b"])


async def test_a_content_that_is_stored_and_whose_message_is_not_accepted_is_stored_once_in_the_end() -> None:
    world = World(pauses_s=())
    world.topic.answers = [OSError("cut")]
    large = event("large", size=LARGE)

    failed = await world.publish(large)
    stored = dict(world.contents.stored)
    again = await world.publish(large)

    assert (failed.unsent, again.published) == (1, 1)
    assert world.contents.stored == stored
    assert len(stored) == 1


def test_a_store_that_does_not_answer_holds_up_its_keys_for_a_bounded_time() -> None:
    contents = InMemoryContents()
    contents.hangs = True
    large = {f"key-{number}": [event("large", f"key-{number}", size=LARGE)] for number in range(40)}

    async def publish() -> tuple[list[KeyOutcome], float]:
        publisher = FakeTopic(limit=LIMIT).publisher(
            claims=Claims(contents, messages.plain), senders=50, send_timeout_s=30.0
        )
        return await publisher.publish({**large, "k": [event("a")]}), time.monotonic()

    outcomes, took_s = virtual_time.run(publish())

    assert 30 <= took_s <= 31
    said = [str(outcome.error) for outcome in outcomes[:-1]]
    assert all("Blob Storage did not answer" in each for each in said)
    assert sum("within 30 s" in each for each in said) == 16
    assert outcomes[-1].published == 1


@pytest.mark.parametrize(("bytes_s", "published"), [(250_000, 1), (150_000, 0)])
def test_a_content_has_the_time_that_its_bytes_take(bytes_s: float, published: int) -> None:
    contents = InMemoryContents()
    contents.bytes_s = bytes_s
    # 20 seconds at the slowest rate that counts.
    large = event("large", size=5_000_000)

    async def publish() -> tuple[KeyOutcome, float]:
        publisher = FakeTopic(limit=LIMIT).publisher(
            claims=Claims(contents, messages.plain), send_timeout_s=10.0, attempt_timeout_s=60.0
        )
        (outcome,) = await publisher.publish({"k": [large]})
        return outcome, time.monotonic()

    outcome, took_s = virtual_time.run(publish())

    assert (outcome.published, outcome.error is None) == (published, bool(published))
    assert 20 <= took_s <= 31


def test_contents_that_wait_for_others_have_their_whole_time_after_that() -> None:
    contents = InMemoryContents()
    contents.bytes_s = LARGE / 20
    large = {f"key-{number}": [event("large", f"key-{number}", size=LARGE)] for number in range(100)}

    async def publish() -> tuple[list[KeyOutcome], float]:
        publisher = FakeTopic(limit=LIMIT).publisher(
            claims=Claims(contents, messages.plain), senders=100, send_timeout_s=30.0, attempt_timeout_s=480.0
        )
        return await publisher.publish(large), time.monotonic()

    outcomes, took_s = virtual_time.run(publish())

    assert [outcome.error for outcome in outcomes] == [None] * 100
    assert 140 <= took_s <= 141


def test_contents_that_wait_until_the_attempt_is_over_come_again() -> None:
    contents = InMemoryContents()
    contents.bytes_s = LARGE / 20
    large = {f"key-{number}": [event("large", f"key-{number}", size=LARGE)] for number in range(100)}

    async def publish() -> tuple[list[KeyOutcome], float]:
        publisher = FakeTopic(limit=LIMIT).publisher(
            claims=Claims(contents, messages.plain), senders=100, send_timeout_s=30.0, attempt_timeout_s=60.0
        )
        return await publisher.publish(large), time.monotonic()

    outcomes, took_s = virtual_time.run(publish())

    left = [outcome for outcome in outcomes if outcome.error is not None]
    assert len(left) == 100 - 2 * 16
    assert all("The attempt was over before" in str(outcome.error) for outcome in left)
    assert took_s == 60


async def test_an_answer_to_a_large_content_is_waited_for_as_long_as_its_bytes_may_take() -> None:
    read_timeouts: list[float] = []

    class Transport(AsyncHttpTransport):  # type: ignore[type-arg]
        async def send(self, request: Any, **options: Any) -> Any:
            read_timeouts.append(options["read_timeout"])
            raise ServiceRequestError("There is no network here.")

        async def open(self) -> None: ...
        async def close(self) -> None: ...
        async def __aexit__(self, *_: object) -> None: ...

    connection = Connection(connection_string=f"AccountName=a;AccountKey={b64encode(b'key').decode()}")
    blobs = Blobs(ClaimCheck(connection, "large-events"))
    for size in (0, 5_000_000):
        blobs._client = ContainerClient(
            "https://a.blob.core.windows.net", "large-events", transport=Transport(), retry_total=0
        )
        with pytest.raises(ContentError):
            await blobs.put(Content("name", b"x" * size, "sha256"))

    assert read_timeouts == [6, 26]


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (403, "Storage Blob Data Contributor"),
        (404, "Create the container 'large-events'"),
        (409, "immutability policy or legal hold"),
        (500, "It is tried again"),
        (503, "It is tried again"),
    ],
)
def test_each_refusal_of_a_content_has_its_remedy(status: int, remedy: str) -> None:
    error = HttpResponseError("The request failed.")
    error.status_code = status

    assert remedy in explained(error, "large-events")[1]


async def test_contents_are_closed_though_the_senders_cannot_be() -> None:
    async def cut() -> None:
        raise OSError("cut")

    world = World()
    world.publisher._senders.close = cut  # type: ignore[method-assign]

    with pytest.raises(OSError, match="cut"):
        await world.publisher.close()

    assert world.contents.closed


async def test_keys_whose_contents_cannot_be_stored_are_no_outage_of_the_topic() -> None:
    world = World()
    world.contents.broken = True
    large = {f"key-{number}": [event("large", f"key-{number}", size=LARGE)] for number in range(10)}

    outcomes = await world.publisher.publish({**large, "k": [event("a")]})

    assert [type(outcome.error) for outcome in outcomes[:-1]] == [ContentError] * 10
    assert outcomes[-1].published == 1


async def test_a_size_that_only_the_service_refuses_is_a_claim_too() -> None:
    world = World()
    refusing = FakeTopic(by_id={"large": "amqp:link:message-size-exceeded"})
    sent = 0

    def transfer(payload: bytes, *, batch: bool) -> None:
        nonlocal sent
        sent += 1
        if len(payload) <= LIMIT:
            refusing.by_id.clear()
        FakeTopic.transfer(refusing, payload, batch=batch)

    refusing.transfer = transfer  # type: ignore[method-assign]
    publisher = refusing.publisher(claims=Claims(world.contents, messages.plain))

    (outcome,) = await publisher.publish({"k": [event("large", size=LARGE)]})

    assert (outcome.published, outcome.rejected, sent) == (1, [], 2)
    assert len(world.contents.stored) == 1


async def test_a_claim_is_repeated_as_it_is_to_see_whether_the_topic_accepts_anything() -> None:
    world = World(duplicate_window_s=600)
    large = event("large", size=LARGE)
    await world.publish(large)
    world.topic.by_id["doubted"] = "amqp:not-allowed"

    for _ in range(2):
        await world.publish(event("doubted"))

    assert world.topic.transfers == [["large"], ["doubted"], ["large"], ["doubted"]]
    assert world.topic.sizes[0] == world.topic.sizes[2] < LIMIT


async def test_after_a_claim_the_witness_is_kept_without_its_content() -> None:
    world = World(duplicate_window_s=600)
    large = event("large", size=LARGE)

    await world.publish(large)

    witness = world.publisher._shared.evidence.witness()
    assert witness is not None
    assert (witness.name, witness.data, witness.document.stored) == (large.name, {}, {})


async def test_an_event_whose_claim_is_too_large_as_well_is_set_aside() -> None:
    topic = FakeTopic(limit=300)
    publisher = topic.publisher(claims=Claims(InMemoryContents(), messages.plain))

    (outcome,) = await publisher.publish({"k": [event("large", size=LARGE), event("a")]})

    assert [each.reason for each in outcome.rejected] == ["message-too-large"]
    assert (outcome.published, topic.ids()) == (1, ["a"])


async def test_without_a_store_a_large_event_is_set_aside() -> None:
    (outcome,) = await FakeTopic(limit=LIMIT).publisher().publish({"k": [event("large", size=LARGE)]})

    assert [each.reason for each in outcome.rejected] == ["message-too-large"]
