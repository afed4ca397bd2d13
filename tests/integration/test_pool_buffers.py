"""What a pooled sender has handed to its socket, and the peer has not taken."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from outbox_emulators.servicebus.entities import Entities
from relay.errors import RetryableError
from relay.servicebus import messages
from relay.servicebus.pool import SenderPool, _socket
from relay.servicebus.transfers import alone
from tests.support.amqp_peer import Peer
from tests.support.broker import topic_counts
from tests.unit.relay.topics import event

ENTITIES = Path(__file__).resolve().parents[2] / "infra" / "emulators" / "Config.json"


def never_late() -> None:
    pytest.fail("accepted after it was given up")


async def test_what_is_left_in_the_buffer_of_a_transfer_that_is_given_up_never_leaves() -> None:
    async with Peer(Entities.from_file(ENTITIES)) as peer:
        client = peer.client()
        pool = SenderPool(client, "domain-events", 1)
        try:
            async with pool.acquire() as sender:
                await sender.limits(10)
                assert sender._link is not None
                transport = _socket(sender._link)
                assert transport is not None
                # Little goes to the kernel, the rest waits in asyncio's buffer.
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
                peer.stop_reading()

                with pytest.raises(RetryableError):
                    await sender.send(
                        alone(event("a", size=250_000), messages.plain), 0.5, lambda: None, never_late
                    )
                peer.go_on_reading()
        finally:
            async with asyncio.timeout(20):
                await pool.close()

        assert (await topic_counts(peer.admin_port))["accepted"] == 0
