"""The API keeps what its OpenAPI document promises: schemathesis draws requests from it, judges the answers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig

from local.stack.environment import CONTAINERS, container_argument
from outbox_emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_emulators.cosmos.server import CosmosServer
from samples.contacts.api import create_app
from samples.contacts.settings import open_container

# A request can be sound by the schema, and name a version or a contact that is none.
CHECKS = {
    "positive_data_acceptance": {"expected-statuses": ["2xx", "304", "404", "409", "412", "428"]},
    "negative_data_rejection": {"expected-statuses": ["400", "404", "405", "412", "428"]},
}
# Which continuations there are cannot be said in a schema.
LISTING = {
    "include-path": "/contacts",
    "include-method": "GET",
    "checks": {"positive_data_acceptance": {"enabled": False}},
}
document = create_app().openapi()
anything = schemathesis.openapi.from_dict(
    document, config=SchemathesisConfig.from_dict({"checks": CHECKS, "operations": [LISTING]})
)
sound_requests = schemathesis.openapi.from_dict(
    document,
    config=SchemathesisConfig.from_dict({"checks": CHECKS, "generation": {"mode": "positive"}}),
)


class Service:
    """The API under uvicorn on a Cosmos DB of its own, on the loop of another thread."""

    def __init__(self) -> None:
        self.address = ""
        self.contact_id = ""
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Service:
        self._thread.start()
        assert self._ready.wait(20)
        person = {"name": {"firstName": "J", "lastName": "D"}, "email": "a@b", "company": {"companyName": "C"}}
        self.contact_id = httpx.post(f"{self.address}/contacts", json=person).json()["id"]
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join(20)

    async def _serve(self) -> None:
        async with CosmosServer() as cosmos:
            provision(cosmos.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
            app = create_app(lambda: open_container({"COSMOS": cosmos.connection_string}))
            with socket.create_server(("127.0.0.1", 0)) as listening:
                self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
                self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
                # Whoever connects before it has started waits in the socket's backlog.
                self._ready.set()
                await self._server.serve(sockets=[listening])


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as running:
        yield running


@anything.parametrize()
@settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_asked_is_answered_as_the_document_says(
    case: schemathesis.Case[Any], service: Service
) -> None:
    case.call_and_validate(base_url=service.address)


@sound_requests.include(path_regex="contact_id").exclude(method="DELETE").parametrize()
@settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_so_is_whatever_is_soundly_asked_of_a_contact_that_there_is(
    case: schemathesis.Case[Any], service: Service
) -> None:
    case.path_parameters["contact_id"] = service.contact_id
    if case.method != "GET":
        case.headers["if-match"] = "*"
    case.call_and_validate(base_url=service.address)
