"""A seed gives the same universe, byte for byte, whatever the machine does and whatever ran before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from simulation import runner
from tests.support.pages import ROOT

SIZES = ("60", "12")
# A universe of the wire takes as long as ten of the others.
SIZES_OF_THE_WIRE = ("20", "4")
PLAIN = {"PYTHONHASHSEED": "1", "TZ": "UTC"}
OTHER = {"PYTHONHASHSEED": "2", "TZ": "Pacific/Kiritimati"}


def traced(kind: str, seed: int, file: Path, environment: dict[str, str], options: Sequence[str] = ()) -> bytes:
    """The trace and the journal of a universe, from a process of its own."""
    sizes = SIZES_OF_THE_WIRE if kind == "wire" else SIZES
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.traced", kind, str(seed), *sizes, str(file), *options],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return file.read_bytes()


@pytest.mark.parametrize("kind", runner.KINDS)
def test_a_seed_gives_the_same_universe_on_a_disturbed_machine(kind: str, tmp_path: Path) -> None:
    """Its clocks jump, other threads use them and draw, garbage is collected, strings have other hashes."""
    one = traced(kind, 7, tmp_path / "one", PLAIN)

    assert one.count(b"\n") > 400
    assert traced(kind, 7, tmp_path / "other", OTHER, ["--disturbed"]) == one
