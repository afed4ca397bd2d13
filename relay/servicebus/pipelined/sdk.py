"""The only module that knows the inside of azure-servicebus: its connection, and its codec of AMQP frames.

The SDK opens the connection, with TLS and SASL, and authenticates it, as it does for its own sender. From
then on the bytes are read here: frames of the link that `link` begins on this connection go there, all others back
to the SDK, which continues to answer the peer and to renew the token. The SDK's public API has no such access: a
ServiceBusSender keeps one transfer in flight at a time.

`differences` compares the SDK with what this was tested with. If they differ, the pool of senders is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import azure.servicebus
from azure.servicebus._pyamqp._decode import decode_frame
from azure.servicebus._pyamqp._encode import encode_frame
from azure.servicebus._pyamqp.aio import SendClientAsync
from azure.servicebus._pyamqp.aio._connection_async import Connection as SdkConnection
from azure.servicebus._pyamqp.constants import MAX_FRAME_SIZE_BYTES, ReceiverSettleMode, Role, SenderSettleMode
from azure.servicebus._pyamqp.endpoints import Source, Target
from azure.servicebus._pyamqp.error import AMQPConnectionError, AMQPException, AMQPLinkError, MessageException
from azure.servicebus._pyamqp.performatives import (
    AttachFrame,
    BeginFrame,
    DetachFrame,
    DispositionFrame,
    EndFrame,
    FlowFrame,
)
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.aio._async_utils import create_authentication

from relay.core.errors import RetryableError, SendError
from relay.servicebus.pipelined import frames
from relay.servicebus.pipelined.credit import SERIAL, Credit
from relay.servicebus.refusals import classify

TESTED_VERSIONS = ("7.15.0",)

ACCEPTED = "accepted"
REJECTED = "rejected"
"""The names that `decode` gives to outcomes, each of which has its fields."""
_RECEIVED = "received"

# Transfers that the peer may send us in the session: it sends none.
_INCOMING_WINDOW = 1
_CHUNK_BYTES = 65_536
_LOOK_S = 0.002
_EMPTY_FRAME = bytes((0, 0, 0, 8, 2, 0, 0, 0))
_CLOSE_TIMEOUT_S = 5.0
# Maximum for the credential and the peer together to renew a token, a tenth of whose life is left by then.
_RENEW_TIMEOUT_S = 30.0
_SMALL_ULONG = 0x53

logger = logging.getLogger(__name__)

# The SDK logs each error that it converts, which is a line for each transfer to a throttled namespace. The relay
# logs their outcome once an attempt. This logger has no parent and no handler.
_DISCARDING = logging.Logger("discarded", level=logging.CRITICAL + 1)

# The parts of the SDK that are used, with their parameters.
_USED: Mapping[Callable[..., Any], tuple[str, ...]] = {
    ServiceBusSender._create_handler: ("self", "auth"),
    create_authentication: ("client",),
    SendClientAsync.open_async: ("self", "connection"),
    SendClientAsync.auth_complete_async: ("self",),
    SdkConnection._process_incoming_frame: ("self", "channel", "frame"),
    decode_frame: ("data",),
    encode_frame: ("frame", "frame_type"),
}


def differences() -> list[str]:
    """List the ways in which the installed SDK differs from the tested one; empty if it does not."""
    version = azure.servicebus.__version__
    found = []
    if version not in TESTED_VERSIONS:
        found.append(f"azure-servicebus is {version}, and was tested in {' and '.join(TESTED_VERSIONS)}")
    for function, expected in _USED.items():
        if tuple(inspect.signature(function).parameters) != expected:
            found.append(f"{function.__qualname__} takes other parameters than {', '.join(expected)}")
    return found


class DifferentSdkError(Exception):
    """Internals of the SDK are missing, or differ from those that were tested."""


def refused(error: Any) -> SendError | None:
    """Return the outcome of one transfer, from the fields of its error, or None for none."""
    return _said(MessageException, error)


def link_lost(error: Any) -> SendError | None:
    """Return the error of the end of a link or a session, which says nothing about a transfer; None for none."""
    return _said(AMQPLinkError, error)


def connection_lost(error: Any) -> SendError | None:
    """Return the error of the end of a connection, from its fields, or None for none."""
    return _said(AMQPConnectionError, error)


def _said(kind: type[AMQPException], error: Any) -> SendError | None:
    if not error:
        return None
    # The second and the third may be missing.
    condition, description, info = (*error, None, None)[:3]
    return _classified(kind(condition, description=description, info=info))


def _classified(error: Exception) -> SendError:
    """Classify an error as if the SDK had raised it."""
    return classify(PyamqpTransport.create_servicebus_exception(_DISCARDING, error))


@contextlib.contextmanager
def _as_tested() -> Iterator[None]:
    try:
        yield
    except (AttributeError, TypeError) as error:
        raise DifferentSdkError(f"azure-servicebus is not as expected: {error}") from error


class Connection:
    """A connection that the SDK has opened and authenticated, and whose frames are read here."""

    def __init__(self, sender: ServiceBusSender) -> None:
        """Create a connection, which `open` makes.

        `sender` has opened nothing yet, and is used for nothing else.
        """
        self._sender = sender
        # The SDK's internals are untyped; this class isolates them.
        self._handler: Any = None
        self._sdk: Any = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._buffer = bytearray()
        self._wrote_at = time.monotonic()
        self._renewing_since: float | None = None

    @classmethod
    async def open(cls, client: ServiceBusClient, topic: str) -> Connection:
        """Connect and authenticate for a topic. It waits for the peer without a time limit.

        Raises:
            SendError: The connection or the credentials were refused.
            DifferentSdkError: The SDK's inside is not as expected.
        """
        connection = cls(client.get_topic_sender(topic))
        try:
            await connection._connect()
        except BaseException as error:
            await connection.close()
            if isinstance(error, Exception) and not isinstance(error, DifferentSdkError):
                raise _classified(error) from error
            raise
        return connection

    async def _connect(self) -> None:
        with _as_tested():
            authentication = create_authentication(self._sender)  # type: ignore[no-untyped-call]
        authenticated = await authentication
        with _as_tested():
            self._sender._create_handler(authenticated)
            self._handler = self._sender._handler
            # Else the SDK, too, would read: whenever its interval is over.
            self._handler._keep_alive_interval = 0
            open_handler, auth_complete = self._handler.open_async, self._handler.auth_complete_async
        # The peer causes what these raise.
        await open_handler()
        while not await auth_complete():
            # Each call waits for the peer's next frame, for 0.2 seconds.
            pass
        with _as_tested():
            self._sdk = self._handler._connection
            transport = self._sdk._transport
            self._reader, self._writer = transport.reader, transport.writer
            self._buffer += transport._read_buffer.read()
            # Over TLS, asyncio has a second buffer, of encrypted bytes that the socket has not taken.
            is_secure = self._writer.get_extra_info("ssl_object") is not None
            self._below = self._writer.transport._ssl_protocol if is_secure else None  # type: ignore[attr-defined]

    @property
    def target(self) -> str:
        return str(self._sender._entity_uri)

    @property
    def max_frame_bytes(self) -> int:
        return int(self._sdk._remote_max_frame_size)

    def write(self, encoded: bytes) -> None:
        self._wrote_at = time.monotonic()
        self._writer.write(encoded)

    @property
    def is_drained(self) -> bool:
        """True if everything that was written has left this process."""
        if self._writer.transport.get_write_buffer_size():
            return False
        below = None if self._below is None else self._below._transport
        return below is None or not below.get_write_buffer_size()

    async def drained(self) -> None:
        """Wait for that. Raises OSError once the connection is lost."""
        await self._writer.drain()
        # A transport that pauses its writer as soon as anything is left would save this. With TLS (CPython 3.11 to
        # 3.14) such a limit pauses the writer for good, and does not hold for the buffer below.
        while not self.is_drained:
            await asyncio.sleep(_LOOK_S)
            await self._writer.drain()

    async def read(self) -> list[bytes]:
        """Read the next frames, with headers of eight bytes or more; no empty ones. Raises OSError at the end."""
        data = await self._reader.read(_CHUNK_BYTES)
        if not data:
            raise ConnectionResetError("the peer has closed the connection")
        self._buffer += data
        buffer, at, end = self._buffer, 0, len(self._buffer)
        whole = []
        while end - at >= 8:
            size = int.from_bytes(buffer[at : at + 4], "big")
            if not 8 <= size <= MAX_FRAME_SIZE_BYTES:
                raise ConnectionResetError(f"the peer has sent what is no frame: its size would be {size} bytes")
            if end - at < size:
                break
            if size > 4 * buffer[at + 4]:
                whole.append(bytes(buffer[at : at + size]))
            at += size
        del buffer[:at]
        return whole

    def is_of_sdk(self, channel: int) -> bool:
        """Return True if the peer uses this channel for the SDK's session."""
        return channel in self._sdk._incoming_endpoints

    async def give_back(self, channel: int, kind: int, fields: list[Any]) -> None:
        """Let the SDK process a frame that is not of the link's session."""
        if kind == frames.CLOSE and (error := frames.read(frames.Ended, fields).error):
            # The SDK takes it for granted that an error has all its fields.
            fields = [(*error, None, None)[:3]]
        await self._sdk._process_incoming_frame(channel, (kind, fields))

    def keep_alive(self) -> None:
        """Keep the peer's idle timeout from passing. Called every second."""
        idle_s = self._sdk._remote_idle_timeout
        if idle_s and time.monotonic() - self._wrote_at > idle_s / 2 - 1:
            self.write(_EMPTY_FRAME)

    async def renew(self) -> None:
        """Renew the token if it is due. Called every second. Raises SendError if it is not renewed in time."""
        now = time.monotonic()
        try:
            async with asyncio.timeout(_RENEW_TIMEOUT_S) as limit:
                is_valid = await self._handler._cbs_authenticator.handle_token()
        except Exception as error:
            if limit.expired():
                raise _not_renewed() from error
            raise _classified(error) from error
        if is_valid:
            self._renewing_since = None
        elif self._renewing_since is None:
            self._renewing_since = now
        elif now - self._renewing_since > _RENEW_TIMEOUT_S:
            raise _not_renewed()

    async def close(self) -> None:
        """Close the connection; it may have ended before, or may never have been opened."""
        connection = getattr(self._handler, "_connection", None)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._sender.close()
        except Exception as error:  # noqa: BLE001
            # Nothing is lost: transfers that were not accepted are sent again on another.
            logger.debug("closing a connection: %s", str(error))
        finally:
            # The SDK leaves the socket of a connection open that it has not opened whole, or cannot close.
            if (writer := getattr(getattr(connection, "_transport", None), "writer", None)) is not None:
                writer.transport.abort()


