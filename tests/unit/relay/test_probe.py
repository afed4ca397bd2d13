"""The repeat of an accepted event: only while the topic certainly knows it as a duplicate."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relay.core.errors import PoisonError
from relay.core.evidence import Evidence
from relay.servicebus import messages
from relay.servicebus.key_sender import Probe
from relay.servicebus.transfers import LinkLimits, Transfer
from tests.support.outbox import event, sound

WINDOW_S = 600.0


class SlowSender:
    """A sender whose link is ready only after some seconds, by a clock that it turns.

    Attributes:
        now: The clock, in seconds.
        sent: The ids of what was sent.
    """

    known_limits: LinkLimits | None = None

    def __init__(self, ready_after_s: float) -> None:
        self.now = 1_000.0
        self.sent: list[str] = []
        self._ready_after_s = ready_after_s

    async def limits(self, timeout_s: float) -> LinkLimits:
        raise AssertionError("a repeat asks for no limits")

    async def send(
        self,
        transfer: Transfer,
        timeout_s: float,
        may_send: Callable[[], None],
        accepted_late: Callable[[], None],
        wait_s: float | None = None,
    ) -> None:
        self.now += self._ready_after_s
        may_send()
        self.sent += [each.id for each in transfer.events]


@pytest.mark.parametrize(("ready_after_s", "sent"), [(299.0, ["x"]), (300.0, [])])
async def test_an_event_that_the_topic_may_forget_while_its_repeat_waits_is_not_repeated(
    ready_after_s: float, sent: list[str]
) -> None:
    sender = SlowSender(ready_after_s)
    evidence = Evidence(WINDOW_S, lambda: sender.now)
    accepted, doubted = sound(event("x", "other")), sound(event("b", "k"))
    evidence.accepted([accepted], witness=accepted)
    evidence.refused(doubted, PoisonError("no", condition="amqp:not-allowed"), 0)

    await Probe(evidence, messages.plain).repeat(sender, doubted, timeout_s=600)

    assert sender.sent == sent
    # What was not accepted is no evidence.
    assert evidence.wants_repeat(doubted) is not bool(sent)
