"""The contacts API as a function app, and its requests and responses against its own document."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import azure.functions as func
import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig

from local.stack.environment import CONTAINERS, container_argument
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from samples.contacts.api import create_app
from samples.contacts.stores import open_contacts
from tests.integration.conftest import ROOT
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

# A request may be valid by the schema and name a version or a contact that does not exist.
CHECKS = {
    "positive_data_acceptance": {"expected-statuses": ["2xx", "304", "404", "409", "412", "428"]},
    "negative_data_rejection": {"expected-statuses": ["400", "404", "405", "412", "428"]},
}
# A schema cannot express which continuations are valid.
LISTING = {
    "include-path": "/contacts",
    "include-method": "GET",
    "checks": {"positive_data_acceptance": {"enabled": False}},
}
document = create_app().openapi()
all_requests = schemathesis.openapi.from_dict(
    document, config=SchemathesisConfig.from_dict({"checks": CHECKS, "operations": [LISTING]})
)
valid_requests = schemathesis.openapi.from_dict(
    document,
    config=SchemathesisConfig.from_dict({"checks": CHECKS, "generation": {"mode": "positive"}}),
)


class Service:
    """The API under uvicorn with its own Cosmos DB, on the event loop of another thread."""

    def __init__(self) -> None:
        self.address = ""
        self.contact_id = ""
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Service:
        self._thread.start()
        assert self._ready.wait(WATCHDOG_S)
        person = {"name": {"firstName": "J", "lastName": "D"}, "email": "a@b", "company": {"companyName": "C"}}
        self.contact_id = httpx.post(f"{self.address}/contacts", json=person).json()["id"]
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join(WATCHDOG_S)

    async def _serve(self) -> None:
        async with CosmosServer() as cosmos:
            provision(cosmos.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
            app = create_app(lambda: open_contacts({"COSMOS": cosmos.connection_string}))
            with socket.create_server(("127.0.0.1", 0)) as listening:
                self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
                self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
                # A connection made before the server has started waits in the backlog of the socket.
                self._ready.set()
                await self._server.serve(sockets=[listening])


@pytest.fixture
def service() -> Iterator[Service]:
    """Run the API for one test: its threads and connections end with it."""
    with Service() as running:
        yield running


@all_requests.parametrize()
@settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_response_conforms_to_the_document(case: schemathesis.Case[Any], service: Service) -> None:
    case.call_and_validate(base_url=service.address)


@valid_requests.include(path_regex="contact_id").exclude(method="DELETE").parametrize()
@settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_valid_requests_for_an_existing_contact_conform_to_the_document(
    case: schemathesis.Case[Any], service: Service
) -> None:
    case.path_parameters["contact_id"] = service.contact_id
    if case.method != "GET":
        case.headers["if-match"] = "*"
    case.call_and_validate(base_url=service.address)


def test_each_generated_test_has_a_node_id_of_its_own(request: pytest.FixtureRequest) -> None:
    """Under pytest-xdist, those that share one would not run."""
    ids = [item.nodeid for item in request.session.items if item.path == request.path]

    assert len(ids) == len(set(ids))


# The contact service's API as the Functions worker calls it, on the local Cosmos DB


PERSON = {
    "name": {"firstName": "John", "lastName": "Doe"},
    "email": "johndoe@contoso.com",
    "company": {"companyName": "Contoso"},
}


async def test_the_api_works_as_a_function_app(cosmos: CosmosServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSMOS", cosmos.connection_string)
    monkeypatch.setattr("samples.contacts.api.app", create_app())
    path = ROOT / "samples" / "contacts" / "functions_api" / "function_app.py"
    spec = importlib.util.spec_from_file_location("function_app_of_the_api", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (function,) = module.app.get_functions()

    async def call(method: str, path: str, body: Any = None, **headers: str) -> func.HttpResponse:
        request = func.HttpRequest(
            method=method,
            url=f"https://contacts.example{path}",
            headers={"content-type": "application/json", **headers},
            body=b"" if body is None else json.dumps(body).encode(),
        )
        response: func.HttpResponse = await function.get_user_function()(request, SimpleNamespace())
        return response

    try:
        made = await call("POST", "/contacts", PERSON)
        location = made.headers["Location"]
        changed = await call("PUT", f"{location}/email", {"email": "a@b"}, **{"If-Match": made.headers["ETag"]})
        refused = await call("PUT", f"{location}/email", {"email": "c@d"}, **{"If-Match": made.headers["ETag"]})
    finally:
        await module.app.middleware.notify_shutdown()
        module.app.startup_task_done = False

    assert made.status_code == 201
    assert (changed.status_code, json.loads(changed.get_body())["email"]) == (200, "a@b")
    assert (refused.status_code, refused.mimetype) == (412, "application/problem+json")
