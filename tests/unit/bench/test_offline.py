"""The relay without a network."""

from __future__ import annotations

from bench.documents import Source, Workload
from bench.offline import offline_relay


async def test_its_senders_accept_every_batch() -> None:
    (documents,) = Source(1).invocations(Workload(keys=4, per_key=3, others=0.5), 1)

    with offline_relay() as (relay, senders):
        result = await relay.handle(documents, "i1")

    assert (result.published, result.sends) == (12, 4)
    assert [len(transfer.events) for transfer in senders.accepted] == [3] * 4
