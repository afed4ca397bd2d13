"""Simulated universes in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

_PROGRAM = """
import hashlib, sys
from simulation import runner
kind = runner.kind_named(sys.argv[1])
with runner.prepared():
    for seed in (int(sys.argv[2]) - 1, int(sys.argv[2])):
        result = runner.run(kind, kind.plan(seed))
print(hashlib.sha256(result.text().encode()).hexdigest())
"""


def digest_elsewhere(kind: str, seed: int, *, hash_seed: int) -> str:
    """The digest of a universe's journal in another process, which has run another universe before."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", _PROGRAM, kind, str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.strip()
