"""Provisioned throughput over HTTP."""

from __future__ import annotations

from outbox_emulators.cosmos import query_api
from outbox_emulators.cosmos.account import Account
from outbox_emulators.cosmos.messages import Reply, Request, json_page, json_reply
from outbox_emulators.cosmos.offers import Throughput


def list_offers(account: Account, request: Request) -> Reply:
    return json_page("", "Offers", account.offers.all())


async def query_offers(account: Account, request: Request) -> Reply:
    return await query_api.query_resources(request, list_offers(account, request))


def read_offer(account: Account, request: Request) -> Reply:
    return json_reply(200, account.offers.by_id(request.segments[1]))


def replace_offer(account: Account, request: Request) -> Reply:
    throughput = Throughput.of_content(request.json_object().get("content"))
    return json_reply(200, account.offers.replace(request.segments[1], throughput))
