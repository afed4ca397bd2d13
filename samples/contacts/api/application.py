"""The ASGI application: routes, problems, and the container they work on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from azure.cosmos.aio import ContainerProxy
from fastapi import FastAPI

from samples.contacts.api import openapi, problems, routes
from samples.contacts.service import Contacts
from samples.contacts.settings import open_container


def create_app(
    opened: Callable[[], AbstractAsyncContextManager[ContainerProxy]] = open_container,
) -> FastAPI:
    """The API on the container that `opened` gives, by default that of the settings COSMOS and so on; it is opened
    when the server starts, and closed when it stops.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened() as container:
            app.state.contacts = Contacts(container)
            yield

    app = FastAPI(
        title="Contacts",
        version="1.0.0",
        summary="Contacts, each change committed together with the event that tells of it.",
        lifespan=lifespan,
    )
    app.include_router(routes.router)
    problems.install(app, routes.router.routes)

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = openapi.describe(app)
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]  # the way FastAPI documents to extend the schema
    return app
