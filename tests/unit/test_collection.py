"""Every test that is collected runs: those that share a node id would not, under pytest-xdist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_generated_test_has_a_node_id_of_its_own() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/integration/test_contacts_schema.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )

    ids = [line for line in listed.stdout.splitlines() if "::" in line]
    assert len(ids) == len(set(ids)) > 10
