"""Provisioned throughput: stored and returned as by the service, but never enforced.

Source: https://learn.microsoft.com/rest/api/cosmos-db/offers.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outbox_relay.emulators.cosmos.clock import Clock
from outbox_relay.emulators.cosmos.documents import resource_id
from outbox_relay.emulators.cosmos.errors import BadRequest, NotFound
from outbox_relay.emulators.cosmos.storage import Storage

LEAST_RU = 400
RU_PER_PARTITION = 10_000
"""Maximum of a physical partition (https://learn.microsoft.com/azure/cosmos-db/partitioning-overview)."""

# A new container starts with a physical partition for each 6 000 RU/s of manual throughput, or 10 000 of autoscale
# (https://learn.microsoft.com/azure/cosmos-db/scaling-provisioned-throughput-best-practices, "Step 3").
_MANUAL_START = 0.6

_STEP_RU = 100
_AUTOSCALE_STEP_RU = 1000
_DEFAULT_RU = 400


@dataclass(frozen=True, slots=True)
class Throughput:
    """Request units per second: a fixed number, or the upper end of autoscale."""

    fixed: int
    autoscale_maximum: int | None = None
    autoscale_policy: Mapping[str, Any] | None = None

    @classmethod
    def default(cls) -> Throughput:
        """Return the throughput of a container that is created without any."""
        return cls(_DEFAULT_RU)

    @classmethod
    def requested(cls, headers: Mapping[str, str]) -> Throughput | None:
        """Return the throughput that the creation of a database or container requests, or None.

        Raises BadRequest.
        """
        fixed, autoscale = (
            headers.get("x-ms-offer-throughput"),
            headers.get("x-ms-cosmos-offer-autopilot-settings"),
        )
        if autoscale is not None:
            return cls._of_autoscale(_object(autoscale))
        return None if fixed is None else cls._of_fixed(fixed)

    @classmethod
    def of_content(cls, content: object) -> Throughput:
        """Read an offer's `content`. Raises BadRequest."""
        if not isinstance(content, dict):
            raise BadRequest("The offer's content has to be a JSON object.")
        if settings := content.get("offerAutopilotSettings"):
            return cls._of_autoscale(settings)
        return cls._of_fixed(content.get("offerThroughput"))

    @classmethod
    def _of_fixed(cls, value: Any) -> Throughput:
        ru = _whole_number(value)
        if ru < LEAST_RU:
            raise BadRequest(f"Requested throughput {ru} is less than required minimum throughput {LEAST_RU}.")
        if ru % _STEP_RU:
            raise BadRequest(f"The offer throughput {ru} is invalid: it has to be a multiple of {_STEP_RU}.")
        return cls(ru)

    @classmethod
    def _of_autoscale(cls, settings: object) -> Throughput:
        if not isinstance(settings, dict):
            raise BadRequest("The autoscale settings of an offer have to be a JSON object.")
        maximum = _whole_number(settings.get("maxThroughput"))
        if maximum < _AUTOSCALE_STEP_RU:
            raise BadRequest(
                f"Requested throughput {maximum} is less than required minimum throughput {_AUTOSCALE_STEP_RU}."
            )
        if maximum % _AUTOSCALE_STEP_RU:
            raise BadRequest(
                f"The autoscale maximum throughput {maximum} is invalid: it has to be a multiple of "
                f"{_AUTOSCALE_STEP_RU}."
            )
        return cls(maximum // 10, maximum, settings.get("autoUpgradePolicy"))

    def partitions(self, ru_per_partition: int) -> int:
        """Return the number of physical partitions that this throughput needs."""
        return math.ceil((self.autoscale_maximum or self.fixed) / ru_per_partition)

    def initial_partitions(self, ru_per_partition: int) -> int:
        """Return the number of physical partitions of a new container with this throughput."""
        if self.autoscale_maximum is not None:
            return self.partitions(ru_per_partition)
        return math.ceil(self.fixed / (ru_per_partition * _MANUAL_START))

    def as_content(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "offerThroughput": self.fixed,
            "offerIsRUPerMinuteThroughputEnabled": False,
            "offerMinimumThroughputParameters": {"maxThroughputEverProvisioned": self.fixed},
        }
        if self.autoscale_maximum is not None:
            settings: dict[str, Any] = {"tier": 0, "maximumTierThroughput": 0, "autoUpgrade": False}
            settings["maxThroughput"] = self.autoscale_maximum
            if self.autoscale_policy is not None:
                settings["autoUpgradePolicy"] = self.autoscale_policy
            content["offerAutopilotSettings"] = settings
        return content


class Offers:
    """The offers of an account, by the resource each is for."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    def create(self, resource_rid: str, resource_link: str, throughput: Throughput) -> None:
        content = throughput.as_content()
        self._storage.execute(
            "INSERT INTO offers(id, resource, resource_rid, ts, version, content) VALUES(?, ?, ?, ?, 0, ?)",
            (_new_id(), resource_link, resource_rid, self._clock.seconds(), json.dumps(content)),
        )

    def forget(self, resource_link: str) -> None:
        self._storage.execute("DELETE FROM offers WHERE resource=?", (resource_link,))

    def of(self, resource_link: str) -> dict[str, Any] | None:
        return next((offer for offer in self.all() if offer["resource"] == resource_link), None)

    def by_id(self, offer_id: str) -> dict[str, Any]:
        """Return the offer with this id. Raises NotFound."""
        for offer in self.all():
            if offer["id"].lower() == offer_id.lower():
                return offer
        raise NotFound()

    def replace(self, offer_id: str, throughput: Throughput) -> dict[str, Any]:
        """Replace the throughput of an offer. Raises NotFound."""
        offer = self.by_id(offer_id)
        self._storage.execute(
            "UPDATE offers SET content=?, ts=?, version=version+1 WHERE id=?",
            (json.dumps(throughput.as_content()), self._clock.seconds(), offer["id"]),
        )
        return self.by_id(offer_id)

    def all(self) -> list[dict[str, Any]]:
        rows = self._storage.execute(
            "SELECT id, resource, resource_rid, ts, version, content FROM offers ORDER BY rowid"
        )
        return [_rendered(*row) for row in rows]


def _rendered(
    offer_id: str, resource: str, resource_rid: str, ts: int, version: int, content: str
) -> dict[str, Any]:
    return {
        "resource": resource,
        "offerType": "Invalid",
        "offerResourceId": resource_rid,
        "offerVersion": "V2",
        "content": json.loads(content),
        "id": offer_id,
        "_rid": offer_id,
        "_self": f"offers/{offer_id}/",
        "_etag": f'"{version:08x}-0000-0000-0000-{ts:08x}0000"',
        "_ts": ts,
    }


def _new_id() -> str:
    return resource_id(secrets.token_bytes(3))


def _whole_number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"The throughput '{value}' is not a number.") from error


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The autoscale settings are not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise BadRequest("The autoscale settings have to be a JSON object.")
    return value
