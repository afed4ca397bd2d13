"""Child processes of the local stack."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from local.stack.parts import Part
from tests.support.watchdog import WATCHDOG_S


@pytest.mark.skipif(sys.platform == "win32", reason="it has no process groups to end the child with")
async def test_a_part_has_ended_though_its_child_goes_on_and_is_gone_when_both_are_killed(tmp_path: Path) -> None:
    part = await Part.start("it", "tests.support.outlived", log=tmp_path / "log")
    try:
        part.kill_alone()
        async with asyncio.timeout(WATCHDOG_S):
            assert await part.wait() != 0
    finally:
        await part.kill()
    assert part.output.at_eof()
