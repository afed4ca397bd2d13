"""Records behaviours of the specifications: `python -m tests.unit.journal.record_traces [MODULE …]`.

TLC writes them: some of worlds in which everything holds, drawn from a seed, and each control's counterexample.
It takes some minutes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path

from verification.spec.__main__ import check
from verification.spec.runs import CONTROLS, FOLDER, Run

TRACES = Path(__file__).parent / "traces"
RECORDED_OF = TRACES / "specifications.json"
"""The digest of each specification when its behaviours were recorded."""
MODULES = ("Relay", "Feed", "Claims")
_RELAY = ("InFirst", "Commits", "Window", "MaxTime", "MaxFaults", "First", "Last")
_FEED = ("Generation", "Count", "Writers", "Old", "Page", "Anyway", "Elsewhere")
_CLAIMS = ("Commits", "Window", "MaxFaults")
SIMULATED = (
    *(
        Run("Relay", dict(zip(_RELAY, sizes, strict=True)))
        for sizes in ((2, 1, 2, 4, 3, 1, 2), (2, 2, 2, 3, 3, 1, 4))
    ),
    *(
        Run("Feed", dict(zip(_FEED, sizes, strict=True)))
        for sizes in ((1, 2, 4, 0, 1, 0, 0), (2, 2, 2, 2, 2, 1, 0))
    ),
    Run("Claims", dict(zip(_CLAIMS, (3, 10, 3), strict=True))),
)
"""Larger worlds than those of which `make spec` visits every state."""
_BEHAVIOURS, _DEPTH, _SEED = 40, 60, 7
_COMMENT = re.compile(r"\\\*[^\n]*|\(\*.*?\*\)", re.DOTALL)


def trace_of(run: Run) -> Path:
    """Where the behaviours are of a world, or the counterexample of it without one of its parts."""
    world = "-".join(map(str, run.sizes.values()))
    return TRACES / f"{run.module}-{run.without or world}.txt.gz"


def digest_of_specification(module: str) -> str:
    """Differs if a specification says something else; comments and spaces do not count."""
    text = _COMMENT.sub("", (FOLDER / f"{module}.tla").read_text(encoding="utf-8"))
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def _counterexample(run: Run) -> str:
    output = check(run)
    return output[output.index("\nState 1:") :]


def _behaviours(run: Run) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = f"file={folder}/trace,num={_BEHAVIOURS}"
        check(run, "-seed", str(_SEED), "-depth", str(_DEPTH), "-simulate", file)
        return "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(folder).glob("trace_*")))


def main(chosen: list[str]) -> None:
    """Record those of these specifications, or of all."""
    modules = [module for module in MODULES if not chosen or module in chosen]
    for run in (*SIMULATED, *CONTROLS):
        if run.module in modules:
            text = _counterexample(run) if run.without else _behaviours(run)
            trace_of(run).write_bytes(gzip.compress(text.encode(), mtime=0))
            print(trace_of(run).name, flush=True)
    known = json.loads(RECORDED_OF.read_text(encoding="utf-8")) if RECORDED_OF.exists() else {}
    known |= {module: digest_of_specification(module) for module in modules}
    RECORDED_OF.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
