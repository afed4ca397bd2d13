"""An operator of the wire's world: the commands, on the relay's own clients."""

from __future__ import annotations

import os

from relay.config.settings import Settings
from relay.quarantine.items import Items
from relay_operator.backends.backend import open_backend
from relay_operator.cli.quarantine_admin import QuarantineAdmin
from relay_operator.cli.release import Release
from relay_operator.cli.sender import ordered_sender
from verification.simulation.operators import BaseOperator
from verification.simulation.wire.services import Services


class Operator(BaseOperator):
    """An operator who connects to the same services as the app."""

    # Each virtual second costs the requests of all hosts.
    pauses_s = (20.0, 60.0)
    patience_s = 240.0

    def __init__(self, services: Services, number: int) -> None:
        super().__init__(services, number)
        self._backend = open_backend(Settings.from_environment({**os.environ, **services.settings()}))

    def _items(self) -> Items:
        return self._backend.open_store()

    async def _release(self, records: QuarantineAdmin, key: str) -> Release:
        outbox = self._backend.open_outbox()
        try:
            async with ordered_sender(self._backend.settings) as sender:
                release = Release(records, sender, outbox, self._backend)
                await release.release_parked(key, None)
                return release
        finally:
            await outbox.close()
