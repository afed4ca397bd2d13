"""Workloads: batches of documents in the article's shape, drawn from a seed, every id new."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from azure.functions import DocumentList

from outbox_relay.emulators.functions.documents import from_text, to_text

EVENT_TYPE = "domainEvent"

# The JSON text of an event's `data`, in bytes. The article's own example has about that many without its padding.
ARTICLE, TWO_KB, TWENTY_KB = 240, 2_048, 20_480

_WORDS = ("street", "address", "company", "telephone", "contact", "customer", "of", "a", "as", "it", "was", "sent")
_TEXT_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Workload:
    """One batch of changes, as a recipe.

    Attributes:
        keys: Number of partition keys.
        per_key: Events of each key.
        size: Approximate bytes of an event's `data` as JSON: 100, or from ARTICLE to 200 000.
        others: The share of documents of another type in the batch, 0 to below 1.
    """

    keys: int
    per_key: int
    size: int = ARTICLE
    others: float = 0.0

    @property
    def name(self) -> str:
        """Such as `100x1`, `10x10 2 KB`, `10x10 95 % others`."""
        size = {ARTICLE: "", TWO_KB: " 2 KB", TWENTY_KB: " 20 KB"}.get(self.size, f" {self.size} B")
        return f"{self.keys}x{self.per_key}{size}" + (
            f" {self.others:.0%} others".replace("%", " %") if self.others else ""
        )

    @property
    def events(self) -> int:
        """Domain events in one batch."""
        return self.keys * self.per_key


class Source:
    """Draws batches of workloads; no two documents of one source share an id."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._serial = count()
        self._run = self._random.randrange(16**8)
        self._text = " ".join(self._random.choices(_WORDS, k=_TEXT_BYTES // 2))

    def batch(self, workload: Workload) -> list[dict[str, Any]]:
        """Return the documents of one batch, as the change feed has them: keys mixed."""
        documents = [self._event(key, workload.size) for key in self._keys(workload)]
        documents += [self.contact(workload.size) for _ in range(_others(workload))]
        self._random.shuffle(documents)
        return documents

    def texts(self, workload: Workload) -> Iterator[str]:
        """Yield batches as the JSON text that the host passes to the worker, without end."""
        while True:
            yield to_text(self.batch(workload), rewrite_dates=False)

    def invocations(self, workload: Workload, number: int) -> list[DocumentList]:
        """Return `number` batches as the function receives them: decoded by azure-functions' own converter."""
        return [self.decoded(self.batch(workload)) for _ in range(number)]

    def decoded(self, documents: list[dict[str, Any]]) -> DocumentList:
        """Return these documents as the function receives them."""
        decoded: DocumentList = from_text(to_text(documents, rewrite_dates=False))
        return decoded

    @staticmethod
    def _keys(workload: Workload) -> list[str]:
        keys = [f"{rank:08x}-4982-4735-9422-c39a7c4af5c2" for rank in range(workload.keys)]
        return [key for key in keys for _ in range(workload.per_key)]

    def _event(self, key: str, size: int) -> dict[str, Any]:
        identifier = self._identifier()
        return {
            "id": identifier,
            "partitionKey": key,
            "type": EVENT_TYPE,
            "data": self._data(identifier, key, size),
            "ttl": 864_000,
            "_etag": '"18005bce-0000-1500-0000-614456b80000"',
            "_ts": _just_now(),
        }

    def _data(self, identifier: str, key: str, size: int) -> dict[str, Any]:
        if size < ARTICLE:
            return {"id": identifier, "action": "Renamed", "createdAt": "2026-02-09T11:37:37Z"}
        data = {
            "name": {"firstName": "Jane", "lastName": "Doe"},
            "contactId": key,
            "action": "ContactNameUpdatedEvent",
            "id": identifier,
            "createdAt": "2026-02-09T11:37:37.3022907+02:00",
        }
        if size > ARTICLE:
            data["description"] = self._some_text(size - ARTICLE)
        return data

    def contact(self, size: int = ARTICLE) -> dict[str, Any]:
        """Return a document of another type, as the article's contact is."""
        identifier = self._identifier()
        data = {
            "name": {"firstName": "John", "lastName": "Doe"},
            "email": "johndoe@contoso.com",
            "createdAt": "2026-02-09T11:37:37.3022907+02:00",
            "deleted": False,
            "id": identifier,
        }
        if size > ARTICLE:
            data["description"] = self._some_text(size - ARTICLE)
        return {
            "id": identifier,
            "partitionKey": identifier,
            "type": "contact",
            "data": data,
            "ttl": -1,
            "_etag": '"180014cc-0000-1500-0000-614455330000"',
            "_ts": _just_now(),
        }

    def _identifier(self) -> str:
        return f"{self._run:08x}-0000-4ac7-ae22-{next(self._serial):012x}"

    def _some_text(self, length: int) -> str:
        start = self._random.randrange(_TEXT_BYTES - length)
        return self._text[start : start + length]


def _others(workload: Workload) -> int:
    return round(workload.events * workload.others / (1 - workload.others))


def _just_now() -> int:
    """Return a time of commit, in seconds since 1970, that is not over when the document is measured.

    Of an older one, the relay asks the quarantine whether another process has set it aside.
    """
    return int(time.time()) + 600
