"""`make soak`, with few events: whether memory is flat can be told only after many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from local.soak.load import EVENTS_IN_BATCH
from local.stack.parts import ROOT
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

EVENTS = 10 * EVENTS_IN_BATCH
EVERY = 2 * EVENTS_IN_BATCH


def test_a_soak_counts_what_the_topic_holds(tmp_path: Path) -> None:
    arguments = ["--events", str(EVENTS), "--every", str(EVERY), "--receivers", "8", "--logs", str(tmp_path)]

    done = subprocess.run(
        [sys.executable, "-m", "local", "soak", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )

    summary = json.loads(done.stdout)
    assert (summary["events"], summary["missing"]) == (EVENTS, 0)
    assert len(summary["rss_mib"]) == EVENTS // EVERY
    assert done.returncode == (0 if summary["flat"] else 1)
