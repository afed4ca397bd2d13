"""Processor time: what the relay adds to the SDK's for an event, and what a document of another type costs."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Mapping, Sequence

from azure.functions import DocumentList
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from bench.baselines.sdk import MessageFields, fields_by_key
from bench.benchmark import Bound, Findings, Live, Plan, Table, Target, median
from bench.documents import Source, Workload
from bench.offline import AcceptingSender, offline_relay
from bench.throughput import ONE_EACH, ONE_KEY, TEN_TEN
from outbox_emulators.functions.documents import from_text

_WORKLOADS = (ONE_EACH, TEN_TEN, ONE_KEY)
_TARGET_US = 15.0
_OTHER_TARGET_US = 1.0
_OTHERS_PER_BATCH = 1000
_INVOCATIONS = 20

# Without the envelope's room, as the relay leaves it: see bench.baselines.sdk.
_BATCH_LIMIT = 256 * 1024 - 204


class Processor:
    """Processor time for each event and each ignored document."""

    name = "processor"
    about = "the relay's processor time for an event beside the SDK's, and for other documents"

    async def run(self, plan: Plan, live: Live) -> Findings:
        findings = Findings()
        rows = [await _beside_the_sdk(workload, plan, live, findings) for workload in _WORKLOADS]
        columns = ("workload", "relay, µs/event", "SDK, µs/event", "the relay's own, µs/event")
        prose = "Without a network: senders that make batches as the SDK's do, and accept each at once."
        findings.tables.append(Table("Processor time for an event", columns, tuple(rows), prose))
        findings.targets.append(await _another_type(plan, live))
        findings.tables.append(_decoding(plan, live))
        return findings


async def _beside_the_sdk(workload: Workload, plan: Plan, live: Live, findings: Findings) -> tuple[str, ...]:
    source, sender = Source(plan.seed), AcceptingSender()
    repeats, batches = plan.pick(quick=9, full=25), plan.pick(quick=5, full=20)
    relays: list[float] = []
    sdks: list[float] = []
    with offline_relay() as relay:
        for repeat in range(repeats):
            live.step(f"processor time, {workload.name}, {repeat + 1} of {repeats}")
            invocations = source.invocations(workload, batches)
            ours = theirs = 0.0
            gc.collect()
            # In turns, so that whatever slows this machine for a while slows both.
            for number, documents in enumerate(invocations):
                messages = fields_by_key(documents)
                if number % 2:
                    ours += await _processor_s(relay.handle(documents, "bench"))
                    theirs += await _processor_s(_build_all(sender, messages))
                else:
                    theirs += await _processor_s(_build_all(sender, messages))
                    ours += await _processor_s(relay.handle(documents, "bench"))
            relays.append(ours / batches / workload.events * 1e6)
            sdks.append(theirs / batches / workload.events * 1e6)
            live.rate(relays[-1] - sdks[-1], "µs/event")
    own = tuple(our - their for our, their in zip(relays, sdks, strict=True))
    name = f"the relay's own processor time for an event, {workload.name}"
    findings.targets.append(Target(name, own, "µs", Bound.AT_MOST, _TARGET_US))
    return (workload.name, f"{median(relays):.1f}", f"{median(sdks):.1f}", f"{median(own):.1f}")


async def _build_all(sender: AcceptingSender, messages: Mapping[str, Sequence[MessageFields]]) -> None:
    for of_key in messages.values():
        await _build(sender, of_key)


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


async def _another_type(plan: Plan, live: Live) -> Target:
    source = Source(plan.seed)
    contacts = [source.contact() for _ in range(_OTHERS_PER_BATCH)]
    values = []
    with offline_relay() as relay:
        for repeat in range(plan.pick(quick=15, full=50)):
            live.step(f"documents of another type, {repeat + 1}")
            documents = source.decoded(contacts)

            async def work(documents: DocumentList = documents) -> None:
                for _ in range(_INVOCATIONS):
                    await relay.handle(documents, "bench")

            gc.collect()
            values.append(await _processor_s(work()) / (_INVOCATIONS * _OTHERS_PER_BATCH) * 1e6)
            live.rate(values[-1], "µs/document")
    return Target("a document of another type, decoded", tuple(values), "µs", Bound.AT_MOST, _OTHER_TARGET_US)


def _decoding(plan: Plan, live: Live) -> Table:
    live.step("decoding what the trigger delivers")
    source, values = Source(plan.seed), []
    for _ in range(plan.pick(quick=9, full=25)):
        text = next(source.texts(ONE_KEY))
        gc.collect()
        started = time.process_time()
        for _ in range(_INVOCATIONS):
            from_text(text)
        values.append((time.process_time() - started) / (_INVOCATIONS * ONE_KEY.events) * 1e6)
        live.rate(values[-1], "µs/document")
    rows = (("azure.functions' converter", f"{median(values):.1f}"),)
    return Table("Decoding a document of 300 bytes", ("decoder", "µs/document"), rows)


async def _processor_s(work: Awaitable[object]) -> float:
    started = time.process_time()
    await work
    return time.process_time() - started
