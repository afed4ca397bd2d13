"""`python -m tests.support.outlived`: a part whose child has its pipes open, and outlives it."""

from __future__ import annotations

import subprocess
import sys

from outbox_relay.emulators.process import READY

if __name__ == "__main__":
    subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
    print(f"{READY}{{}}", flush=True)
    sys.stdin.read()
