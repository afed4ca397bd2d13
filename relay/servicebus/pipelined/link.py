"""One sending link, in a session of its own, with many deliveries in flight.

A delivery leaves when the peer has granted credit for it and the session's window has room for its frames, in the
order in which it was given. It is settled by its own disposition, whenever that comes, and by nothing else.
http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html, parts 2.5.6, 2.6.7 and 2.6.12
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from relay.errors import RetryableError, SendError
from relay.servicebus.pipelined import frames, sdk
from relay.servicebus.transfers import LinkLimits, Transfer

IN_FLIGHT = 256
"""The most deliveries that are sent and not settled."""

# The SDK's session has channel 1; the numbers of the two sides are independent.
_CHANNEL = 2
_HANDLE = 0
# Transfers that the peer may send us on this session: it sends none.
_INCOMING_WINDOW = 1
# So much is written at once, while the next transfers are encoded. Less waits for what else comes in the same turn
# of the loop: a write takes as long as encoding a transfer.
_SOON_BYTES = 4_096
# The most in one write, and in this process' buffers.
_WRITE_BYTES = 65_536
# Of transfers that are not settled: enough to keep a link busy, and little beside a batch for each key.
_HELD_BYTES = 4_194_304
_KEEP_ALIVE_S = 1.0
_SERIAL = 2**32

_BATCH_LIMIT_PROPERTY = b"com.microsoft:max-message-batch-size"
# What the SDK assumes where a link does not say: 1 MiB, and 256 KiB for a batch below Premium's limit.
_NO_MESSAGE_LIMIT = 1_048_576
_STANDARD_BATCH = 262_144


class LinkLostError(RetryableError):
    """The link ended before a delivery was settled: it is not known whether it was accepted.

    Attributes:
        by_peer: The peer has detached the link with an error, which one of the deliveries in flight may have
            caused.
    """

    def __init__(self, message: str, *, by_peer: bool) -> None:
        super().__init__(message)
        self.by_peer = by_peer


class _Delivery:
    __slots__ = ("ends", "may_send", "message_format", "payload", "settled")

    def __init__(
        self, transfer: Transfer, ends: float, may_send: Callable[[], None], settled: asyncio.Future[None]
    ) -> None:
        self.payload = transfer.payload
        self.message_format = transfer.message_format
        self.ends = ends
        self.may_send = may_send
        self.settled = settled


class Link:
    """A link to a topic, on a connection that nothing else uses. Made by `open`."""

    def __init__(self, connection: sdk.Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._attached: asyncio.Future[None] = self._loop.create_future()
        self._name = f"relay-{uuid.uuid4()}"
        self._limits: LinkLimits | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._remote_channel: int | None = None
        self._lost: SendError | None = None
        self._retired = False
        self._idle = asyncio.Event()
        # Deliveries by their ids, which follow one another; those that wait; the frames of the one that is begun.
        self._unsettled: dict[int, _Delivery] = {}
        self._waiting: deque[_Delivery] = deque()
        self._waiting_bytes = 0
        self._held_bytes = 0
        self.has_room = asyncio.Event()
        """Whether more transfers should be encoded for it: those that are not settled take memory."""
        self.has_room.set()
        self._frames: deque[bytes] = deque()
        self._pump_is_due = False
        self._is_draining = False
        self._timer: asyncio.TimerHandle | None = None
        self._expires = math.inf
        # What the peer has granted: deliveries on the link, and frames in the session.
        self._deliveries = 0
        self._delivery_limit = 0
        # Its ids follow one another; a drain makes the count above skip some.
        self._delivery_ids = 0
        self._transfers = 0
        self._transfer_limit = 0
        self._next_incoming_id = 0

    @classmethod
    async def open(cls, connection: sdk.Connection) -> Link:
        """Begin the session, and attach the link. Raises SendError where the peer refuses it."""
        link = cls(connection)
        link._tasks = [asyncio.create_task(link._read()), asyncio.create_task(link._keep_alive())]
        try:
            connection.write(sdk.begin(_CHANNEL, _INCOMING_WINDOW))
            connection.write(sdk.attach(_CHANNEL, _HANDLE, link._name, connection.target))
            await link._attached
        except BaseException:
            await link.close()
            raise
        return link

    @property
    def limits(self) -> LinkLimits:
        """What the link takes."""
        assert self._limits is not None
        return self._limits

    @property
    def is_usable(self) -> bool:
        """Whether new deliveries may be given to it."""
        return self._lost is None and not self._retired

    async def send(self, transfer: Transfer, timeout_s: float, may_send: Callable[[], None]) -> None:
        """Send a transfer once; returns when the peer has accepted it.

        Args:
            transfer: What to send.
            timeout_s: Seconds until then. A link on which a transfer has timed out, or was cancelled, is retired:
                its state is not known.
            may_send: Called right before its first frame is written; raises a SendError to prevent that.

        Raises:
            LinkLostError: The link has ended, and it is not known what became of the transfer.
            TimeoutError: It was not answered in time.
            SendError: The peer has refused it, or `may_send` has.
        """
        if self._lost is not None:
            raise self._lost
        ends = self._loop.time() + timeout_s
        delivery = _Delivery(transfer, ends, may_send, self._loop.create_future())
        if ends < self._expires:
            self._expire_at(ends)
        self._idle.clear()
        self._waiting.append(delivery)
        self._waiting_bytes += len(transfer.payload)
        self._hold(len(transfer.payload))
        if self._waiting_bytes >= _SOON_BYTES:
            self._pump()
        elif not self._pump_is_due:
            # What the other keys send in this turn of the loop goes out in the same write.
            self._pump_is_due = True
            self._loop.call_soon(self._pump)
        try:
            await delivery.settled
        except (asyncio.CancelledError, TimeoutError):
            self.retire()
            # What has not begun never leaves.
            with suppress(ValueError):
                self._waiting.remove(delivery)
            self._note_idle()
            raise
        finally:
            self._hold(-len(transfer.payload))

    def retire(self) -> None:
        """Take no new deliveries. Those in flight may still be settled."""
        self._retired = True

    async def close(self, grace_s: float = 0.0) -> None:
        """Detach the link and close its connection, after `grace_s` seconds at most for what is in flight."""
        self.retire()
        if grace_s and self._lost is None and (self._unsettled or self._waiting):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace_s)
        if self._lost is None and self._attached.done():
            self._connection.write(sdk.detach(_CHANNEL, _HANDLE) + sdk.end(_CHANNEL))
        self._lose(LinkLostError("the link was closed", by_peer=False))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close()

    def _expire_at(self, ends: float) -> None:
        """Look for what has timed out then. One timer for all deliveries: nearly all are settled long before."""
        if self._timer is not None:
            self._timer.cancel()
        self._expires = ends
        self._timer = self._loop.call_at(ends, self._expire) if ends < math.inf else None

    def _expire(self) -> None:
        now = self._loop.time()
        pending = [each for each in (*self._unsettled.values(), *self._waiting) if not each.settled.done()]
        for delivery in pending:
            if delivery.ends <= now:
                delivery.settled.set_exception(TimeoutError())
        self._expire_at(min((each.ends for each in pending if each.ends > now), default=math.inf))

    # What goes out

    def _pump(self) -> None:
        """Write what the peer has room for."""
        self._pump_is_due = False
        self._waiting_bytes = 0
        if self._lost is not None or self._is_draining:
            return
        out: list[bytes] = []
        size = 0
        while size < _WRITE_BYTES:
            if self._frames:
                if self._transfers >= self._transfer_limit:
                    break
                out.append(self._frames.popleft())
                size += len(out[-1])
                self._transfers += 1
            elif not self._begin_next():
                break
        if out:
            self._connection.write(b"".join(out))
        if not self._connection.is_drained or size >= _WRITE_BYTES:
            # Nothing waits in this process' buffers once it was cleared: a process that is frozen would send it
            # when it resumes.
            self._is_draining = True
            self._tasks.append(asyncio.create_task(self._drain()))

    def _begin_next(self) -> bool:
        """Begin the next delivery that may be sent; returns whether there is one."""
        while self._waiting and self._deliveries < self._delivery_limit and len(self._unsettled) < IN_FLIGHT:
            delivery = self._waiting.popleft()
            if delivery.settled.done():
                continue
            try:
                delivery.may_send()
            except SendError as error:
                delivery.settled.set_exception(error)
                continue
            delivery_id = self._delivery_ids % _SERIAL
            self._delivery_ids += 1
            self._deliveries += 1
            self._unsettled[delivery_id] = delivery
            self._frames.extend(
                frames.transfer(
                    _CHANNEL,
                    _HANDLE,
                    delivery_id,
                    delivery.message_format,
                    delivery.payload,
                    self._connection.max_frame_bytes,
                )
            )
            return True
        return False

    async def _drain(self) -> None:
        try:
            await self._connection.drained()
        except OSError as error:
            self._lose(LinkLostError(f"the connection was lost: {error}", by_peer=False))
        self._is_draining = False
        self._tasks.remove(asyncio.current_task())  # type: ignore[arg-type]
        self._pump()

    async def _keep_alive(self) -> None:
        try:
            while self._lost is None:
                await asyncio.sleep(_KEEP_ALIVE_S)
                await self._connection.keep_alive()
        except SendError as error:
            self._lose(error)
        except Exception as error:
            self._lose(LinkLostError(f"the connection could not be kept: {error!r}", by_peer=False))
            raise

    # What comes in

    async def _read(self) -> None:
        try:
            while True:
                for frame in await self._connection.read():
                    performative = memoryview(frame)[frame[4] * 4 :]
                    channel = int.from_bytes(frame[6:8], "big")
                    if channel == self._remote_channel:
                        self._receive(*sdk.decode(performative))
                    elif performative[2] == frames.BEGIN:
                        self._begun(channel, sdk.decode(performative)[1])
                    else:
                        if performative[2] == frames.CLOSE:
                            self._closed(sdk.decode(performative)[1])
                        await self._connection.give_back(channel, performative)
        except OSError as error:
            self._lose(LinkLostError(f"the connection was lost: {error}", by_peer=False))
        except Exception as error:
            self._lose(LinkLostError(f"the peer's frames could not be read: {error!r}", by_peer=False))
            raise

    def _begun(self, channel: int, fields: list[Any]) -> None:
        self._remote_channel = channel
        self._next_incoming_id = fields[1]
        self._transfer_limit = fields[2]

    def _receive(self, kind: int, fields: list[Any]) -> None:
        if kind == frames.DISPOSITION:
            self._settle(fields)
        elif kind == frames.FLOW:
            self._flow(fields)
        elif kind == frames.ATTACH:
            self._attach(fields)
        elif kind in (frames.DETACH, frames.END):
            self._ended(sdk.AmqpError.of(fields[2] if kind == frames.DETACH else fields[0]), kind)

    def _attach(self, fields: list[Any]) -> None:
        if fields[6] is None:
            # The peer has no such target: a detach follows, which says why.
            return
        properties = fields[13] or {}
        message = fields[10] or _NO_MESSAGE_LIMIT
        batch = properties.get(_BATCH_LIMIT_PROPERTY)
        if batch is None:
            batch = message if message >= _NO_MESSAGE_LIMIT else _STANDARD_BATCH
        self._limits = LinkLimits(min(batch, message), message)
        if not self._attached.done():
            self._attached.set_result(None)

    def _flow(self, fields: list[Any]) -> None:
        next_incoming_id, window, next_outgoing_id, _, handle, count, credit, _, drain, echo, _ = fields
        self._next_incoming_id = next_outgoing_id
        # The peer counts from what it has received; before our first frame, it may not know the id.
        self._transfer_limit = _unwrapped(next_incoming_id or 0, self._transfers) + window
        if handle is not None:
            self._delivery_limit = _unwrapped(count or 0, self._deliveries) + (credit or 0)
            if drain:
                # Nothing is held back for later: the peer takes back the credit that is not used.
                self._pump()
                self._deliveries = max(self._deliveries, self._delivery_limit)
        if drain or echo:
            self._tell_flow()
        self._pump()

    def _tell_flow(self) -> None:
        self._connection.write(
            sdk.flow(
                _CHANNEL,
                _HANDLE,
                next_incoming_id=self._next_incoming_id,
                window=_INCOMING_WINDOW,
                next_outgoing_id=self._transfers % _SERIAL,
                delivery_count=self._deliveries % _SERIAL,
                link_credit=max(0, self._delivery_limit - self._deliveries),
            )
        )

    def _settle(self, fields: list[Any]) -> None:
        _, first, last, settled, state, _ = fields
        if not settled:
            # Not the end of it: with this settle mode, the peer settles each delivery itself.
            return
        for delivery_id in self._unsettled_between(first, first if last is None else last):
            delivery = self._unsettled.pop(delivery_id)
            if delivery.settled.done():
                continue
            if state and sdk.ACCEPTED in state:
                delivery.settled.set_result(None)
            else:
                delivery.settled.set_exception(_outcome(state))
        if self._waiting:
            self._pump()
        self._note_idle()

    def _unsettled_between(self, first: int, last: int) -> list[int]:
        """The ids from `first` to `last`, which are serial numbers, of deliveries that are not settled."""
        further = (last - first) % _SERIAL
        if further < len(self._unsettled):
            ids = ((first + number) % _SERIAL for number in range(further + 1))
            return [each for each in ids if each in self._unsettled]
        return [each for each in self._unsettled if (each - first) % _SERIAL <= further]

    def _hold(self, more_bytes: int) -> None:
        self._held_bytes += more_bytes
        if self._held_bytes >= _HELD_BYTES:
            self.has_room.clear()
        else:
            self.has_room.set()

    def _note_idle(self) -> None:
        if not self._unsettled and not self._waiting:
            self._idle.set()

    # The end

    def _ended(self, error: sdk.AmqpError | None, kind: int) -> None:
        self._connection.write(sdk.detach(_CHANNEL, _HANDLE) if kind == frames.DETACH else sdk.end(_CHANNEL))
        if error is None:
            self._lose(LinkLostError("the peer has detached the link without a reason", by_peer=False))
            return
        lost = sdk.link_lost(error)
        if isinstance(lost, RetryableError):
            lost = LinkLostError(str(lost), by_peer=True)
        self._lose(lost)

    def _closed(self, fields: list[Any]) -> None:
        error = sdk.AmqpError.of(fields[0])
        self._lose(
            LinkLostError("the peer has closed the connection", by_peer=False)
            if error is None
            else sdk.connection_lost(error)
        )

    def _lose(self, error: SendError) -> None:
        """The link is over: what becomes of the deliveries that are not settled is not known."""
        if self._lost is not None:
            return
        self._lost = error
        if not self._attached.done():
            self._attached.set_exception(error)
        for delivery in (*self._unsettled.values(), *self._waiting):
            if not delivery.settled.done():
                delivery.settled.set_exception(error)
        self._unsettled.clear()
        self._waiting.clear()
        self._expire_at(math.inf)
        self._frames.clear()
        self._idle.set()


def _outcome(state: Any) -> SendError:
    """The error of a delivery that was not accepted."""
    if state and sdk.REJECTED in state:
        fields = state[sdk.REJECTED]
        if error := sdk.AmqpError.of(fields[0] if fields else None):
            return sdk.refused(error)
    # Released or modified: not processed, for a reason the peer does not say. Or settled without an outcome.
    return RetryableError("Service Bus has not accepted the message, and gives no reason.", refused=True)


def _unwrapped(serial: int, near: int) -> int:
    """The number that a serial of 32 bits stands for: the one nearest to `near`, which counts on."""
    return near + (serial - near + _SERIAL // 2) % _SERIAL - _SERIAL // 2
