"""Runs the checks of an SDK in another language in one process, and says what came of each."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.watchdog import WATCHDOG_S

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The output of the process: by check its error, None if it passed; and the rest."""

    errors: dict[str, str | None]
    rest: str

    def assert_passed(self, name: str) -> None:
        """Raise AssertionError unless the check of this name was run and passed."""
        assert name in self.errors, f"the check was not run: {self.rest}"
        error = self.errors[name]
        assert error is None, error

    def assert_complete(self, names: Sequence[str], fewest: int) -> None:
        """Raise AssertionError unless these names, each once and at least `fewest`, are those of all checks."""
        assert [name for name, count in Counter(names).items() if count > 1] == []
        assert self.errors.keys() == set(names)
        assert len(names) >= fewest


def names(service: str) -> list[str]:
    """The names of the checks in the folder of this service."""
    return [
        name
        for file in sorted((FOLDER / service).glob("*.mjs"))
        for name in re.findall(r'^check\("(.+?)", ', file.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def skip_without(*packages: str) -> None:
    """Skip where Node or a package is missing, but not in CI while npm's registry can be reached."""
    if os.environ.get("CI") == "true" and "NPM_UNREACHABLE" not in os.environ:
        return
    if shutil.which("node") is None:
        pytest.skip("Node is not installed")
    missing = [name for name in packages if not (FOLDER / "node_modules" / name).exists()]
    if missing:
        pytest.skip(f"make languages has not installed {', '.join(missing)}")


async def run(service: str, settings: Mapping[str, str]) -> Outcomes:
    """Run all checks of this service in Node with these environment variables."""
    return await run_command(["node", "--no-deprecation", str(FOLDER / service / "main.mjs")], settings)


async def run_command(command: Sequence[str], settings: Mapping[str, str]) -> Outcomes:
    """Run a program of checks with these environment variables.

    Raises:
        TimeoutError: It has not ended after WATCHDOG_S seconds.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        env={"PATH": os.environ["PATH"], **settings},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), WATCHDOG_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = printed.decode().splitlines()
    results = [json.loads(line) for line in lines if line.startswith('{"check":')]
    rest = [line for line in lines if not line.startswith('{"check":')]
    return Outcomes({result["check"]: result["error"] for result in results}, "\n".join(rest))
