"""The workload: events with skewed keys, some of them poison, committed while faults are injected."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosResourceNotFoundError

from local.chaos.history import Histories
from local.chaos.streams import NO_ROUTE

_RESOLVE_PAUSE_S = 0.1
_EVENT_TTL_S = 864_000
_LATE_KEYS = 4
_TOO_LARGE = "message-too-large"
_REASONS = ("data-not-object", "action-not-string", "id-too-long", _TOO_LARGE)
# Of the late events, if there are large ones: faults of Blob Storage are injected again while they are published.
_LATE_LARGE = 0.5
# More than a transfer to a topic of the Standard tier may have.
_LARGE_TEXT = "x" * 270_000
_HARMFUL = 0.01
_ANSWERED_WITHIN_S = 8.0

# Values that a careless JSON reader or writer would change.
_DELICATE: tuple[Any, ...] = (
    "2021-09-22T11:07:37.3022907+02:00",
    "2019-01-01T00:00:01.0000000Z",
    "2026-02-09T09:37:37",
    "/Date(1198908717056)/",
    5e-324,
    1.7976931348623157e308,
    -0.0,
    1.0,
    9007199254740993,
    "\u2028𝄞\x00\x1f",
    "",
    [],
    {},
    [[[[{"deep": None}]]]],
    True,
    None,
)


@dataclass(frozen=True, slots=True)
class Commit:
    """One transactional batch of one partition key."""

    key: str
    documents: list[dict[str, Any]]
    events: list[dict[str, Any]]
    poison: list[tuple[dict[str, Any], frozenset[str]]]


class Workload:
    """The commits of `writers` writers, reproducible from `seed`; a key belongs to one writer.

    `payload` is the length of the longest events' text, in characters. `late` of the events have their own keys
    and are committed after all others. `harmful` are kinds of EVENT_KINDS: events that the topic never takes. With
    `unrouted`, some of the poison are events that no route takes. `large` is the share of sound events that exceed
    a transfer's limit; without any, some of the poison does.
    """

    def __init__(
        self,
        seed: int,
        *,
        events: int,
        late: int,
        writers: int,
        payload: int,
        harmful: Sequence[str] = (),
        unrouted: bool = False,
        large: float = 0.0,
    ) -> None:
        self._seed = seed
        reasons = tuple(each for each in _REASONS if each != _TOO_LARGE) if large else _REASONS
        self._reasons = (*reasons, NO_ROUTE) if unrouted else reasons
        self._large = large
        self._harmful = tuple(harmful)
        self._texts = ("", "x" * (payload // 100), "x" * (payload // 10), "x" * payload)
        self._keys = max(writers, events // 40)
        early = events - late
        self._shares = [early // writers + (1 if number < early % writers else 0) for number in range(writers)]
        self._late = late
        self.writers = writers

    def commits(self, writer: int) -> Iterator[Commit]:
        """Yield the commits of one writer, in order."""
        keys = [f"kéy-{number}" for number in range(writer, self._keys, self.writers)]
        return self._draw(str(writer), keys, self._shares[writer], self._large)

    def late_commits(self) -> Iterator[Commit]:
        """Yield the commits of the late events."""
        keys = [f"kéy-late-{number}" for number in range(_LATE_KEYS)]
        return self._draw("late", keys, self._late, _LATE_LARGE if self._large else 0.0)

    def _draw(self, writer: str, keys: list[str], remaining: int, large: float) -> Iterator[Commit]:
        rng = random.Random(f"work-{self._seed}-{writer}")
        rng.shuffle(keys)
        weights = list(itertools.accumulate(1 / (rank + 1) ** 1.1 for rank in range(len(keys))))
        sequences = Counter[str]()
        for number in itertools.count():
            if not remaining:
                return
            (key,) = rng.choices(keys, cum_weights=weights)
            count = min(rng.choice((1, 1, 1, 2, 5)), remaining)
            remaining -= count
            commit = _commit(rng, key, f"{writer}-{number}", count, self._texts, self._reasons, self._harmful)
            for event in commit.events if large else ():
                if rng.random() < large:
                    event["data"]["text"] = _LARGE_TEXT
            _number(commit, sequences)
            yield commit


def _commit(
    rng: random.Random,
    key: str,
    name: str,
    count: int,
    texts: tuple[str, ...],
    reasons: tuple[str, ...],
    harmful: tuple[str, ...],
) -> Commit:
    events = [_event(rng, key, f"{name}-{index}", rng.choice(texts)) for index in range(count)]
    others = [_document(f"c-{name}", key, "contact", {"text": name})] if rng.random() < 0.5 else []
    poison = [_poison(rng, key, name, reasons)] if rng.random() < 0.01 else []
    if harmful and rng.random() < _HARMFUL:
        poison.append(_harmful(rng.choice(harmful), rng, key, name))
    malformed = [document for document, _ in poison]
    # At any position: the events after it must still arrive.
    documents = [*others, *events]
    documents[rng.randrange(len(documents) + 1) : 0] = malformed
    return Commit(key, documents, events, poison)


def _number(commit: Commit, sequences: Counter[str]) -> None:
    """Assign the numbers that `outbox` does: `order` within the commit, `sequence` within the key."""
    events = [document for document in commit.documents if document["type"] == "domainEvent"]
    for order, document in enumerate(events):
        sequences[commit.key] += 1
        document["order"] = order
        document["sequence"] = sequences[commit.key]


def _event(rng: random.Random, key: str, identifier: str, text: str) -> dict[str, Any]:
    data = {
        "action": rng.choice(("Created", "NameUpdated", "Deleted")),
        "createdAt": rng.choice(_DELICATE[:3]),
        "values": rng.sample(_DELICATE, 3),
        "text": text,
    }
    return _document(f"e-{identifier}", key, "domainEvent", data)


def _harmful(kind: str, rng: random.Random, key: str, name: str) -> tuple[dict[str, Any], frozenset[str]]:
    """Return a well-formed event that the topic refuses, or at which the peer ends what it came over."""
    if kind == "refused-events":
        return _event(rng, key, f"refused-{name}", ""), frozenset({"message-refused"})
    return _event(rng, key, f"ending-{name}", ""), frozenset()


def _poison(
    rng: random.Random, key: str, name: str, reasons: tuple[str, ...]
) -> tuple[dict[str, Any], frozenset[str]]:
    reason = rng.choice(reasons)
    document = _event(rng, key, f"poison-{name}", "")
    if reason == "data-not-object":
        document["data"] = [document["data"]]
    elif reason == "action-not-string":
        document["data"]["action"] = None
    elif reason == NO_ROUTE:
        document["data"]["action"] = "Nowhere"
    elif reason == "id-too-long":
        document["id"] += "-" + "x" * 128
    else:
        document["data"]["text"] = _LARGE_TEXT
    return document, frozenset({reason})


def _document(identifier: str, key: str, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"id": identifier, "partitionKey": key, "type": kind, "data": data, "ttl": _EVENT_TTL_S}


async def write(
    container_of: Callable[[str], ContainerProxy], commits: Iterator[Commit], history: Histories, *, pause_s: float
) -> None:
    """Commit one writer's batches in order, each to its key's container until it is known to be committed."""
    for commit in commits:
        await asyncio.sleep(pause_s * len(commit.events))
        await _until_committed(container_of(commit.key), commit)
        history.wrote(commit.key, commit.events)
        for document, reasons in commit.poison:
            history.wrote_poison(document, reasons)


async def _until_committed(container: ContainerProxy, commit: Commit) -> None:
    """Commit a batch. If its answer is lost, check whether it was committed, and repeat it only if it was not."""
    operations = [("create", (document,)) for document in commit.documents]
    while True:
        try:
            async with asyncio.timeout(_ANSWERED_WITHIN_S):
                await container.execute_item_batch(operations, partition_key=commit.key)
        except CosmosBatchOperationError as error:
            if any(result.get("statusCode") == 409 for result in error.operation_responses):
                return
        except (AzureError, OSError):
            if await _exists(container, commit):
                return
        else:
            return
        await asyncio.sleep(_RESOLVE_PAUSE_S)


async def _exists(container: ContainerProxy, commit: Commit) -> bool:
    while True:
        try:
            async with asyncio.timeout(_ANSWERED_WITHIN_S):
                await container.read_item(commit.events[0]["id"], partition_key=commit.key)
        except CosmosResourceNotFoundError:
            return False
        except (AzureError, OSError):
            await asyncio.sleep(_RESOLVE_PAUSE_S)
        else:
            return True
