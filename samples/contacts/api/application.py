"""The ASGI application: routes, error handlers and the store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI

from samples.contacts.api import openapi, problems, routes
from samples.contacts.service import Contacts
from samples.contacts.stores import open_contacts


def create_app(
    connect: Callable[[], AbstractAsyncContextManager[Contacts]] = open_contacts,
) -> FastAPI:
    """Return the API. It opens the store with `connect` when the server starts and closes it when it stops."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        async with connect() as contacts:
            app.state.contacts = contacts
            yield

    app = FastAPI(
        title="Contacts",
        version="1.0.0",
        summary="Contacts. Each change is committed together with its event.",
        lifespan=lifespan,
    )
    app.include_router(routes.router)
    problems.add_exception_handlers(app, routes.router.routes)

    def custom_openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = openapi.document(app)
        return app.openapi_schema

    # https://fastapi.tiangolo.com/how-to/extending-openapi/
    app.openapi = custom_openapi  # type: ignore[method-assign]
    return app
