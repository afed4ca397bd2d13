"""Provisioned throughput over HTTP."""

from __future__ import annotations

from typing import Any

from outbox_relay.emulators.cosmos import query_api
from outbox_relay.emulators.cosmos.account import Account
from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.listings import Listing
from outbox_relay.emulators.cosmos.messages import Reply, Request, json_reply
from outbox_relay.emulators.cosmos.offers import LEAST_RU, Throughput


def offers(account: Account, request: Request) -> Listing:
    return Listing.of("", "Offers", account.offers.all())


def list_offers(account: Account, request: Request) -> Reply:
    return offers(account, request).reply(request)


async def query_offers(account: Account, request: Request) -> Reply:
    return await query_api.query_resources(request, offers(account, request))


def read_offer(account: Account, request: Request) -> Reply:
    return _reply(account.offers.by_id(request.segments[1]))


def replace_offer(account: Account, request: Request) -> Reply:
    offer = request.json_object()
    if offer.get("id") != request.segments[1]:
        raise BadRequest("The id of an offer is not the one in the path.")
    throughput = Throughput.of_content(offer.get("content"))
    return _reply(account.replace_throughput(request.segments[1], throughput))


def _reply(offer: dict[str, Any]) -> Reply:
    """Reply with what SDKs read as the least throughput, and whether a change is under way.

    Changes are done immediately.
    """
    reply = json_reply(200, offer)
    reply.headers |= {"x-ms-cosmos-min-throughput": str(LEAST_RU), "x-ms-offer-replace-pending": "False"}
    return reply
