"""The same seed gives the same journal, byte for byte, whatever the process and whatever ran before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import runner
from tests.support.pages import ROOT

SIZES = ("--events", "60", "--faults", "12")
# A universe of the wire takes as long as ten of the others.
SIZES_OF_THE_WIRE = ("--events", "20", "--faults", "4")


def journal(kind: str, seed: int, folder: Path, hashing: str, *, first: int | None = None) -> bytes:
    """The journal of a universe from a process of its own, perhaps behind others."""
    path = folder / f"{hashing}-{first}"
    begin = seed if first is None else first
    sizes = SIZES_OF_THE_WIRE if kind == "wire" else SIZES
    command = [sys.executable, "-m", "simulation", "--kinds", kind, "--seed", str(begin), *sizes]
    done = subprocess.run(
        [
            *command,
            *(SIZES_OF_THE_WIRE if kind == "wire" else SIZES),
            "--runs",
            str(seed - begin + 1),
            "--journal",
            str(path),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hashing},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return path.read_bytes()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", runner.KINDS)
def test_a_seed_gives_the_same_journal_in_every_process(kind: str, tmp_path: Path) -> None:
    one = journal(kind, 7, tmp_path, "1")

    assert one.count(b"\n") > 40
    assert journal(kind, 7, tmp_path, "2", first=6) == one
