"""One sending link, in its own session, with many deliveries in flight.

A delivery leaves as `outgoing` says, in the order in which it was given. It is settled by its own disposition,
whenever that comes, and by nothing else.
What is done with each frame of the peer is a table: `states`.
http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html, parts 2.5.6, 2.6.7 and 2.6.12
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from relay.core.errors import RetryableError, SendError
from relay.servicebus.pipelined import frames, sdk
from relay.servicebus.pipelined.credit import Credit
from relay.servicebus.pipelined.deliveries import Deliveries, Delivery
from relay.servicebus.pipelined.outgoing import Outgoing
from relay.servicebus.pipelined.states import REACTIONS, ROUTES, Channel, Reaction, Route, State
from relay.servicebus.transfers import LinkLimits, Transfer

_KEEP_ALIVE_S = 1.0
# Maximum for the tasks of a link to end once they are cancelled.
_CLOSE_TIMEOUT_S = 5.0

_BATCH_LIMIT_PROPERTY = b"com.microsoft:max-message-batch-size"
# The SDK's limits for a link that names none: 1 MiB, and 256 KiB for a batch below Premium's limit.
_NO_MESSAGE_LIMIT = 1_048_576
_STANDARD_BATCH = 262_144


class LinkLostError(RetryableError):
    """The link ended before a delivery was settled: it may have been accepted.

    Attributes:
        in_flight: Number of deliveries in flight when the peer ended the link, this one included: any of them may
            be the cause. 0 if this one had not been begun, or if the peer did not end it.
        behind: Number of them if this one had not been begun; it is not the cause.
    """

    def __init__(self, message: str, *, in_flight: int = 0, behind: int = 0, busy: bool = False) -> None:
        # A busy service says nothing of a transfer.
        super().__init__(message, ended_alone=in_flight == 1 and not busy, busy=busy)
        self.in_flight = in_flight
        self.behind = behind


class Link:
    """A link to a topic, on a connection that nothing else uses. Made by `open`."""

    def __init__(self, connection: sdk.Connection, accepted_late: Callable[[float], None]) -> None:
        self._connection = connection
        self._accepted_late = accepted_late
        self._loop = asyncio.get_running_loop()
        self._name = f"relay-{uuid.uuid4()}"
        self._tasks: set[asyncio.Task[None]] = set()
        self._deliveries = Deliveries(self._loop)
        self._credit = Credit()
        self._outgoing = Outgoing(connection, self._deliveries, self._credit, lambda: self._start(self._drain()))
        # Its state, and the peer's description of itself.
        self._state = State.OPENING
        self._reactions: dict[int, Callable[[list[Any]], None]] = self._reactions_in(State.OPENING)
        self._attached: asyncio.Future[LinkLimits] = self._loop.create_future()
        self._remote_channel: int | None = None
        self._remote_handle: int | None = None
        self._peer_settles_second = False
        self._lost: SendError | None = None
        self._retired = False

    @classmethod
    async def open(cls, connection: sdk.Connection, accepted_late: Callable[[float], None]) -> Link:
        """Begin the session, and attach the link. It waits for the peer without a time limit.

        Args:
            connection: It is closed if this fails.
            accepted_late: Called with the seconds that a transfer took, if the peer accepts one after
                `send` has given up.

        Raises:
            SendError: The peer refuses it.
        """
        link = cls(connection, accepted_late)
        for work in (link._read(), link._keep_alive(), link._renew()):
            link._start(work)
        try:
            connection.write(sdk.begin())
            connection.write(sdk.attach(link._name, connection.target))
            await link._attached
        except BaseException:
            await link.close()
            raise
        return link

    @property
    def limits(self) -> LinkLimits:
        return self._attached.result()

    @property
    def is_usable(self) -> bool:
        return self._lost is None and not self._retired

    @property
    def has_room(self) -> asyncio.Event:
        """Set while more transfers may be encoded for the link: those that are not settled take memory."""
        return self._deliveries.has_room

    async def send(
        self,
        transfer: Transfer,
        timeout_s: float,
        may_send: Callable[[], None],
        accepted_late: Callable[[], None],
    ) -> None:
        """Send a transfer once, and return when the peer has accepted it.

        A link on which a transfer has timed out, or was cancelled, is retired: its state is unknown. A delivery
        that was begun and that `may_send` prevents from going on is aborted.

        Raises:
            LinkLostError: The link has ended, and the fate of the transfer is unknown.
            TimeoutError: It was not answered in time.
            SendError: The peer has refused it, or `may_send` has.
        """
        if self._lost is not None:
            raise self._lost
        delivery = Delivery(transfer, timeout_s, may_send, accepted_late, self._loop)
        self._outgoing.add(delivery)
        try:
            await delivery.result
        except (asyncio.CancelledError, TimeoutError):
            self._give_up(delivery)
            raise
        finally:
            self._deliveries.release(delivery)

    def retire(self) -> None:
        """Take no new deliveries. Those in flight may still be settled."""
        self._retired = True

    async def close(self, grace_s: float = 0.0) -> None:
        """Detach the link and close its connection, after at most `grace_s` seconds for deliveries in flight."""
        self.retire()
        try:
            if grace_s and self._lost is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._deliveries.idle.wait(), grace_s)
        finally:
            # Also if the process ends first.
            await self._close()

    async def _close(self) -> None:
        if self._lost is None and self._attached.done():
            self._connection.write(sdk.detach() + sdk.end())
        self._lose(LinkLostError("the link was closed"))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT_S)
        await self._connection.close()

    def _give_up(self, delivery: Delivery) -> None:
        self.retire()
        result = delivery.result
        if not result.cancelled() and result.exception() is None:
            # Accepted in the same turn of the loop in which the caller was cancelled.
            delivery.accepted_late()
        elif delivery.id is None:
            # A delivery that has not begun never leaves. The rest of one that has is aborted; without a rest, it
            # may still be settled.
            self._deliveries.forget(delivery)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drain(self) -> None:
        try:
            await self._connection.drained()
        except OSError as error:
            self._lose_by_peer(LinkLostError(f"the connection was lost: {error}"))
        self._outgoing.drained()

    async def _keep_alive(self) -> None:
        with self._losing_unless("the connection could not be kept"):
            while self._lost is None:
                await asyncio.sleep(_KEEP_ALIVE_S)
                self._connection.keep_alive()

    async def _renew(self) -> None:
        with self._losing_unless("the token could not be renewed"):
            while self._lost is None:
                await asyncio.sleep(_KEEP_ALIVE_S)
                await self._connection.renew()

    # Incoming frames

    async def _read(self) -> None:
        with self._losing_unless("the peer's frames could not be read"):
            while True:
                for frame in await self._connection.read():
                    channel = int.from_bytes(frame[6:8], "big")
                    kind, fields = sdk.decode(memoryview(frame)[frame[4] * 4 :])
                    if channel == self._remote_channel and kind in self._reactions:
                        self._reactions[kind](fields)
                    else:
                        await self._take(channel, kind, fields)

    async def _take(self, channel: int, kind: int, fields: list[Any]) -> None:
        """Handle a frame that is not of the link's session."""
        route = self._route(channel, kind)
        if route is Route.BEGIN:
            self._begun(channel, fields)
        elif route is Route.SDK:
            await self._connection.give_back(channel, kind, fields)
        elif route is Route.SDK_ENDED:
            error = sdk.link_lost(frames.read(frames.Ended, fields).error)
            self._lose_by_peer(error or LinkLostError("the peer has ended the session of the tokens"))
        elif route is Route.CLOSED:
            error = sdk.connection_lost(frames.read(frames.Ended, fields).error)
            self._lose_by_peer(error or LinkLostError("the peer has closed the connection"))
            await self._connection.give_back(channel, kind, fields)
        elif route is Route.VIOLATION:
            self._violated(kind)

    def _route(self, channel: int, kind: int) -> Route:
        if channel == self._remote_channel:
            whose = Channel.OURS
        elif self._connection.is_of_sdk(channel):
            whose = Channel.SDK
        else:
            whose = Channel.OTHER
        return ROUTES[whose].get(kind, Route.VIOLATION)

    def _begun(self, channel: int, fields: list[Any]) -> None:
        begin = frames.read(frames.Begin, fields)
        if begin.remote_channel is None:
            # The peer has begun its own session, which is not used.
            return
        if begin.remote_channel != frames.CHANNEL or self._remote_channel is not None:
            self._violated(frames.BEGIN)
            return
        self._remote_channel = channel
        self._credit.begun(begin)

    def _reactions_in(self, state: State) -> dict[int, Callable[[list[Any]], None]]:
        methods: dict[Reaction, Callable[[list[Any]], None]] = {
            Reaction.ATTACH: self._attach,
            Reaction.SESSION_FLOW: self._session_flow,
            Reaction.FLOW: self._flow,
            Reaction.SETTLE: self._settle,
            Reaction.IGNORE: lambda _: None,
        }
        ends = {frames.DETACH: self._detached, frames.END: self._session_ended}
        made: dict[int, Callable[[list[Any]], None]] = {}
        for kind, reaction in REACTIONS[state].items():
            if reaction is Reaction.ENDED:
                made[kind] = ends[kind]
            else:
                made[kind] = methods.get(reaction, lambda _, kind=kind: self._violated(kind))
        return made

    def _enter(self, state: State) -> None:
        self._state = state
        self._reactions = self._reactions_in(state)

    def _attach(self, fields: list[Any]) -> None:
        attach = frames.read(frames.Attach, fields)
        if attach.name not in (self._name, self._name.encode()):
            # A link that the peer begins in our session.
            self._violated(frames.ATTACH)
            return
        self._remote_handle = attach.handle
        # The peer should take the mode that is asked for, and need not (2.7.3).
        self._peer_settles_second = bool(attach.rcv_settle_mode)
        if attach.target is None:
            self._enter(State.REFUSED)
            return
        message = attach.max_message_size or _NO_MESSAGE_LIMIT
        batch = (attach.properties or {}).get(_BATCH_LIMIT_PROPERTY)
        if batch is None:
            batch = message if message >= _NO_MESSAGE_LIMIT else _STANDARD_BATCH
        self._enter(State.OPEN)
        if not self._attached.done():
            self._attached.set_result(LinkLimits(min(batch, message), message))

    def _session_flow(self, fields: list[Any]) -> None:
        flow = frames.read(frames.Flow, fields)
        if flow.handle not in (None, self._remote_handle):
            self._violated(frames.FLOW)
            return
        self._credit.session_flow(flow)
        if flow.echo:
            self._tell_flow()

    def _flow(self, fields: list[Any]) -> None:
        flow = frames.read(frames.Flow, fields)
        if flow.handle not in (None, self._remote_handle):
            self._violated(frames.FLOW)
            return
        credit = self._credit
        credit.session_flow(flow)
        if flow.handle is not None:
            credit.link_flow(flow)
            if flow.drain:
                # Nothing is held back for later: the peer takes back the credit that is not used.
                self._outgoing.write()
                credit.drained()
        if flow.drain or flow.echo:
            self._tell_flow()
        self._outgoing.write()

    def _tell_flow(self) -> None:
        self._connection.write(sdk.flow(self._credit, attached=self._state is State.OPEN))

    def _settle(self, fields: list[Any]) -> None:
        is_receiver, first, last, settled, state = fields[:5]
        if not is_receiver:
            # About deliveries of the peer, of which there are none.
            return
        for delivery in self._deliveries.between(first, first if last is None else last):
            if delivery.outcome is None and state and sdk.is_outcome(state):
                # The first outcome counts, whatever comes with the settlement.
                delivery.outcome = state
            if settled:
                self._settled(delivery)
            elif self._peer_settles_second and delivery.outcome is not None and delivery.id is not None:
                self._connection.write(sdk.settle(delivery.id))
                self._settled(delivery)
        if self._outgoing.has_more:
            self._outgoing.write()

    def _settled(self, delivery: Delivery) -> None:
        self._deliveries.forget(delivery)
        if delivery.settle():
            self._accepted_late(self._loop.time() - delivery.ends + delivery.timeout_s)

    # The end

    def _detached(self, fields: list[Any]) -> None:
        detach = frames.read(frames.Detach, fields)
        if self._remote_handle is not None and detach.handle != self._remote_handle:
            self._violated(frames.DETACH)
            return
        self._connection.write(sdk.detach())
        error = sdk.link_lost(detach.error)
        self._lose_by_peer(error or LinkLostError("the peer has detached the link without a reason"))

    def _session_ended(self, fields: list[Any]) -> None:
        self._connection.write(sdk.end())
        error = sdk.link_lost(frames.read(frames.Ended, fields).error)
        self._lose_by_peer(error or LinkLostError("the peer has ended the session without a reason"))

    def _violated(self, kind: int) -> None:
        self._lose_by_peer(LinkLostError(f"the peer has sent a frame {kind:#x} that AMQP does not allow here"))

    @contextmanager
    def _losing_unless(self, doing: str) -> Iterator[None]:
        """The link is lost if a task of it fails."""
        try:
            yield
        except OSError as error:
            self._lose_by_peer(LinkLostError(f"the connection was lost: {error}"))
        except SendError as error:
            self._lose(error)
        except Exception as error:  # noqa: BLE001
            self._lose_by_peer(LinkLostError(f"{doing}: {error!r}"))

    def _lose_by_peer(self, error: SendError) -> None:
        """Lose the link because the peer has ended it: those in flight are suspects, regardless of its reason."""
        if not self._attached.done():
            self._lose(error)
            return
        said, busy = str(error), isinstance(error, RetryableError) and error.busy
        in_flight = len(self._deliveries.unsettled)
        self._lose(
            LinkLostError(said, behind=in_flight, busy=busy), LinkLostError(said, in_flight=in_flight, busy=busy)
        )

    def _lose(self, error: SendError, in_flight: SendError | None = None) -> None:
        """Lose the link; `in_flight` is the error that those in flight get instead of `error`."""
        if self._lost is not None:
            return
        self._lost = error
        self._enter(State.OVER)
        if not self._attached.done():
            self._attached.set_exception(error)
        self._deliveries.lose(in_flight or error, error)
        self._outgoing.stop()
