"""Scenarios of contacts: the documents and events of a series of changes, in the article's shape, written without
the outbox library.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy

from local.demo.tally import Tally

EVENT_TTL_S = 10 * 24 * 3600

_FIRST_NAMES = ("Jane", "John", "Zoë", "José", "Siân", "Łukasz", "美咲", "Олена")
_LAST_NAMES = ("Doe", "Müller", "O'Neil", "García", "Nguyễn", "佐藤", "Ковальчук")


@dataclass(frozen=True, slots=True)
class Change:
    """The commit of one transactional batch for one contact.

    Attributes:
        partition_key: The contact's id.
        contact: The contact's document.
        created: Whether the batch creates or replaces the contact.
        others: Documents of other types, which must not be relayed.
        events: domainEvent documents, in order.
    """

    partition_key: str
    contact: dict[str, Any]
    created: bool
    others: list[dict[str, Any]]
    events: list[dict[str, Any]]


def scenarios(contacts: int, events: int, seed: int) -> list[Iterator[Change]]:
    """A scenario for each of `contacts` contacts, with `events` events in total, reproducible from `seed`."""
    share, rest = divmod(events, contacts)
    return [
        _scenario(random.Random(f"{seed}-{number}"), share + (1 if number < rest else 0))
        for number in range(contacts)
    ]


def _scenario(rng: random.Random, events: int) -> Iterator[Change]:
    contact_id = _uuid(rng)
    person = _person(rng)
    written = 0
    while written < events:
        created = written == 0
        count = 1 if created else min(rng.choice((1, 1, 1, 2, 3)), events - written)
        if not created:
            person = {**person, **_person(rng)}
        data = {**person, "createdAt": _timestamp(rng), "deleted": False, "id": contact_id}
        yield Change(
            partition_key=contact_id,
            contact=_document(contact_id, contact_id, "contact", data, -1),
            created=created,
            others=[_note(rng, contact_id)] if rng.random() < 0.2 else [],
            events=[_event(rng, contact_id, person, written + number, created=created) for number in range(count)],
        )
        written += count


def _event(
    rng: random.Random, contact_id: str, person: dict[str, Any], sequence: int, *, created: bool
) -> dict[str, Any]:
    aspect = "created" if created else rng.choice(("name", "email", "company"))
    content = person if created else {aspect: person[aspect]}
    event_id = _uuid(rng)
    data = {
        **content,
        "contactId": contact_id,
        "action": f"Contact{aspect.capitalize() + ('Updated' if not created else '')}Event",
        "sequence": sequence,
        "id": event_id,
        "createdAt": _timestamp(rng),
    }
    return _document(event_id, contact_id, "domainEvent", data, EVENT_TTL_S)


def _note(rng: random.Random, contact_id: str) -> dict[str, Any]:
    return _document(_uuid(rng), contact_id, "note", {"text": "called back", "action": "none"}, EVENT_TTL_S)


def _document(identifier: str, partition_key: str, kind: str, data: dict[str, Any], ttl: int) -> dict[str, Any]:
    return {"id": identifier, "partitionKey": partition_key, "type": kind, "data": data, "ttl": ttl}


def _person(rng: random.Random) -> dict[str, Any]:
    first, last = rng.choice(_FIRST_NAMES), rng.choice(_LAST_NAMES)
    return {
        "name": {"firstName": first, "lastName": last},
        "description": "This is a contact",
        "email": f"contact{rng.randrange(10**6)}@contoso.com",
        "company": {
            "companyName": "Contoso",
            "street": "Street",
            "houseNumber": f"{rng.randrange(1, 200)}a",
            "postalCode": f"{rng.randrange(10**5):05}",
            "city": "Palo Alto",
            "country": "US",
            "revenue": rng.choice((0, -1, 0.1, 1e-7, 12_345_678_901, 1.5e300)),
            "since": rng.choice(("2019-01-01T00:00:01.0000000Z", "2021-09-22T11:07:37+02:00", "2019-01-01")),
        },
    }


def _timestamp(rng: random.Random) -> str:
    """A time as in the article: seven fractional digits and an offset, which .NET readers may rewrite."""
    zone = timezone(timedelta(hours=rng.choice((-8, 0, 2, 5.5))))
    moment = datetime.now(UTC).astimezone(zone).replace(microsecond=rng.randrange(10**6))
    text = moment.isoformat(timespec="microseconds")
    return f"{text[:26]}0{text[26:]}"


def _uuid(rng: random.Random) -> str:
    return str(UUID(int=rng.getrandbits(128), version=4))


async def write_scenarios(
    container: ContainerProxy, scenarios: list[Iterator[Change]], tally: Tally, *, writers: int
) -> None:
    """Write all scenarios. A writer finishes one contact before the next, so the commits of a contact have an
    order.
    """
    remaining = iter(scenarios)

    async def work() -> None:
        for scenario in remaining:
            etag = None
            for change in scenario:
                etag = await _commit(container, change, etag, tally)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(writers):
            tasks.create_task(work())


async def _commit(container: ContainerProxy, change: Change, etag: str | None, tally: Tally) -> str:
    contact: tuple[object, ...]
    if change.created:
        contact = ("create", (change.contact,))
    else:
        unchanged = {"if_match_etag": etag, "match_condition": MatchConditions.IfNotModified}
        contact = ("replace", (change.contact["id"], change.contact), unchanged)
    creates = [("create", (document,)) for document in (*change.others, *change.events)]
    results = await container.execute_item_batch([contact, *creates], partition_key=change.partition_key)
    returned = time.monotonic()
    for event in change.events:
        tally.wrote(event, returned)
    return str(results[0]["eTag"])
