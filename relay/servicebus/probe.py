"""Repeats an event that was accepted before, to see whether the service accepts anything at the moment.

A refusal is evidence against an event only while the service accepts something else. In a page whose other events
were all accepted by an earlier attempt, nothing else is left to be sent. So an event that this process had
accepted a moment ago is sent again, whole: the topic drops it as a duplicate, and no subscriber sees it.
https://learn.microsoft.com/azure/service-bus-messaging/duplicate-detection
"""

from __future__ import annotations

import asyncio
import logging

from relay.errors import SendError, StaleClearanceError
from relay.events import Event
from relay.evidence import Evidence
from relay.servicebus.messages import Contract
from relay.servicebus.transfers import Sender, alone

logger = logging.getLogger(__name__)


class Probe:
    """One for a publisher: many partition keys that are in doubt share a probe."""

    def __init__(self, evidence: Evidence, message_of: Contract) -> None:
        self._evidence = evidence
        self._message_of = message_of
        self._one_at_a_time = asyncio.Lock()
        self._made = 0

    async def repeat(self, sender: Sender, doubted: Event, timeout_s: float) -> None:
        """Note whether the service accepts a repeat, unless anything was accepted since `doubted` was refused.

        What waits for another's repeat takes its answer. Else a service that does not answer would let them wait
        one after the other.
        """
        made = self._made
        async with self._one_at_a_time:
            if self._made == made and self._evidence.is_stale(doubted):
                await self._send(sender, timeout_s)

    async def after_an_end(self, sender: Sender, timeout_s: float) -> None:
        """Let the service accept something, if it does, after a transfer has ended its link by itself.

        The sender takes a second end for this transfer's fault only if another one was accepted meanwhile.
        """
        if self._one_at_a_time.locked():
            # What the other probe shows counts here, too. In an outage, each would wait for those before it.
            return
        async with self._one_at_a_time:
            await self._send(sender, timeout_s)

    async def _send(self, sender: Sender, timeout_s: float) -> None:
        witness = self._evidence.witness()
        if witness is None:
            return

        def may_send() -> None:
            if self._evidence.witness() is None:
                raise StaleClearanceError("the event to repeat may not be known to the topic any more")

        try:
            await sender.send(alone(witness, self._message_of), timeout_s, may_send, self._evidence.repeated)
        except SendError as error:
            logger.debug("the repeat of an accepted event was not accepted: %s", error)
        else:
            self._evidence.repeated()
        finally:
            self._made += 1
