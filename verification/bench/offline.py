"""The relay without a network: what it computes for an event, and what of that is encoding.

A sender here takes encoded transfers and accepts each at once. The processor time of sockets and event loop varies
between runs by more than what is to be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from local.stack.environment import TOPIC
from relay.backends.cosmos.backend import CosmosBackend, CosmosRelay
from relay.config.settings import Settings
from relay.servicebus import encoding
from relay.servicebus.messages import Message
from relay.servicebus.pipelined.outgoing import IN_FLIGHT
from relay.servicebus.transfers import LinkLimits, Transfer

_LIMITS = LinkLimits(batch=256 * 1024, message=256 * 1024)

ENVIRONMENT = {
    "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=bm9uZQ==;",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=bm9uZQ==;",
}


class AcceptingSenders:
    """Senders, and each of them, that accept everything: `senders.Senders` and `transfers.Sender`.

    Attributes:
        accepted: The transfers, in order.
    """

    topic = TOPIC
    size = IN_FLIGHT
    known_limits = _LIMITS

    def __init__(self) -> None:
        self.accepted: list[Transfer] = []

    def acquire(self) -> AcceptingSenders:
        return self

    async def __aenter__(self) -> AcceptingSenders:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: there is nothing to give back."""

    async def limits(self, timeout_s: float) -> LinkLimits:
        return _LIMITS

    async def send(
        self,
        transfer: Transfer,
        timeout_s: float,
        may_send: Callable[[], None],
        accepted_late: Callable[[], None],
        wait_s: float | None = None,
    ) -> None:
        may_send()
        self.accepted.append(transfer)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


@contextmanager
def accepting_senders(senders: AcceptingSenders | None = None) -> Iterator[AcceptingSenders]:
    """Senders of relays that are assembled within the block accept everything at once."""
    senders = senders or AcceptingSenders()
    with mock.patch("relay.servicebus.senders.senders", return_value=senders):
        yield senders


@contextmanager
def offline_relay() -> Iterator[tuple[CosmosRelay, AcceptingSenders]]:
    """A relay with the default settings, and its senders, which accept everything at once."""
    with accepting_senders() as senders:
        yield CosmosBackend(Settings.from_environment(ENVIRONMENT)).relay, senders


def encode_again(transfers: Sequence[Sequence[Message]]) -> None:
    """Encode the messages of transfers once more, as the relay has encoded them."""
    for messages in transfers:
        encoded = [encoding.encode(message) for message in messages]
        if len(messages) > 1:
            encoding.encode_batch(encoding.envelope(messages[0].id, messages[0].partition_key), encoded)
