"""The checks of languages/cosmos: Microsoft's Cosmos DB client for JavaScript against the emulator.

One process of Node runs them all, against one emulator; each is a test here.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from outbox_emulators.cosmos.server import CosmosServer

FOLDER = Path(__file__).parent
PROGRAM = FOLDER / "cosmos" / "main.mjs"
_FEWEST = 60
_WITHIN_S = 240.0
NAMES = [
    name
    for file in sorted(PROGRAM.parent.glob("*.mjs"))
    for name in re.findall(r'^check\("(.+?)", ', file.read_text(encoding="utf-8"), re.MULTILINE)
]

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("javascript-cosmos"),
    # The first test waits for all checks, on a machine that may be busy with others.
    pytest.mark.timeout(_WITHIN_S + 20),
]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the process printed: by check its error, None where it passed; and the rest of its output."""

    errors: dict[str, str | None]
    rest: str


def _missing() -> str | None:
    """Why the checks cannot be run here; in CI nothing may be missing while npm's registry can be reached."""
    if os.environ.get("CI") == "true" and "NPM_UNREACHABLE" not in os.environ:
        return None
    if shutil.which("node") is None:
        return "Node is not installed"
    if not (FOLDER / "node_modules" / "@azure" / "cosmos").exists():
        return "make languages has not installed @azure/cosmos"
    return None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes() -> AsyncIterator[Outcomes]:
    if reason := _missing():
        pytest.skip(reason)
    async with CosmosServer() as server:
        yield await _run(server)


async def _run(server: CosmosServer) -> Outcomes:
    process = await asyncio.create_subprocess_exec(
        *("node", "--no-deprecation", PROGRAM),
        env={"PATH": os.environ["PATH"], "COSMOS": server.connection_string},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), _WITHIN_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = printed.decode().splitlines()
    results = [json.loads(line) for line in lines if line.startswith('{"check":')]
    rest = [line for line in lines if not line.startswith('{"check":')]
    return Outcomes({result["check"]: result["error"] for result in results}, "\n".join(rest))


@pytest.mark.parametrize("name", NAMES)
async def test_the_javascript_client_finds_that(outcomes: Outcomes, name: str) -> None:
    assert name in outcomes.errors, f"the check was not run: {outcomes.rest}"
    error = outcomes.errors[name]
    assert error is None, error


async def test_every_check_is_a_test_and_they_are_many(outcomes: Outcomes) -> None:
    assert [name for name, count in Counter(NAMES).items() if count > 1] == []
    assert outcomes.errors.keys() == set(NAMES)
    assert len(NAMES) >= _FEWEST
