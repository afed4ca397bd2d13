"""Lists of databases, containers and offers, page by page in the order of their `_rid`s."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.messages import Reply, Request, json_page


@dataclass(frozen=True, slots=True)
class Listing:
    """All resources of one kind below another.

    Attributes:
        rid: The `_rid` of the resource above; empty for the account.
        name: What the answer calls them, such as "Databases".
        resources: As the service returns them.
    """

    rid: str
    name: str
    resources: list[dict[str, Any]]

    @classmethod
    def of(cls, rid: str, name: str, resources: Iterable[dict[str, Any]]) -> Listing:
        return cls(rid, name, sorted(resources, key=_rid_of))

    def reply(self, request: Request) -> Reply:
        """Return the page that the request asks for. Raises BadRequest if its continuation is malformed."""
        after = _last_of(request.headers.get("x-ms-continuation"))
        following = [resource for resource in self.resources if _rid_of(resource) > after]
        page = following[: request.page_size]
        headers = {}
        if len(page) < len(following):
            headers["x-ms-continuation"] = base64.urlsafe_b64encode(_rid_of(page[-1]).encode()).decode()
        return json_page(self.rid, self.name, page, headers)


def _rid_of(resource: dict[str, Any]) -> str:
    return str(resource["_rid"])


def _last_of(continuation: str | None) -> str:
    if not continuation:
        return ""
    try:
        return base64.urlsafe_b64decode(continuation).decode()
    except ValueError as error:
        raise BadRequest("Invalid Continuation Token: it was not made by this account.") from error
