"""The unit of sending: one message, or a batch of one partition key's messages that fits the link."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from relay.core.errors import PoisonError
from relay.core.events import Event
from relay.servicebus import encoding
from relay.servicebus.messages import Contract, Message


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """The limits of the link in bytes: `message` for a transfer of one message, `batch` for one of a batch."""

    batch: int
    message: int


@dataclass(slots=True)
class Transfer:
    """Encoded messages, which the service accepts or refuses as a whole.

    Attributes:
        events: The events of the messages, in order; one partition key's.
        payload: As it is transferred.
        message_format: 0 for a message, `encoding.BATCH_FORMAT` for a batch.
    """

    events: Sequence[Event]
    message_of: Contract
    payload: bytes
    message_format: int

    @property
    def is_batch(self) -> bool:
        return self.message_format != 0

    def messages(self) -> Iterator[Message]:
        """Return the messages, rebuilt.

        Hundreds of transfers are held at a time, and bodies would be half of them.
        """
        return map(self.message_of, self.events)


class Sender(Protocol):
    """A partition key's access to the topic, for as long as its turn takes. One send at a time."""

    @property
    def known_limits(self) -> LinkLimits | None:
        """The limits of the link, if it is open and takes more transfers."""

    async def limits(self, timeout_s: float) -> LinkLimits:
        """Return the limits of the link, which is opened if it is not open, once it takes more transfers.

        Raises:
            RetryableError, ConfigurationError: It was not so far within `timeout_s` seconds.
        """

    async def send(
        self,
        transfer: Transfer,
        timeout_s: float,
        may_send: Callable[[], None],
        accepted_late: Callable[[], None],
        wait_s: float | None = None,
    ) -> None:
        """Send until the service has accepted the transfer, which may be sent more than once.

        Args:
            timeout_s: Seconds for the service to answer, opening a link included.
            may_send: Called when everything is ready, with nothing that takes time between it and the transfer,
                and again before the rest of a transfer that had to wait. It raises a SendError to prevent that.
            accepted_late: Called at most once, if the service accepts the transfer after this has raised.
            wait_s: Seconds until the attempt ends; `timeout_s` if None. They limit how long a transfer that may
                have ended a link waits to be sent apart from others, which does not count towards `timeout_s`.

        Raises:
            PoisonError: The service refused the content of this very transfer.
            RetryableError: It was not accepted, or its fate is unknown. It is `refused` if the
                cause is this very transfer: the service has answered it with an error, or has ended its link again
                and again while nothing else was in flight, and accepted others.
            SendError: Nothing can be sent, or `may_send` has prevented it.
        """


def alone(event: Event, message_of: Contract) -> Transfer:
    """Return one message outside a batch: a link may take larger messages than batches."""
    return Transfer((event,), message_of, encoding.encode(message_of(event)), 0)


def check_size(transfer: Transfer, limit: int) -> None:
    """Recognise an event larger than the link's limit before it is sent: its refusal would detach the link.

    Raises PoisonError, without a condition, because only the link's own limit has refused it.
    """
    size = len(transfer.payload)
    if size > limit:
        raise PoisonError(
            f"The message has {size} bytes, and the topic takes {limit} at most.", condition="", too_large=True
        )


def in_batches(events: Sequence[Event], message_of: Contract, limit: int) -> Iterator[Transfer]:
    """Yield transfers of one partition key's events in order, each batch as full as `limit` bytes allow.

    An event without a neighbour that fits is sent outside a batch. Messages are encoded when their turn comes.
    """
    if len(events) == 1:
        yield alone(events[0], message_of)
        return
    held: list[Event] = []
    encoded: list[bytes] = []
    envelope = b""
    size = 0

    def whole() -> Transfer:
        payload = encoded[0] if len(held) == 1 else encoding.encode_batch(envelope, encoded)
        return Transfer(held, message_of, payload, 0 if len(held) == 1 else encoding.BATCH_FORMAT)

    for event in events:
        payload = encoding.encode(message_of(event))
        added = encoding.size_in_batch(payload)
        if held and size + added > limit:
            full = whole()
            # Before it is sent: its parts take as much memory again.
            held, encoded = [], []
            yield full
        if not held:
            envelope = encoding.envelope(event.id, event.partition_key)
            size = len(envelope)
        held.append(event)
        encoded.append(payload)
        size += added
    if held:
        last = whole()
        encoded.clear()
        yield last
