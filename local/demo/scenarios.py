"""Scenarios: what clients request for each contact, planned so that the events add up to a given number."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

_FIRST_NAMES = ("Jane", "John", "Zoë", "José", "Siân", "Łukasz", "美咲", "Олена")
_LAST_NAMES = ("Doe", "Müller", "O'Neil", "García", "Nguyễn", "佐藤", "Ковальчук")
# Strings that a careless JSON reader takes for dates, and writes differently.
_DATES = (
    "2019-01-01T00:00:01.0000000Z",
    "2021-09-22T11:07:37.3022907+02:00",
    "2019-01-01",
    "/Date(1546300801000)/",
)
_ASPECTS = ("name", "email", "company", "description")


@dataclass(frozen=True, slots=True)
class Creation:
    """POST: one event."""

    contact: dict[str, Any]
    events = 1


@dataclass(frozen=True, slots=True)
class Changes:
    """PUT of one aspect, or PATCH of several: an event for each, because every value is new."""

    values: dict[str, Any]

    @property
    def events(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Collision:
    """Two clients that change the same version of a contact concurrently: one of them is refused."""

    one: Changes
    other: Changes

    @property
    def events(self) -> int:
        return self.one.events + self.other.events


@dataclass(frozen=True, slots=True)
class Deletion:
    """DELETE: one event."""

    events = 1


Step = Creation | Changes | Collision | Deletion


def scenarios(contacts: int, events: int, seed: int) -> list[Iterator[Step]]:
    """Return a scenario for each of `contacts` contacts, with `events` events in total.

    It is reproducible from `seed`.
    """
    share, rest = divmod(events, contacts)
    return [
        _scenario(random.Random(f"{seed}-{number}"), share + (1 if number < rest else 0))
        for number in range(contacts)
    ]


def _scenario(rng: random.Random, events: int) -> Iterator[Step]:
    contact_id = str(UUID(int=rng.getrandbits(128), version=4))
    yield Creation({"id": contact_id, **{aspect: _value(rng, aspect, 0) for aspect in _ASPECTS}})
    left = events - 1
    number = 0
    ends = rng.random() < 0.1
    while left:
        number += 1
        if ends and left == 1:
            yield Deletion()
            return
        step = _step(rng, left - ends, number)
        left -= step.events
        yield step


def _step(rng: random.Random, most: int, number: int) -> Changes | Collision:
    if most >= 2 and rng.random() < 0.1:
        one = _changes(rng, most - 1, 2 * number)
        return Collision(one, _changes(rng, most - one.events, 2 * number + 1))
    return _changes(rng, most, 2 * number)


def _changes(rng: random.Random, most: int, number: int) -> Changes:
    count = min(rng.choice((1, 1, 2, 3, 4)), most)
    return Changes({aspect: _value(rng, aspect, number) for aspect in rng.sample(_ASPECTS, count)})


def _value(rng: random.Random, aspect: str, number: int) -> Any:
    """Return a value that is unique to this `number` within a contact."""
    match aspect:
        case "name":
            return {"firstName": rng.choice(_FIRST_NAMES), "lastName": f"{rng.choice(_LAST_NAMES)} {number}"}
        case "email":
            return f"contact{number}.{rng.randrange(10**6)}@contoso.com"
        case "description":
            return rng.choice(_DATES) if number == 0 else f'{rng.choice(_DATES)}\n№ {number} \u2028 "\\'
    return {
        "companyName": "Contoso",
        "street": rng.choice(_DATES),
        "houseNumber": f"{number}a",
        "postalCode": f"{rng.randrange(10**5):05}",
        "city": "Palo Alto",
        "country": "US",
    }
