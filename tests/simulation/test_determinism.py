"""A seed gives the same universe, byte for byte, whatever the machine does and whatever ran before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.pages import ROOT
from verification.simulation import runner

SIZES = {"leases": ("400", "30"), "rules": ("400", "30"), "wire": ("20", "4")}
"""The numbers of events and faults: a history has few rounds, and a universe of the wire very many."""
OTHER_SIZES = ("60", "12")
QUICK = ("core",)
PLAIN = {"PYTHONHASHSEED": "1", "TZ": "UTC"}
OTHER = {"PYTHONHASHSEED": "2", "TZ": "Pacific/Kiritimati"}


def traced(kind: str, seed: int, file: Path, environment: dict[str, str], options: Sequence[str] = ()) -> bytes:
    """The trace and the journal of a universe, from a process of its own."""
    sizes = SIZES.get(kind, OTHER_SIZES)
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


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in runner.KINDS]
)
def test_a_seed_gives_the_same_universe_on_a_disturbed_machine(kind: str, tmp_path: Path) -> None:
    """Its clocks jump, other threads use them and draw, garbage is collected, strings have other hashes."""
    one = traced(kind, 7, tmp_path / "one", PLAIN)

    assert one.count(b"\n") > 400
    assert traced(kind, 7, tmp_path / "other", OTHER, ["--disturbed"]) == one
