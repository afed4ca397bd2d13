"""Pages of entities and their continuations."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from azure.core.async_paging import AsyncPageIterator
from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy

from outbox_relay.outbox.entities import DomainEntity
from outbox_relay.outbox.errors import InvalidContinuation, ServiceRefused
from outbox_relay.outbox.failures import failed_read

E_co = TypeVar("E_co", bound=DomainEntity, covariant=True)

_NOT_DELETED = "(NOT IS_DEFINED(c.data.deleted) OR c.data.deleted = false)"
_BAD_REQUEST = 400


@dataclass(frozen=True, slots=True)
class Page(Generic[E_co]):
    """Some entities. The last page may be empty.

    Attributes:
        items: The entities.
        continuation: A URL-safe token for the next page; None on the last one.
    """

    items: tuple[E_co, ...]
    continuation: str | None

    @property
    def has_more(self) -> bool:
        """True if there is a next page."""
        return self.continuation is not None


@dataclass(frozen=True, slots=True)
class Listing:
    """The listing: the documents of a type, in one logical partition or all, that meet a condition."""

    document_type: str
    partition_key: str | None
    where: str | None
    parameters: Mapping[str, Any]
    include_deleted: bool

    async def read(
        self, container: ContainerProxy, page_size: int, continuation: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return up to `page_size` documents and the continuation.

        The service may return short or empty pages before the last one. They are combined.

        Raises:
            InvalidContinuation: `continuation` is not one of this listing.
            Throttled, Unavailable, ServiceRefused: The documents could not be read.
        """
        token = None if continuation is None else self._token(continuation)
        documents: list[dict[str, Any]] = []
        try:
            while len(documents) < page_size:
                found, token = await self._read_some(container, page_size - len(documents), token)
                documents += found
                if token is None:
                    break
        except AzureError as error:
            raise self._failure(error, continuation) from error
        return documents, None if token is None else self._continuation(token)

    async def _read_some(
        self, container: ContainerProxy, count: int, token: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        scope: dict[str, Any] = {} if self.partition_key is None else {"partition_key": self.partition_key}
        found = container.query_items(
            query=self._query(),
            parameters=[{"name": name, "value": value} for name, value in self._values().items()],
            max_item_count=count,
            **scope,
        )
        pages = cast("AsyncPageIterator[dict[str, Any]]", found.by_page(token))
        try:
            page = await anext(pages)
        except StopAsyncIteration:
            return [], None
        return [document async for document in page], pages.continuation_token

    def _query(self) -> str:
        conditions = ["c.type = @outboxType"]
        if not self.include_deleted:
            conditions.append(_NOT_DELETED)
        if self.where is not None:
            conditions.append(f"({self.where})")
        return f"SELECT * FROM c WHERE {' AND '.join(conditions)}"

    def _values(self) -> dict[str, Any]:
        return {**self.parameters, "@outboxType": self.document_type}

    def _failure(self, error: AzureError, continuation: str | None) -> Exception:
        failure = failed_read(error, f"a page of type '{self.document_type}'")
        if continuation is not None and isinstance(failure, ServiceRefused) and failure.status == _BAD_REQUEST:
            return InvalidContinuation(f"Cosmos DB rejected the continuation: {failure.what}")
        return failure

    def _continuation(self, token: str) -> str:
        text = json.dumps([self._fingerprint(), token])
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def _token(self, continuation: str) -> str:
        try:
            padded = continuation + "=" * (-len(continuation) % 4)
            fingerprint, token = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        except (ValueError, TypeError) as error:
            raise InvalidContinuation("The continuation was not issued by this library.") from error
        if fingerprint != self._fingerprint() or not isinstance(token, str):
            raise InvalidContinuation("The continuation belongs to another listing.")
        return token

    def _fingerprint(self) -> str:
        """Return a fingerprint of everything that must not change from one page to the next."""
        text = json.dumps([self._query(), self._values(), self.partition_key], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
