"""Shared access signatures: the tokens clients put before they may use an entity.

The format and its signature are those of "Service Bus access control with Shared Access Signatures"
(learn.microsoft.com); the error descriptions are those of the service.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import unquote_plus

from outbox_relay.emulators.servicebus.authorization import AuthorizationRule, Right
from outbox_relay.emulators.servicebus.errors import Unauthorized
from outbox_relay.emulators.servicebus.namespace import path_of

KEY_NAME = "RootManageSharedAccessKey"
DEFAULT_KEY = "bG9jYWwgc2VydmljZSBidXMga2V5LCBub3QgYSBzZWNyZXQ="

_NO_EXPIRY_S = 2**40
_PREFIX = "SharedAccessSignature "

RulesOf = Callable[[str], Iterable[tuple[str, AuthorizationRule]]]
"""Returns the rules that apply to a path, each with the path of the entity that has it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Rights to a path and all below it, until a moment in seconds since the epoch."""

    path: str
    expires_s: int
    rights: Right = Right.ANY

    def covers(self, path: str) -> bool:
        wanted, own = path.lower(), self.path.lower()
        return not own or wanted == own or wanted.startswith(own + "/")


class Claims:
    """The tokens that a client has put on one connection."""

    def __init__(self, now_s: Callable[[], float], address: Callable[[str], str]) -> None:
        """`address` returns the full address of a path."""
        self._now_s = now_s
        self._address = address
        self._by_path: dict[str, Claim] = {}

    def put(self, path: str, claim: Claim) -> None:
        """Add a token, or renew the one that was put for this path."""
        self._by_path[path.lower()] = claim

    def check(self, path: str, needed: Right) -> None:
        """Raise Unauthorized unless a valid token with one of the rights was put for this path."""
        now = self._now_s()
        found = (claim for claim in self._by_path.values() if claim.covers(path) and claim.expires_s > now)
        if not any(claim.rights & needed for claim in found):
            raise Unauthorized(
                f"Unauthorized access. '{','.join(needed.names)}' claim(s) are required to perform this "
                f"operation. Resource: '{self._address(path)}'."
            )


_MOMENT = re.compile(r"[0-9]{1,11}")
"""Seconds since 1970, up to the year 5138."""


class SharedAccess:
    """Checks tokens against the keys of the namespace and its entities."""

    def __init__(self, rules_of: RulesOf, now_s: Callable[[], float]) -> None:
        self._rules_of = rules_of
        self._now_s = now_s

    def check(self, token: str, audience: str) -> Claim:
        """Return what a token grants. Raises Unauthorized: malformed, forged, expired or for another path."""
        fields = self._parse(token)
        path = _resource(unquote_plus(fields["sr"]))
        rule = self._signer(fields, path)
        expires = int(fields["se"])
        if expires <= self._now_s():
            moment = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
            raise Unauthorized(f"ExpiredToken: The token is expired. Expiration time: '{moment}'.")
        claim = Claim(path, expires, rule.rights)
        if not claim.covers(path_of(audience)):
            raise Unauthorized("InvalidAudience: The authorization header contains a token with a wrong audience.")
        return claim

    def check_key(self, name: str, key: str, paths: Iterable[str]) -> list[Claim]:
        """Return what a rule's name and key grant by themselves. Raises Unauthorized.

        `paths` are those of the queues and topics, whose own rules count for them alone.
        """
        found = {
            owner: Claim(owner, _NO_EXPIRY_S, rule.rights)
            for path in ("", *paths)
            for owner, rule in self._rules_of(path)
            if rule.name == name and any(hmac.compare_digest(key.encode(), own.encode()) for own in rule.keys)
        }
        if not found:
            raise Unauthorized("InvalidSignature: The name or the key of the authorization rule is wrong.")
        return list(found.values())

    def _signer(self, fields: dict[str, str], path: str) -> AuthorizationRule:
        signature, name = unquote_plus(fields["sig"]).encode(), unquote_plus(fields["skn"])
        signed = f"{fields['sr']}\n{fields['se']}".encode()
        for _, rule in self._rules_of(path):
            if rule.name == name and any(hmac.compare_digest(signature, _sign(key, signed)) for key in rule.keys):
                return rule
        raise Unauthorized("InvalidSignature: The token has an invalid signature.")

    @staticmethod
    def _parse(token: str) -> dict[str, str]:
        if token.startswith(_PREFIX):
            pairs = (pair.split("=", 1) for pair in token[len(_PREFIX) :].split("&"))
            fields = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
            if fields.keys() >= {"sr", "sig", "se", "skn"} and _MOMENT.fullmatch(fields["se"]):
                return fields
        raise Unauthorized("MalformedToken: The token is no shared access signature.")


def _sign(key: str, signed: bytes) -> bytes:
    return b64encode(hmac.digest(key.encode(), signed, sha256))


def _resource(text: str) -> str:
    """Return the path of what a token is for. @azure/service-bus 7.9.5 names a namespace by its host alone."""
    return path_of(text if "://" in text else f"sb://{text}")
