"""The contact service's API as the Functions worker calls it, on the local Cosmos DB."""

from __future__ import annotations

import importlib.util
import json
from types import SimpleNamespace
from typing import Any

import azure.functions as func
import pytest

from outbox_emulators.cosmos.server import CosmosServer
from samples.contacts.api import create_app
from tests.integration.conftest import ROOT

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
