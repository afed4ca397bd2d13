"""Shared access signatures: the tokens clients put before they may use an entity.

The format and its signature are those of "Service Bus access control with Shared Access Signatures"
(learn.microsoft.com); the error descriptions are those of the service.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import unquote_plus

from outbox_emulators.servicebus.errors import Unauthorized
from outbox_emulators.servicebus.namespace import path_of

KEY_NAME = "RootManageSharedAccessKey"
DEFAULT_KEY = "bG9jYWwgc2VydmljZSBidXMga2V5LCBub3QgYSBzZWNyZXQ="

_NO_EXPIRY_S = 2**40
_PREFIX = "SharedAccessSignature "


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to a path and all below it, until a moment in seconds since the epoch."""

    path: str
    expires_s: int

    def covers(self, path: str) -> bool:
        wanted, own = path.lower(), self.path.lower()
        return not own or wanted == own or wanted.startswith(own + "/")


class Claims:
    """The tokens that a client has put on one connection."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._by_path: dict[str, Claim] = {}

    def put(self, path: str, claim: Claim) -> None:
        """Add a token, or renew the one that was put for this path."""
        self._by_path[path.lower()] = claim

    def check(self, path: str) -> None:
        """Raise Unauthorized unless a valid token was put for this path."""
        now = self._now_s()
        if not any(claim.covers(path) and claim.expires_s > now for claim in self._by_path.values()):
            raise Unauthorized(
                f"Unauthorized access. 'Send' or 'Listen' claim(s) are required to perform this operation. "
                f"Resource: '{path}'."
            )


class SharedAccess:
    """Checks tokens against the one key of the namespace."""

    def __init__(self, key: str, now_s: Callable[[], float], key_name: str = KEY_NAME) -> None:
        self._key = key
        self._key_name = key_name
        self._now_s = now_s

    def check(self, token: str, audience: str) -> Claim:
        """Return what a token grants. Raises Unauthorized: malformed, forged, expired or for another path."""
        fields = self._parse(token)
        expected = self._sign(fields["sr"], fields["se"])
        if unquote_plus(fields["skn"]) != self._key_name or not hmac.compare_digest(
            unquote_plus(fields["sig"]).encode(), expected
        ):
            raise Unauthorized("InvalidSignature: The token has an invalid signature.")
        expires = int(fields["se"])
        if expires <= self._now_s():
            moment = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
            raise Unauthorized(f"ExpiredToken: The token is expired. Expiration time: '{moment}'.")
        claim = Claim(path_of(unquote_plus(fields["sr"])), expires)
        if not claim.covers(path_of(audience)):
            raise Unauthorized("InvalidAudience: The authorization header contains a token with a wrong audience.")
        return claim

    def check_key(self, name: str, key: str) -> Claim:
        """Return what a rule's name and key grant by themselves. Raises Unauthorized."""
        right = hmac.compare_digest(key.encode(), self._key.encode())
        if name != self._key_name or not right:
            raise Unauthorized("InvalidSignature: The name or the key of the authorization rule is wrong.")
        return Claim("", _NO_EXPIRY_S)

    def _sign(self, resource: str, expiry: str) -> bytes:
        return b64encode(hmac.digest(self._key.encode(), f"{resource}\n{expiry}".encode(), sha256))

    @staticmethod
    def _parse(token: str) -> dict[str, str]:
        if token.startswith(_PREFIX):
            pairs = (pair.split("=", 1) for pair in token[len(_PREFIX) :].split("&"))
            fields = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
            if fields.keys() >= {"sr", "sig", "se", "skn"} and fields["se"].isdigit():
                return fields
        raise Unauthorized("MalformedToken: The token is no shared access signature.")
