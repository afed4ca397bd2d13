"""How much processor time a process has used."""

from __future__ import annotations

import subprocess
import sys

import psutil

from bench.testbed import processor_seconds

_BURNT_S = 0.3
_BURN = f"""
import sys, time
while time.process_time() < {_BURNT_S}:
    pass
print("done", flush=True)
sys.stdin.read()
"""
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_BURN!r}])"


def test_processor_time_is_counted_with_the_descendants_but_of_this_process_alone() -> None:
    own = psutil.Process()
    before = processor_seconds(own)
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "done\n"

        assert processor_seconds(psutil.Process(parent.pid)) >= _BURNT_S
        assert processor_seconds(own) - before < _BURNT_S
        parent.communicate("")
