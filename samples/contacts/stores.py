"""Where contacts are stored, as the settings say: a database by SQL, or else a container by COSMOS."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from outbox_relay.outbox import UnitOfWork
from samples.contacts.service import Contacts
from samples.contacts.settings import Connection, SettingMissing, open_container


def check_settings(environment: Mapping[str, str] = os.environ) -> None:
    """Raise SettingMissing if neither SQL nor COSMOS is set."""
    if environment.get("SQL"):
        return
    try:
        Connection.named("COSMOS", "accountEndpoint", environment)
    except SettingMissing as missing:
        raise SettingMissing(f"{missing} Or set SQL to the URL of a PostgreSQL database.") from missing


@asynccontextmanager
async def open_contacts(environment: Mapping[str, str] = os.environ) -> AsyncGenerator[Contacts]:
    """Open the store. Raises SettingMissing if neither SQL nor COSMOS is set."""
    check_settings(environment)
    if environment.get("SQL"):
        # Only then does it need SQLAlchemy.
        from samples.contacts.sql import open_sql

        async with open_sql(environment) as begin:
            yield Contacts(begin)
    else:
        async with open_container(environment) as container:
            yield Contacts(partial(UnitOfWork, container))
