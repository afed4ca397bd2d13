"""The topic or queue, as the console reads it: counts of the management endpoint, and peeked dead letters.

It never accepts a session, as that would keep the session from its receiver. Nor does it peek into one: the SDK
(azure-servicebus 7.15.0) opens a link for receiving before it peeks, which Service Bus refuses without a session
where a subscription requires sessions, and what a peek without that link gives is not reliable there
(azure-sdk-for-js issue 7903). So of a message that waits or was delivered, nothing is known here. Dead-letter
queues have no sessions.

It needs the role Azure Service Bus Data Receiver. With CONSOLE_TOPIC_URL, Azure Resource Manager gives the counts,
for which that role suffices. Without it, the management endpoint does, which asks for the right to manage: a
shared access policy with Manage, or the role Azure Service Bus Data Owner.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from outbox_relay.operator.console.content import content_of, shows_data
from outbox_relay.operator.console.model import (
    EXAMPLES,
    Arrival,
    DeadLetter,
    DeadLetterGroup,
    Delivery,
    Subscription,
    by_reason,
)
from outbox_relay.operator.console.resourcemanager import resource_manager, variable_of
from outbox_relay.operator.console.truncation import DETAIL, REASON, optional
from outbox_relay.operator.deadletters import letter, sdk
from outbox_relay.operator.deadletters.receiving_entity import ReceivingEntity
from outbox_relay.operator.entity_status import set_active, status_finding
from relay.backends.findings import Finding, Level
from relay.backends.outbox import cut_text, id_name, key_name
from relay.config.clients import (
    administration_address,
    administration_connection,
    servicebus_administration_client,
    servicebus_client,
)
from relay.config.settings import Settings
from relay.core.errors import ServiceError, first_line

# Maximum number of dead letters that are read.
PEEKED = 200


class ServiceBusTopic:
    """Reads a topic; `ports.Topic` says what of it is promised."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        """Create a view of the topic.

        `environment` may have `CONSOLE_TOPIC_URL`, `SERVICEBUS_ADMIN`, the management endpoint's address, and
        `CONSOLE_SHOW_DATA`, with which dead letters have their content.

        Raises:
            SettingsError: CONSOLE_TOPIC_URL, CONSOLE_SHOW_DATA, or the variable of another namespace, is wrong.
        """
        self._settings = settings
        self._topic = settings.servicebus.entity
        self._connection = settings.servicebus.connection
        self._administered = administration_connection(
            settings.servicebus.connection, administration_address(None, environment, settings.servicebus.setting)
        )
        setting = settings.servicebus.setting
        self._manage = (
            f"Check {setting}_ADMIN, if it is set, and that this identity may manage the namespace: the role "
            f"Azure Service Bus Data Owner, or a policy with Manage. With {variable_of(setting)}, Data Receiver "
            "suffices."
        )
        self._resource_manager = resource_manager(settings, environment)
        self._shows_data = shows_data(environment)
        self._client: ServiceBusClient | None = None
        self._administration: ServiceBusAdministrationClient | None = None
        self._receivers: dict[str, ServiceBusReceiver] = {}
        self._turn = asyncio.Lock()
        # Without their bodies, each of which may have a megabyte, but for the beginning of those that are shown.
        self._peeked: dict[str, Sequence[tuple[DeadLetter, Delivery]]] = {}

    async def subscriptions(self) -> Sequence[Subscription]:
        """See ports.Topic."""
        found = await (self._resource_manager.subscriptions() if self._resource_manager else self._managed())
        for name in self._peeked.keys() - {each.name for each in found if each.dead_lettered}:
            del self._peeked[name]
        return sorted(found, key=lambda each: each.name)

    async def _managed(self) -> list[Subscription]:
        """Read the management endpoint.

        Makes two requests for each page of subscriptions, or one for the queue.
        """
        with self._explaining("its messages cannot be counted", self._manage):
            if self._settings.servicebus.is_queue:
                queue = await self._managing().get_queue_runtime_properties(self._topic)
                waiting, dead = queue.active_message_count or 0, queue.dead_letter_message_count or 0
                return [Subscription(self._topic, waiting, dead)]
            return [
                Subscription(each.name, each.active_message_count or 0, each.dead_letter_message_count or 0)
                async for each in self._managing().list_subscriptions_runtime_properties(self._topic)
            ]

    async def obstacles(self) -> Sequence[Finding]:
        """See ports.Topic. One request."""
        group: str | None = None
        if self._resource_manager:
            group = self._resource_manager.group
            status: object = await self._resource_manager.status()
        else:
            with self._explaining("its status cannot be read", self._manage):
                status = await self._status()
        remedy = set_active(self._settings, group=group)
        finding = status_finding(self._settings.servicebus.destination, status, Level.ERROR, remedy)
        return [] if finding.level is Level.OK else [finding]

    async def _status(self) -> object:
        if self._settings.servicebus.is_queue:
            return (await self._managing().get_queue(self._topic)).status
        return (await self._managing().get_topic(self._topic)).status

    async def dead_letters(self, subscription: str, /) -> Sequence[DeadLetterGroup]:
        """See ports.Topic. The oldest 200 are peeked, which neither locks nor removes any."""
        async with self._turn:
            with self._explaining(
                f"the dead letters of '{subscription}' cannot be peeked",
                f"Check {self._settings.servicebus.setting}, and that this identity has the role "
                "Azure Service Bus Data Receiver.",
            ):
                try:
                    self._peeked[subscription] = await self._peek(subscription)
                except BaseException:
                    if (receiver := self._receivers.pop(subscription, None)) is not None:
                        await receiver.close()
                    raise
        return [
            DeadLetterGroup(subscription, reason, len(letters), tuple(letters[:EXAMPLES]))
            for reason, letters in by_reason(letter for letter, _ in self._peeked[subscription])
        ]

    async def deliveries(self, partition_key: str, ids: Collection[str], /) -> Sequence[Delivery]:
        """Return the dead letters of a key among those that were peeked last. Makes no request."""
        return [
            delivery
            for peeked in self._peeked.values()
            for letter, delivery in peeked
            if letter.partition_key == partition_key
        ]

    async def close(self) -> None:
        opened = (self._client, self._administration, self._resource_manager)
        for each in (*self._receivers.values(), *opened):
            if each is not None:
                await each.close()

    def _managing(self) -> ServiceBusAdministrationClient:
        if self._administration is None:
            self._administration = servicebus_administration_client(self._administered)
        return self._administration

    async def _peek(self, subscription: str) -> Sequence[tuple[DeadLetter, Delivery]]:
        receiver = self._receivers.get(subscription)
        if receiver is None:
            if self._client is None:
                self._client = servicebus_client(self._connection, retry_total=1)
            outlet = ReceivingEntity.of(self._settings, subscription)
            receiver = outlet.receiver(self._client, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
            self._receivers[subscription] = receiver
        found: list[tuple[DeadLetter, Delivery]] = []
        of_reason: Counter[str] = Counter()
        number = 1
        while len(found) < PEEKED:
            # A page may have fewer messages than asked for; one without any is the end.
            page = await sdk.peek(receiver, number, PEEKED - len(found))
            if not page:
                break
            for encoded in page:
                read = letter.read(subscription, encoded)
                shown, delivery = _shown(read)
                of_reason[shown.reason] += 1
                if self._shows_data and of_reason[shown.reason] <= EXAMPLES:
                    shown = replace(shown, content=content_of(encoded))
                found.append((shown, delivery))
                number = read.sequence_number + 1
        return found

    @contextmanager
    def _explaining(self, what: str, remedy: str) -> Iterator[None]:
        try:
            yield
        except (AzureError, OSError) as error:
            raise ServiceError(
                f"{self._settings.servicebus.destination}: {what}: {first_line(error)} {remedy}"
            ) from error


def _shown(found: letter.DeadLetter) -> tuple[DeadLetter, Delivery]:
    """Return a dead letter as the page shows it, and its delivery. The time of its dead-lettering is not known."""
    enqueued_at = found.enqueued_at.timestamp()
    identifier, reason = id_name(str(found.id)), optional(found.reason, REASON)
    key = None if found.session_id is None else key_name(found.session_id)
    said = cut_text(found.description or "", DETAIL)
    return (
        DeadLetter(
            identifier, key, optional(found.subject, REASON), reason or letter.NO_REASON, said, enqueued_at
        ),
        Delivery(
            identifier,
            found.subscription,
            Arrival.DEAD_LETTERED,
            enqueued_at,
            None,
            found.delivery_count,
            reason,
        ),
    )