def _not_renewed() -> RetryableError:
    return RetryableError(
        f"The token for Service Bus was not renewed within {_RENEW_TIMEOUT_S:g} s: the connection is replaced."
    )


def begin() -> bytes:
    return _frame(BeginFrame(None, 0, _INCOMING_WINDOW, _INCOMING_WINDOW, 0, None, None, None))


def end() -> bytes:
    return _frame(EndFrame(None))


def attach(name: str, target: str) -> bytes:
    """Return the frame that attaches the sending link, whose transfers the peer settles."""
    return _frame(
        AttachFrame(
            name=name,
            handle=frames.HANDLE,
            role=Role.Sender,
            send_settle_mode=SenderSettleMode.Unsettled,
            rcv_settle_mode=ReceiverSettleMode.First,
            source=Source(address=name),  # type: ignore[call-arg]
            target=Target(address=target),  # type: ignore[call-arg]
            unsettled=None,
            incomplete_unsettled=None,
            initial_delivery_count=0,
            max_message_size=None,
            offered_capabilities=None,
            desired_capabilities=None,
            properties=None,
        )
    )


def detach() -> bytes:
    return _frame(DetachFrame(frames.HANDLE, True, None))


def settle(delivery_id: int) -> bytes:
    """Return the frame that settles a delivery of ours, of which the peer has said the outcome."""
    return _frame(DispositionFrame(Role.Sender, delivery_id, None, True, None, None))


