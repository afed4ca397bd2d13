"""The faults of the core's world."""

from __future__ import annotations

from simulation.faults import SUSPEND, Kinds

KINDS = Kinds(
    weights={
        "kill-worker": 4,
        "kill-worker-within": 6,
        "kill-host": 3,
        "freeze-worker": 3,
        SUSPEND: 3,
        "cut": 3,
        "down": 3,
        "lossy": 5,
        "slow": 2,
        "refuse-all": 2,
        "busy": 1,
        "skew": 2,
        "split": 2,
        "steal": 4,
        "busy-worker": 1,
    },
    services=("topic", "container", "leases", "store"),
    longest_s=45.0,
    suspended_s=1500.0,
)
