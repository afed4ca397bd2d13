"""Campaigns of faults, each a process: `python -m local chaos`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from local.stack.parts import ROOT, child_environment
from tests.support.watchdog import CAMPAIGN_S


async def campaign(folder: Path, *options: str, project: Path = ROOT) -> tuple[int | None, dict[str, Any], str]:
    """Run `python -m local chaos` of a project; its exit code, its summary and what it showed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "local", "chaos", "--logs", str(folder / "logs"), *options),
        cwd=project,
        env=child_environment(None, project),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), CAMPAIGN_S)
    assert output, errors.decode()
    return process.returncode, json.loads(output.decode().splitlines()[-1]), errors.decode()