def flow(credit: Credit, *, attached: bool) -> bytes:
    """Return the frame that says how far the session is, and the link if it is attached."""
    return _frame(
        FlowFrame(  # type: ignore[call-arg]
            next_incoming_id=credit.next_incoming_id,
            incoming_window=_INCOMING_WINDOW,
            next_outgoing_id=credit.transfers % SERIAL,
            outgoing_window=_INCOMING_WINDOW,
            handle=frames.HANDLE if attached else None,
            delivery_count=credit.deliveries % SERIAL if attached else None,
            link_credit=credit.left if attached else None,
        )
    )


def decode(performative: memoryview) -> tuple[int, list[Any]]:
    """Return a frame's kind, and all its fields; those left out have their defaults. Raises ValueError."""
    if performative[1] == _SMALL_ULONG:
        # The SDK's decoder raises errors of many kinds for the types that it does not know.
        with contextlib.suppress(Exception):
            return decode_frame(performative)
    return frames.decode(performative)


def is_outcome(state: Any) -> bool:
    """Return True if a delivery's state is final; `received` is not."""
    return _RECEIVED not in state


def _frame(performative: Any) -> bytes:
    header, encoded = encode_frame(performative)
    return bytes(header) + frames.CHANNEL.to_bytes(2, "big") + bytes(encoded or b"")
