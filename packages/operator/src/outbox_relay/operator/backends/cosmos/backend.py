"""The operators' side of an outbox in Cosmos DB: read, check and scan it, and write a canary."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from outbox_relay.operator.backends.cosmos import check, reader, scan
from outbox_relay.operator.backends.rules import stored_rules
from outbox_relay.operator.backends.scans import Scan
from outbox_relay.operator.backends.wording import Wording
from relay.backends.canary import TTL_S
from relay.backends.cosmos import ages
from relay.backends.cosmos.backend import CosmosBackend
from relay.backends.findings import Finding
from relay.backends.outbox import Canary, NextPage, Outbox


class CosmosOperatorBackend(CosmosBackend):
    """An outbox in Cosmos DB (`outbox_relay.operator.backends.backend.OperatorBackend`)."""

    @property
    def wording(self) -> Wording:
        outbox = self.outbox
        prefix = f" whose ids begin with {outbox.lease_prefix!r}" if outbox.lease_prefix else ""
        return Wording(
            source=f"the container {outbox.container!r}",
            own=f"the leases in {outbox.lease_container!r}{prefix}, and the quarantine "
            f"{outbox.quarantine_container!r}",
            settings=f"COSMOS_CONTAINER '{outbox.container}'",
            runs="the function app runs, and what it logged for the last invocation (action relay_failed)",
            positions="leases",
            reads="uses this lease container",
            expiry=f", expires within {TTL_S} s",
        )

    def open_outbox(self, *, from_beginning: bool = True) -> Outbox:
        rules = stored_rules(self.settings, self.open_timelines)
        return reader.CosmosOutbox(self.settings, rules, from_beginning=from_beginning)

    def open_canary(self) -> AbstractAsyncContextManager[Canary]:
        return reader.open_canary(self.settings)

    async def waiting_since(self) -> int | None:
        return await ages.waiting_since(self.outbox)

    async def check(self) -> list[Finding]:
        return await check.check(self.settings)

    def check_pages(self, pages: Sequence[NextPage]) -> list[Finding]:
        return check.check_pages(pages, self.outbox.container)

    async def scan(self) -> Scan:
        return await scan.scan(self.settings)
