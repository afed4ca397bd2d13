"""The relay, as function_app.py makes and calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from azure.functions import DocumentList

from bench.documents import Source, Workload
from relay.assembly import assemble
from relay.settings import Settings


class TheRelay:
    """`Relay.handle` on decoded documents, as the trigger passes them."""

    name = "relay"

    def __init__(self, environment: Mapping[str, str], warm_up: Source) -> None:
        self._settings = Settings.from_environment(environment)
        self._relay = assemble(self._settings)
        self._warm_up = warm_up
        self._prepared: Sequence[DocumentList] = ()

    async def open(self) -> None:
        # As many keys as senders, so that every sender is used and opens its link.
        (documents,) = self._warm_up.invocations(Workload(keys=self._settings.senders or 32, per_key=1), 1)
        await self._relay.handle(documents, "warm-up")

    async def prepare(self, invocations: Sequence[DocumentList]) -> None:
        self._prepared = invocations

    async def run(self) -> int:
        return sum([await self.handle(documents) for documents in self._prepared])

    async def handle(self, documents: DocumentList) -> int:
        """One invocation; returns the number of sends."""
        return (await self._relay.handle(documents, "bench")).sends

    async def close(self) -> None:
        await self._relay.close()
