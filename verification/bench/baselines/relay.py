"""The relay, as function_app.py makes and calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from azure.functions import DocumentList

from relay.backends.cosmos.backend import CosmosBackend
from relay.config.settings import Settings
from verification.bench.baselines.sdk import SENDERS
from verification.bench.documents import Source, Workload


class TheRelay:
    """`Relay.handle` on decoded documents, as the trigger passes them."""

    name = "relay"

    def __init__(self, environment: Mapping[str, str], warm_up: Source) -> None:
        self._settings = Settings.from_environment(environment)
        self._relay = CosmosBackend(self._settings).relay
        self._warm_up = warm_up
        self._prepared: Sequence[DocumentList] = ()

    async def open(self) -> None:
        # As many keys as senders, so that each one of a pool is used and opens its link.
        keys = self._settings.servicebus.senders or SENDERS
        (documents,) = self._warm_up.invocations(Workload(keys=keys, per_key=1), 1)
        await self._relay.handle(documents, "warm-up")

    async def prepare(self, invocations: Sequence[DocumentList]) -> None:
        self._prepared = invocations

    async def run(self) -> int:
        return sum([(await self._relay.handle(documents, "bench")).sends for documents in self._prepared])

    async def close(self) -> None:
        await self._relay.close()
