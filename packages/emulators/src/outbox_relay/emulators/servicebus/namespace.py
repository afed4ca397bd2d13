"""The entities of a namespace, by the addresses that clients use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from outbox_relay.emulators.recording import Recording
from outbox_relay.emulators.servicebus.authorization import AuthorizationRule
from outbox_relay.emulators.servicebus.edges import Edges
from outbox_relay.emulators.servicebus.ends import Entity, Inlet, Outlet
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.entity_types import QueueEntity, Status, TopicEntity
from outbox_relay.emulators.servicebus.entry import DEAD_LETTER_SUFFIX, TRANSFER_SUFFIX
from outbox_relay.emulators.servicebus.errors import EntityDisabled, NotAllowed, NotFound
from outbox_relay.emulators.servicebus.message import Message
from outbox_relay.emulators.servicebus.queue import MessageQueue
from outbox_relay.emulators.servicebus.timers import TimerQueue
from outbox_relay.emulators.servicebus.topic import Destination, Queue, Subscription, Topic

MANAGEMENT_SUFFIX = "/$management"
CBS = "$cbs"
_SUBSCRIPTIONS = "/subscriptions/"


def path_of(address: str) -> str:
    """Return an address without scheme and host: clients use both forms."""
    path = urlsplit(address).path if "://" in address else address
    return path.strip("/")


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a receiver: a queue, a subscription, or the dead letters of one."""

    path: str
    address: str
    queue: MessageQueue
    outlet: Outlet

    def check(self, client: str = "receiver") -> None:
        """Raise a ServiceBusError unless a receiver or browser may be created here.

        NotFound when the entity was deleted, EntityDisabled, or NotAllowed where it forwards
        (azure-service-bus-dotnet issue 626).
        """
        if self.outlet.deleted:
            raise NotFound.entity(self.address)
        if not self.outlet.status.receives:
            raise EntityDisabled(f"Messaging entity '{self.path}' is currently disabled.")
        if self.queue.settings.forward_to is not None:
            raise NotAllowed(f"Cannot create a message {client} on an entity with auto-forwarding enabled.")


class Namespace:
    """The running entities. Names are matched without regard to case, as in the service."""

    def __init__(
        self, entities: Entities, timers: TimerQueue, edges: Edges, recording: Recording | None = None
    ) -> None:
        self.timers = timers
        self._edges = edges
        self._recording = recording
        self.name = entities.namespace
        self.created_ms = timers.now()
        self.endpoint = f"sb://{entities.namespace}/"
        self.authorization = entities.authorization
        self.queues: dict[str, Queue] = {}
        self.topics: dict[str, Topic] = {}
        for queue in entities.queues:
            self.add_queue(queue)
        for topic in entities.topics:
            self.add_topic(topic)

    def address(self, path: str) -> str:
        """Return the full address of a path, as errors have it."""
        return self.endpoint + path

    def missing(self, path: str) -> NotFound:
        """Return the error for a path without an entity."""
        return NotFound.entity(self.address(path))

    def rules_of(self, path: str) -> Iterator[tuple[str, AuthorizationRule]]:
        """Yield the authorization rules that apply to a path, each with the path of its entity ("": all)."""
        for rule in self.authorization:
            yield "", rule
        parts = path.lower().split("/")
        for end in range(1, len(parts) + 1):
            name = "/".join(parts[:end])
            entity = self.queues.get(name) or self.topics.get(name)
            for rule in entity.management.authorization if entity else ():
                yield name, rule

    def destination(self, address: str) -> Destination:
        """Find what an address sends to. Raises NotFound."""
        name = path_of(address).lower()
        found: Destination | None = self.queues.get(name) or self.topics.get(name)
        if found is None:
            raise self.missing(path_of(address))
        return found

    def forward(self, destination: str, message: Message) -> None:
        """Send a message on to a queue or topic. Raises ServiceBusError if it cannot be sent."""
        found = self.destination(destination)
        found.publish([message])
        found.inlet.accessed_ms = self.timers.now()

    def source(self, address: str) -> Source:
        """Find what an address receives from. Raises NotFound."""
        path = path_of(address)
        address = self.address(path)
        if path.lower().endswith(TRANSFER_SUFFIX.lower()):
            outlet = self.outlet(path[: -len(TRANSFER_SUFFIX)])
            return Source(path, address, outlet.transfer_dead_letters, outlet)
        if path.lower().endswith(DEAD_LETTER_SUFFIX.lower()):
            outlet = self.outlet(path[: -len(DEAD_LETTER_SUFFIX)])
            return Source(path, address, outlet.dead_letters, outlet)
        outlet = self.outlet(path)
        return Source(path, address, outlet.messages, outlet)

    def outlet(self, path: str) -> Outlet:
        """Find a queue or subscription by its path. Raises NotFound."""
        name = path.lower()
        if name in self.queues:
            return self.queues[name].outlet
        return self.subscription(path).outlet

    def subscription(self, path: str) -> Subscription:
        """Find a subscription by its path, `topic/Subscriptions/name`. Raises NotFound."""
        topic_name, _, name = path.lower().partition(_SUBSCRIPTIONS)
        topic = self.topics.get(topic_name)
        for subscription in topic.subscriptions if topic else ():
            if subscription.name.lower() == name:
                return subscription
        raise self.missing(path)

    def has(self, path: str) -> bool:
        """Return whether there is an entity of any kind at a path."""
        if path.lower() in self.topics:
            return True
        try:
            self.source(path)
        except NotFound:
            return False
        return True

    def set_status(self, path: str, status: Status) -> None:
        """Enable or disable a queue, topic or subscription. Raises NotFound."""
        name = path.lower()
        if name in self.topics:
            self.topics[name].inlet.status = status
            return
        if name in self.queues:
            self.queues[name].inlet.status = status
        self.outlet(path).status = status

    def status(self, path: str) -> Status:
        """Return the status of a queue, topic or subscription. Raises NotFound."""
        topic = self.topics.get(path.lower())
        return topic.inlet.status if topic else self.outlet(path).status

    def add_queue(self, entity: QueueEntity) -> Queue:
        """Make a queue, empty, for a name that is free."""
        queue = Queue(entity, self.timers, self._edges, self.forward, self._recording)
        self.queues[entity.name.lower()] = queue
        return queue

    def add_topic(self, entity: TopicEntity) -> Topic:
        """Make a topic, empty, for a name that is free."""
        topic = Topic(entity, self.timers, self._edges, self.forward, self._recording)
        self.topics[entity.name.lower()] = topic
        return topic

    def remove(self, entity: Entity) -> None:
        """Remove an entity: its address is free again."""
        self.queues = {name: queue for name, queue in self.queues.items() if queue is not entity}
        self.topics = {name: topic for name, topic in self.topics.items() if topic is not entity}
        for topic in self.topics.values():
            topic.subscriptions = [each for each in topic.subscriptions if each is not entity]

    def clear(self) -> None:
        """Delete every message; there must be no receiver."""
        for queue in self.queues.values():
            queue.clear()
        for topic in self.topics.values():
            topic.clear()

    def paths(self) -> list[str]:
        """Return the paths of all queues and topics."""
        return [*self.queues, *self.topics]

    def inlets(self) -> list[Inlet]:
        queues = [queue.inlet for queue in self.queues.values()]
        return queues + [topic.inlet for topic in self.topics.values()]
