"""Which of the relay's leases covers which part of the outbox container."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from relay.console.ports import Position
from relay.cosmos.effective_keys import EffectiveKeys
from relay.cosmos.leases import LeasePosition

_ETAG = re.compile(r'"?(?P<lsn>\d+)(?P<more>[^"]*)"?')


class Ranges:
    """The leases at one moment."""

    def __init__(self, leases: Sequence[LeasePosition], keys: EffectiveKeys) -> None:
        self._leases = leases
        self._keys = keys

    def positions(self) -> list[Position]:
        """How far each lease is."""
        return [
            Position(lease.token, lease.owner, _text(lease.continuation), _place(lease.continuation))
            for lease in self._leases
        ]

    def continuation(self, feed_range: Mapping[str, Any]) -> str | None:
        """The ETag behind which the relay has not read in a range yet; None where it has read nothing there."""
        found = [lease.continuation for lease in self._overlapping(feed_range)]
        if not found or None in found:
            return None
        return min(found, key=lambda etag: _lsn(etag) or 0)

    async def name(self, feed_range: Mapping[str, Any], partition_key: object) -> str:
        """The lease token of a document that was read in a range; the range itself where no lease covers it."""
        leases = self._overlapping(feed_range)
        if len(leases) > 1 and isinstance(partition_key, str):
            effective_key = await self._keys.of(partition_key)
            leases = [lease for lease in leases if effective_key and lease.covers(effective_key)]
        if leases:
            return leases[0].token
        bounds = feed_range["Range"]
        return f"{bounds['min'] or '0'}-{bounds['max']}"

    async def of_key(self, partition_key: str) -> str | None:
        """The lease token of a key; None where no lease covers it."""
        effective_key = await self._keys.of(partition_key)
        covering = (lease.token for lease in self._leases if effective_key and lease.covers(effective_key))
        return next(covering, None)

    def _overlapping(self, feed_range: Mapping[str, Any]) -> list[LeasePosition]:
        minimum, maximum = feed_range["Range"]["min"], feed_range["Range"]["max"]
        return [lease for lease in self._leases if lease.minimum < maximum and minimum < lease.maximum]


def _text(etag: str | None) -> str | None:
    return None if etag is None else etag.strip('"')


def _place(etag: str | None) -> tuple[int, int] | None:
    """Up to where everything is done. An ETag with more than an LSN may stand within that LSN's commit."""
    match = None if etag is None else _ETAG.fullmatch(etag)
    if match is None:
        return None
    lsn = int(match["lsn"])
    return (lsn - 1 if match["more"] else lsn), sys.maxsize


def _lsn(etag: str | None) -> int | None:
    place = _place(etag)
    return None if place is None else place[0]
