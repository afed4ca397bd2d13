"""Child processes: their start, their end, and what errors say about them."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from local.stack import parts
from local.stack.parts import Part, PartFailed, output_of

SERVES = """
import sys
print("starting", flush=True)
print('READY {"port": 7}', flush=True)
for line in sys.stdin:
    print("got " + line, end="", flush=True)
"""
IGNORES_THE_END_OF_INPUT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print('READY {"child": %d}' % child.pid, flush=True)
time.sleep(60)
"""
FAILS = """
import sys
sys.exit("the port is in use")
"""
NEVER_READY = """
import time
time.sleep(60)
"""


async def start(folder: Path, source: str) -> Part:
    (folder / "made_up_part.py").write_text(source)
    path = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    return await Part.start("some part", "made_up_part", log=folder / "logs" / "part.log", environment=path)


async def test_a_part_is_started_when_it_is_ready_and_stops_when_its_input_closes(tmp_path: Path) -> None:
    part = await start(tmp_path, SERVES)
    part.send_line("a line")

    assert part.details == {"port": 7}
    assert await part.output.readline() == b"got a line\n"
    assert not part.ended

    await part.stop()

    assert part.ended
    assert await part.wait() == 0


async def test_a_part_that_does_not_stop_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "STOP_TIMEOUT_S", 0.2)
    part = await start(tmp_path, IGNORES_THE_END_OF_INPUT)
    child = psutil.Process(part.details["child"])

    await part.stop()

    assert part.ended
    _, alive = psutil.wait_procs([child], timeout=10)
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


async def test_a_part_that_ends_before_it_is_ready_is_an_error_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(PartFailed, match=r"(?s)some part ended with exit code 1 .*the port is in use"):
        await start(tmp_path, FAILS)


async def test_a_part_that_is_not_ready_in_time_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "START_TIMEOUT_S", 0.2)

    with pytest.raises(PartFailed, match="some part was not ready within"):
        await start(tmp_path, NEVER_READY)

    assert not [each for each in psutil.Process().children() if "made_up_part" in " ".join(each.cmdline())]


async def test_the_output_of_a_command_is_returned_and_its_failure_raised() -> None:
    assert await output_of("-c", "print(6 * 7)", within_s=30) == "42\n"

    with pytest.raises(RuntimeError, match="division by zero"):
        await output_of("-c", "1 / 0", within_s=30)
