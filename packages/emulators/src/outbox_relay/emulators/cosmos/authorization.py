"""The master key's signature on every request.

Source: https://learn.microsoft.com/rest/api/cosmos-db/access-control-on-cosmosdb-resources, azure.cosmos.auth.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote

from outbox_relay.emulators.cosmos.errors import Unauthorized

EMULATOR_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
"""The key that Microsoft publishes for its emulator: no secret."""


class Authorization:
    """Checks signatures made with one key."""

    def __init__(self, key: str) -> None:
        """`key` is in base64, as in a connection string. Raises ValueError if it is not."""
        try:
            self._key = base64.b64decode(key, validate=True)
        except ValueError as error:
            raise ValueError(f"The account key must be base64: {error}.") from error

    def check(self, method: str, resource_type: str, resource: str, headers: Mapping[str, str]) -> None:
        """Raise Unauthorized unless `authorization` signs this method on this resource (its path, or its rid)."""
        given = headers.get("authorization")
        if not given:
            raise Unauthorized(
                "Required Header authorization is missing. Ensure a valid Authorization token is passed."
            )
        fields = parse_qs(unquote(given).replace("+", "%2B"))
        if fields.get("type") != ["master"]:
            raise Unauthorized("Only authorization tokens of type master are served by this account.")
        signature = fields.get("sig", [""])[0]
        dates = f"{headers.get('x-ms-date', '').lower()}\n{headers.get('date', '').lower()}\n"
        payloads = [
            f"{method.lower()}\n{resource_type}\n{link}\n{dates}"
            for link in dict.fromkeys((resource, resource.rpartition("/")[2].lower()))
        ]
        if not any(hmac.compare_digest(self._sign(payload), signature.encode()) for payload in payloads):
            raise Unauthorized(
                "The input authorization token can't serve the request. The wrong key is being used or the "
                "expected payload is not built as per the protocol. For more info: "
                "https://aka.ms/cosmosdb-tsg-unauthorized. Server used the following payload to sign: "
                f"{payloads[0]!r}."
            )

    def _sign(self, payload: str) -> bytes:
        return base64.b64encode(hmac.digest(self._key, payload.encode(), "sha256"))
