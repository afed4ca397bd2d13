"""Processor time: what the relay adds to an event beside the SDK, and what a document of another type costs."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Mapping, Sequence

from azure.functions import DocumentList
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from bench.benchmark import Bound, Figure, Findings, Live, Plan, Table, Target
from bench.broker import Broker
from bench.documents import Source, Workload
from bench.offline import AcceptingSender, offline_relay
from bench.rivals.relay import TheRelay
from bench.rivals.sdk import Built, MessageFields, fields_by_key
from bench.throughput import ONE_EACH, ONE_KEY, TEN_TEN
from bench.turns import Duration, Samples, middle, take_turns
from outbox_emulators.functions.documents import from_text
from relay.settings import Settings

_WORKLOADS = (ONE_EACH, TEN_TEN, ONE_KEY)
_TARGET_US = 15.0
_OTHER_TARGET_US = 1.0
_OTHERS_IN_A_BATCH = 1000

# The envelope's room, as the relay leaves it: see bench.rivals.sdk.
_BATCH_LIMIT = 256 * 1024 - 204


class Processor:
    """Processor time for each event and each ignored document."""

    name = "processor"
    about = "processor time for an event beside the SDK's, and for a document of another type"

    async def run(self, plan: Plan, live: Live) -> Findings:
        findings = Findings()
        rows = [await _beside_the_sdk(workload, plan, live, findings) for workload in _WORKLOADS]
        await _over_the_wire(plan, live, findings)
        await _another_type(plan, live, findings)
        await _decoding(plan, live, findings)
        columns = ("workload, no wire", "relay, µs/event", "SDK, µs/event", "the relay's own, µs/event", "spread")
        findings.tables.append(Table("Processor time for an event", columns, tuple(rows)))
        return findings


async def _beside_the_sdk(workload: Workload, plan: Plan, live: Live, findings: Findings) -> tuple[str, ...]:
    source, sender = Source(plan.seed), AcceptingSender()
    repeats, batches = plan.pick(quick=9, full=25), plan.pick(quick=5, full=20)
    relays: list[float] = []
    sdks: list[float] = []
    with offline_relay() as relay:
        for repeat in range(repeats):
            live.step(f"own processor time, {workload.name}, {repeat + 1} of {repeats}")
            invocations = source.invocations(workload, batches)
            ours = theirs = 0.0
            gc.collect()
            # One invocation each in turn: what slows this machine for a while then slows both.
            for number, documents in enumerate(invocations):
                partitions = fields_by_key(documents)
                if number % 2:
                    ours += await _processor_s(relay.handle(documents, "bench"))
                    theirs += await _processor_s(_build_all(sender, partitions))
                else:
                    theirs += await _processor_s(_build_all(sender, partitions))
                    ours += await _processor_s(relay.handle(documents, "bench"))
            relays.append(ours / batches / workload.events * 1e6)
            sdks.append(theirs / batches / workload.events * 1e6)
            live.rate(relays[-1] - sdks[-1], "µs/event")
    own = tuple(our - their for our, their in zip(relays, sdks, strict=True))
    figure = Figure(f"own processor time/{workload.name}", "µs", own, "relay less SDK, in turns, without a wire")
    findings.targets.append(
        Target(
            f"the relay's own processor time for an event, {workload.name}",
            figure,
            Bound.AT_MOST,
            _TARGET_US,
            key="own-processor-time",
        )
    )
    findings.figures += [
        Figure(f"processor/no wire, relay, {workload.name}", "µs", tuple(relays)),
        Figure(f"processor/no wire, SDK, {workload.name}", "µs", tuple(sdks)),
    ]
    low, high = figure.spread
    cells = (f"{middle(relays):.1f}", f"{middle(sdks):.1f}", f"{figure.median:.1f}", f"{low:.1f} to {high:.1f}")
    return (workload.name, *cells)


async def _build_all(sender: AcceptingSender, partitions: Mapping[str, Sequence[MessageFields]]) -> None:
    for messages in partitions.values():
        await _build(sender, messages)


async def _build(sender: AcceptingSender, messages: Sequence[MessageFields]) -> None:
    if len(messages) == 1:
        await sender.send_messages(AmqpAnnotatedMessage(**messages[0]))
        return
    batch = await sender.create_message_batch(_BATCH_LIMIT)
    for fields in messages:
        message = AmqpAnnotatedMessage(**fields)
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            await sender.send_messages(batch)
            batch = await sender.create_message_batch(_BATCH_LIMIT)
            batch.add_message(message)
    await sender.send_messages(batch)


async def _over_the_wire(plan: Plan, live: Live, findings: Findings) -> None:
    """The same difference with the real sends in it, reported beside."""
    async with Broker(plan.scratch) as broker:
        source = Source(plan.seed)
        senders = Settings.from_environment(broker.settings()).senders
        relay, built = TheRelay(broker.settings(), source), Built(broker.connection_string, senders)
        try:
            await relay.open()
            await built.open()
            for workload in (ONE_EACH, ONE_KEY):
                samples = await take_turns(
                    [relay, built],
                    workload,
                    broker,
                    source,
                    repeats=plan.pick(quick=2, full=9),
                    duration=Duration(plan.pick(quick=0.3, full=1.0)),
                    live=live,
                )
                findings.figures.append(_difference(workload, samples[relay.name], samples[built.name]))
        finally:
            await relay.close()
            await built.close()


def _difference(workload: Workload, relay: Samples, built: Samples) -> Figure:
    values = tuple(our - their for our, their in zip(relay.processor_us, built.processor_us, strict=True))
    return Figure(f"own processor time, sends included/{workload.name}", "µs", values, "relay less SDK, in turns")


async def _another_type(plan: Plan, live: Live, findings: Findings) -> None:
    source = Source(plan.seed)
    contacts = [source.contact() for _ in range(_OTHERS_IN_A_BATCH)]
    values = []
    with offline_relay() as relay:
        for repeat in range(plan.pick(quick=15, full=50)):
            live.step(f"documents of another type, {repeat + 1}")
            documents = source.decoded(contacts)

            async def work(documents: DocumentList = documents) -> None:
                for _ in range(20):
                    await relay.handle(documents, "bench")

            gc.collect()
            values.append(await _processor_s(work()) / (20 * _OTHERS_IN_A_BATCH) * 1e6)
            live.rate(values[-1], "µs/document")
    figure = Figure("another type/handle", "µs", tuple(values), "trigger decoding aside")
    findings.targets.append(
        Target("a document of another type", figure, Bound.AT_MOST, _OTHER_TARGET_US, key="another-type")
    )


async def _decoding(plan: Plan, live: Live, findings: Findings) -> None:
    live.step("decoding what the trigger delivers")
    source = Source(plan.seed)
    values = []
    for text, _ in zip(source.texts(ONE_KEY), range(plan.pick(quick=9, full=25)), strict=False):

        async def work(text: str = text) -> None:
            for _ in range(20):
                from_text(text)

        gc.collect()
        values.append(await _processor_s(work()) / (20 * ONE_KEY.events) * 1e6)
    figure = Figure(
        "trigger decoding/azure.functions",
        "µs",
        tuple(values),
        "for each document of 300 bytes, the worker's part",
    )
    findings.figures.append(figure)
    live.rate(figure.median, "µs/document")


async def _processor_s(work: Awaitable[object]) -> float:
    started = time.process_time()
    await work
    return time.process_time() - started
