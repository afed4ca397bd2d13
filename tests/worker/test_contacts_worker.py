"""The contact service's function apps on the platform's own worker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.test_worker import ROOT, index_app

pytest.importorskip("azure_functions_runtime")

SAMPLE = ROOT / "samples" / "contacts"


@pytest.fixture(autouse=True)
def fresh_app() -> Iterator[None]:
    """Each test imports a function_app.py of its own."""
    sys.modules.pop("function_app", None)
    yield
    sys.modules.pop("function_app", None)


async def only_binding(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> dict[str, Any]:
    """The trigger of the one function that the worker finds in a folder."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(folder))
    (function,) = await index_app(folder)
    bindings: list[dict[str, Any]] = [json.loads(raw) for raw in function.raw_bindings]
    return next(binding for binding in bindings if binding["type"] == kind)


async def test_the_worker_indexes_the_consumer_with_its_trigger_and_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trigger = await only_binding(SAMPLE / "functions_consumer", monkeypatch, "serviceBusTrigger")

    assert trigger["isSessionsEnabled"] is True
    assert trigger["topicName"] == "%SERVICEBUS_TOPIC%"


async def test_the_worker_indexes_the_api_with_its_route(monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = await only_binding(SAMPLE / "functions_api", monkeypatch, "httpTrigger")

    assert trigger["route"] == "/{*route}"
