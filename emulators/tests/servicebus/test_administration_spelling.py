"""Descriptions as @azure/service-bus 7.9.5 wants them: it reads names by their spelling, prefixes included."""

from __future__ import annotations

from emulators.tests.servicebus.plain_http import management_client, requested
from outbox_emulators.servicebus.administration.atom import CONNECT
from outbox_emulators.servicebus.server import ServiceBusServer


async def test_names_are_spelled_as_clients_that_look_for_their_spelling_expect(
    server: ServiceBusServer,
) -> None:
    async with management_client(server) as management:
        await management.create_queue("letters", user_metadata="a < b & c")

    queue = await requested(server, "GET", "letters")
    topic = await requested(server, "GET", "events/Subscriptions/named")
    rule = await requested(server, "GET", "events/Subscriptions/named/Rules/by-label")

    for document, description in ((queue, "QueueDescription"), (topic, "SubscriptionDescription")):
        assert document.startswith('<entry xmlns="http://www.w3.org/2005/Atom"><id>')
        assert '<content type="application/xml"><' in document
        assert f'<{description} xmlns="{CONNECT}"' in document
        assert (
            '<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">'
            "<d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount>" in document
        )
        assert document.count("xmlns:d2p1=") == 1
    assert "<UserMetadata>a &lt; b &amp; c</UserMetadata>" in queue
    assert '<Filter xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:type="CorrelationFilter">' in rule
