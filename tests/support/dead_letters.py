"""Dead letters on the emulator, for the tests of what is done with them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from proton import Message

from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.server import ServiceBusServer

TOPIC = "domain-events"


@dataclass
class Topic:
    """The topic of a broker: what is sent to it, and dead-lettered, in this process.

    The SDK takes a second for each receiver that it opens, and for it the locks of a broker whose clock is behind
    are over.
    """

    servicebus: ServiceBusServer

    @property
    def environment(self) -> dict[str, str]:
        """Settings of the relay, whose outbox is not there: commands for dead letters do without it."""
        return {
            "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5",
            "SERVICEBUS": self.servicebus.connection_string,
            "SERVICEBUS_ADMIN": self.servicebus.admin_endpoint,
        }

    @property
    def without_manage(self) -> dict[str, str]:
        """These settings without the right to manage."""
        admin = self.servicebus.admin_endpoint.removeprefix("http://")
        refused = f"Endpoint=sb://{admin};SharedAccessKeyName=k;SharedAccessKey=AAAA;UseDevelopmentEmulator=true"
        return {**self.environment, "SERVICEBUS_ADMIN": refused}

    def publish(self, *messages: Message) -> None:
        topic = self.servicebus.broker.namespace.destination(TOPIC)
        for each in messages:
            topic.publish([parse(bytes(each.encode()))])

    def dead_letter(
        self,
        subscription: str,
        key: str | None,
        *,
        count: int = 1,
        reason: str | None = "schema",
        description: str = "by a test",
    ) -> None:
        """Dead-letter the first messages of a session."""
        dead_letter(self.outlet(subscription), key, count, reason, description)

    def complete(self, subscription: str, key: str) -> None:
        """Complete the first message of a session, as its consumer."""
        queue, holder = self.outlet(subscription).messages, _Holder()
        session = queue.accept(key, holder)
        _, lock = queue.take_from(session, holder)
        queue.complete(lock.token)
        queue.close_session(session, holder)

    def free(self, subscription: str) -> None:
        """Have the locks on its dead letters, and on its sessions, expire now."""
        outlet = self.outlet(subscription)
        outlet.dead_letters.expire_all_locks()
        outlet.messages.expire_all_locks()

    def accepted(self) -> dict[str, int]:
        """The topic's counts of accepted messages, and of those among them that it has dropped."""
        counts = self.servicebus.broker.namespace.destination(TOPIC).inlet.counts
        return {"accepted": counts.accepted, "duplicates": counts.duplicates}

    def outlet(self, subscription: str) -> Any:
        return self.servicebus.broker.namespace.outlet(f"{TOPIC}/Subscriptions/{subscription}")

    def counts(self, subscription: str) -> Any:
        """The counts of its dead-letter queue."""
        return self.outlet(subscription).dead_letters.counts()

    def ids(self, subscription: str, key: str | None = None) -> list[str | None]:
        """The ids of the messages that wait in a subscription, or in a session of it, in order."""
        return [each.message.message_id for each in self.outlet(subscription).messages.peek(0, 10_000, key)]

    def dead(self, subscription: str) -> list[str | None]:
        """The ids of its dead letters, in order."""
        return [each.message.message_id for each in self.outlet(subscription).dead_letters.peek(0, 10_000)]


def dead_letter(
    outlet: Any, key: str | None, count: int = 1, reason: str | None = "schema", description: str = ""
) -> None:
    """Dead-letter the first messages of a session; the key is None for a queue or subscription without any."""
    holder = _Holder()
    if key is None:
        taken = [outlet.messages.take(holder) for _ in range(count)]
    else:
        session = outlet.messages.accept(key, holder)
        taken = [outlet.messages.take_from(session, holder) for _ in range(count)]
    for _, lock in taken:
        outlet.messages.dead_letter(lock.token, reason, description)
    if key is not None:
        outlet.messages.close_session(session, holder)


@dataclass(eq=False)
class _Holder:
    session: Any = field(default=None)

    def wake(self) -> None:
        """It takes messages by itself."""

    def session_granted(self, session: Any) -> None:
        self.session = session

    def session_lost(self) -> None:
        self.session = None


def event(
    key: str, number: int, action: str = "Renamed", *, body: bytes | None = None, **properties: Any
) -> Message:
    """A message as the relay sends it; its id is like `k-1`."""
    return Message(
        json.dumps({"action": action, "number": number}).encode() if body is None else body,
        inferred=True,  # bytes are a data section
        id=f"{key}-{number}",
        group_id=key,
        subject=action,
        content_type="application/json",
        properties={"type": "domainEvent", "sequence": number, **properties},
        annotations={"x-opt-partition-key": key},
    )
