"""Links of the pipelined sender that are opened and given up, in virtual time."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from relay.servicebus.pipelined.lanes import Lane
from relay.servicebus.pipelined.link import Link, LinkLostError
from tests.support import virtual_time


def test_a_link_that_fails_to_open_while_its_lane_is_closed_leaves_no_traceback() -> None:
    async def connect(_: Lane) -> Link:
        # The SDK's waits can swallow a cancellation before Python 3.12.
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1_000)
        raise LinkLostError("the peer has closed the connection")

    async def close_while_it_opens() -> None:
        client: Any = None
        lane = Lane(client, "topic", lambda _: None, open_timeout_s=15.0)
        waiting = asyncio.create_task(lane.link(60.0))
        await asyncio.sleep(1)
        await lane.close()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        gc.collect()

    with patch.object(Lane, "_connect", connect):
        virtual_time.run(close_while_it_opens())
