"""The links of one connection: attaching them, the engine's events for them, and detaching them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

from cproton import pn_delivery_link, pn_link_is_sender
from proton import Delivery, Event, EventType, Link, Receiver, Session, Terminus

from outbox_relay.emulators.servicebus.auth import Claims
from outbox_relay.emulators.servicebus.errors import ServiceBusError, Unauthorized
from outbox_relay.emulators.servicebus.frames import DeliveryTracker
from outbox_relay.emulators.servicebus.links import LinkEndpoint
from outbox_relay.emulators.servicebus.outgoing import CDelivery
from outbox_relay.emulators.servicebus.role import Role
from outbox_relay.emulators.servicebus.settlement import condition_of

LOG = logging.getLogger(__name__)


class LinkTable:
    """The broker's ends of a connection's links."""

    def __init__(
        self,
        attach: Callable[[Link], LinkEndpoint],
        deliveries: DeliveryTracker,
        schedule_flush: Callable[[], None],
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`attach` makes the endpoint of a link, or raises the ServiceBusError that refuses it.

        `clock`, in seconds, measures when links were active; by default it is the loop's.
        """
        self._attach = attach
        self._deliveries = deliveries
        self._schedule_flush = schedule_flush
        self._endpoints: dict[Any, LinkEndpoint] = {}  # by the engine's C object
        self.clock = clock or asyncio.get_running_loop().time
        self._changed_s = self.clock()

    @property
    def active_s(self) -> float:
        """The last time at which a link was attached, carried something or ended."""
        return max([self._changed_s, *(endpoint.active_s for endpoint in self.endpoints())])

    def items(self) -> list[tuple[Link, LinkEndpoint]]:
        return [(endpoint.link, endpoint) for endpoint in self._endpoints.values()]

    def endpoints(self) -> list[LinkEndpoint]:
        return list(self._endpoints.values())

    def handle(self, kind: EventType, subject: Any) -> None:
        """Handle an event of a session, a link or a delivery."""
        _HANDLERS[kind](self, subject)

    def pump(self) -> None:
        """Let every link send what it has to send."""
        for endpoint in self.endpoints():
            endpoint.pump()

    def refuse(self, link: Link, error: ServiceBusError) -> None:
        """Answer an attach with an attach that has neither source nor target, and a detach with the reason."""
        LOG.info("link %s refused: %s %s", link.name, error.condition, error.description)
        link.source.type = Terminus.UNSPECIFIED
        link.target.type = Terminus.UNSPECIFIED
        link.condition = condition_of(error)
        link.close()
        self._endpoints.pop(link._impl, None)
        self._schedule_flush()

    def detach(self, link: Link, error: ServiceBusError | None) -> None:
        """Detach a link, with a reason or without one."""
        self._end(link)
        if error is not None:
            link.condition = condition_of(error)
        link.close()
        self._schedule_flush()

    def end_session(self, session: Session, error: ServiceBusError | None) -> None:
        """End a session with its links, with a reason or without one."""
        self._end_links(session)
        if error is not None:
            session.condition = condition_of(error)
        session.close()
        self._schedule_flush()

    def close(self) -> None:
        """End all links without a detach: the connection is gone."""
        endpoints = self.endpoints()
        self._endpoints.clear()
        for endpoint in endpoints:
            endpoint.closed()

    def check_claims(self, claims: Claims) -> None:
        """Detach the links whose token has expired and was not renewed."""
        for link, endpoint in self.items():
            if endpoint.path is None:
                continue
            try:
                claims.check(endpoint.path, endpoint.needed)
            except Unauthorized:
                self.detach(link, Unauthorized("ExpiredToken: The token is expired."))

    def check_entities(self) -> None:
        """Detach the links whose entity is gone, or disabled for sending or receiving."""
        for link, endpoint in self.items():
            try:
                endpoint.check()
            except ServiceBusError as error:
                self.detach(link, error)

    def receives_from(self, covers: Callable[[str], bool]) -> bool:
        """Return whether one of the links receives from a path that is covered."""
        return self._has(Role.RECEIVER, covers)

    def sends_to(self, covers: Callable[[str], bool]) -> bool:
        """Return whether one of the links sends to a path that is covered."""
        return self._has(Role.SENDER, covers)

    def _has(self, role: Role, covers: Callable[[str], bool]) -> bool:
        return any(
            endpoint.role is role and endpoint.path is not None and covers(endpoint.path)
            for endpoint in self._endpoints.values()
        )

    def _end(self, link: Link) -> None:
        endpoint = self._endpoints.pop(link._impl, None)
        if endpoint is not None:
            self._changed_s = self.clock()
            endpoint.closed()

    def _session_opened(self, session: Session) -> None:
        # Where the broker has begun it, this is the client's answer, and opening again does nothing.
        session.open()

    def _session_closed(self, session: Session) -> None:
        self._end_links(session)
        session.close()

    def _end_links(self, session: Session) -> None:
        for endpoint in self.endpoints():
            if endpoint.link.session == session:
                self._end(endpoint.link)

    def _link_opened(self, link: Link) -> None:
        try:
            endpoint = self._attach(link)
            endpoint.measure_by(self.clock)
            self._changed_s = endpoint.active_s
            self._endpoints[link._impl] = endpoint
            endpoint.open()
        except ServiceBusError as error:
            self.refuse(link, error)

    def _link_closed(self, link: Link) -> None:
        self._end(link)
        link.close()

    def _link_detached(self, link: Link) -> None:
        self._end(link)
        link.detach()

    def _link_flow(self, link: Link) -> None:
        endpoint = self._endpoints.get(link._impl)
        if endpoint is not None:
            endpoint.touch()
            endpoint.pump()

    def _delivery(self, delivery: CDelivery) -> None:
        link = pn_delivery_link(delivery)
        endpoint = self._endpoints.get(link)
        if endpoint is None:
            if not pn_link_is_sender(link):
                _discard(Delivery.wrap(delivery))  # type: ignore[no-untyped-call]
            return
        endpoint.touch()
        if pn_link_is_sender(link):
            endpoint.on_update(delivery)
        else:
            endpoint.on_delivery(Delivery.wrap(delivery), self._deliveries.message_format)  # type: ignore[no-untyped-call]


def _discard(delivery: Delivery) -> None:
    """Drop what a client sends on after its link was detached: the engine would keep it."""
    if delivery.pending:
        cast(Receiver, delivery.link).recv(delivery.pending)


_HANDLERS: dict[EventType, Callable[[LinkTable, Any], None]] = {
    Event.SESSION_REMOTE_OPEN: LinkTable._session_opened,
    Event.SESSION_REMOTE_CLOSE: LinkTable._session_closed,
    Event.LINK_REMOTE_OPEN: LinkTable._link_opened,
    Event.LINK_REMOTE_CLOSE: LinkTable._link_closed,
    Event.LINK_REMOTE_DETACH: LinkTable._link_detached,
    Event.LINK_FLOW: LinkTable._link_flow,
    Event.DELIVERY: LinkTable._delivery,
}
