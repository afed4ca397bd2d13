"""A container of Cosmos DB as writers see it: documents, ETags, batches, and replicas that lag behind."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
Commit = Callable[[str, Sequence[Document]], None]


class StatusError(Exception):
    """The service answers a request with an error.

    Attributes:
        status: As in HTTP.
        index: The operation of a batch that has failed; None if the request as a whole has.
        token: The session token in the answer: the number of the last change.
    """

    def __init__(self, status: int, token: int, index: int | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.token = token
        self.index = index


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a batch: "create" or "replace", the document, and the ETag that it requires, if any."""

    kind: str
    document: Document
    etag: str | None


class Documents:
    """The documents.

    Attributes:
        lag: The share of reads that are answered by a replica which may lag.
        is_throttled, is_unavailable: Whether requests are answered with 429, or with 503, at the moment. What is
            answered with 503 may have been carried out.
        changes: Number of changes so far, of which session tokens are made.
        versions: All versions of each document, by partition key and id, each with the number of its change.
    """

    def __init__(self, entropy: random.Random, commit: Commit) -> None:
        """`commit` is called with the partition key and the documents of each batch that is applied."""
        self._entropy = entropy
        self._commit = commit
        self.lag = 0.0
        self.is_throttled = False
        self.is_unavailable = False
        self.changes = 0
        self.versions: defaultdict[tuple[str, str], list[tuple[int, Document]]] = defaultdict(list)

    def read(self, key: str, identifier: str, token: int) -> tuple[Document, int]:
        """Read a document by a replica that has what `token` requires, and the replica's own.

        Raises StatusError.
        """
        self._admit()
        seen = self.changes
        if self._entropy.random() < self.lag:
            seen = self._entropy.randint(min(token, self.changes), self.changes)
        found = [document for number, document in self.versions[key, identifier] if number <= seen]
        if not found:
            raise StatusError(404, seen)
        return dict(found[-1]), seen

    def batch(self, key: str, operations: Sequence[Operation]) -> tuple[list[str], int]:
        """Apply all or none; returns the new ETags, and the session token. Raises StatusError."""
        self._admit()
        self.changes += 1
        for index, operation in enumerate(operations):
            status = self._refusal(key, operation)
            if status is not None:
                self.changes -= 1
                raise StatusError(status, self.changes, index)
        etags = [f'"{self.changes}-{index}"' for index in range(len(operations))]
        documents = [
            {**operation.document, "_etag": etag} for operation, etag in zip(operations, etags, strict=True)
        ]
        for document in documents:
            self.versions[key, document["id"]].append((self.changes, document))
        self._commit(key, documents)
        if self.is_unavailable:
            raise StatusError(503, self.changes)
        return etags, self.changes

    def replace(self, key: str, operation: Operation) -> None:
        """Replace a document outside of a batch. Raises StatusError."""
        self._admit()
        status = self._refusal(key, operation)
        if status is not None:
            raise StatusError(status, self.changes)
        self.batch(key, [operation])

    def _admit(self) -> None:
        if self.is_throttled and self._entropy.random() < 0.7:
            raise StatusError(429, self.changes)
        if self.is_unavailable and self._entropy.random() < 0.5:
            raise StatusError(503, self.changes)

    def _refusal(self, key: str, operation: Operation) -> int | None:
        versions = self.versions[key, operation.document["id"]]
        if operation.kind == "create":
            return 409 if versions else None
        if not versions:
            return 404
        is_another = operation.etag is not None and versions[-1][1]["_etag"] != operation.etag
        return 412 if is_another else None
