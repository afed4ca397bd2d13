"""The schedule of faults: drawn from a seed, so that a failed campaign can be repeated."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

# The weight with which each kind is drawn, by where the fault is injected.
BROKER_KINDS = {
    "cut-before-transfer": 8,
    "cut-after-transfer": 10,
    "cut-mid-frame": 6,
    "delay-ack": 6,
    "server-busy": 6,
    "disable-entity": 3,
    "partition-unavailable": 4,
    "detach-link": 6,
    "refuse-token": 3,
    "cut-receiver": 4,
    "expire-locks": 4,
    "restart-broker": 2,
    "internal-error": 5,
    "reject-then-detach": 4,
    "refuse-content": 3,
    "shrink-limit": 4,
    "detach-idle": 4,
    "close-idle": 4,
}
COSMOS_KINDS = {"throttle": 6, "unavailable": 4, "timeout": 3, "gone": 2, "drop": 5, "drop-after": 5}
# Of the change feed alone, and of everything.
OUTAGE_KINDS = {"feed-outage": 2, "outage": 2}
PARTITION_KINDS = {"split-partition": 1, "merge-partitions": 1, "withhold-page": 2}
HOST_KINDS = {
    "kill-host": 4,
    "kill-machine": 2,
    "kill-worker": 4,
    "orphan-worker": 3,
    "freeze-host": 3,
    "stop-host": 3,
    "steal-lease": 5,
    "time-out-function": 2,
}
# Requests of other clients, which must not disturb the relay.
BYSTANDER_KINDS = {"oversized-properties": 1, "unknown-entity": 1}
READ_KINDS = {"read-ahead": 1}
# Of the workers of an SQL source; take-claim hands a shard over by force.
RELAY_KINDS = {"kill-relay": 6, "freeze-relay": 4, "stop-relay": 3, "take-claim": 5}
# kill-backend ends one connection's process with SIGKILL, at which PostgreSQL recovers as after a crash.
DATABASE_KINDS = {
    "kill-database": 3,
    "stop-database": 2,
    "kill-backend": 2,
    "terminate-readers": 5,
    "terminate-writers": 4,
    "hold-shard": 2,
    "step-clock-back": 4,
}
# What befalls the next commit of a writer.
WRITER_KINDS = {"long-transaction": 5, "kill-writer": 5, "lose-answer": 4, "roll-back": 3, "wrong-hint": 4}

KINDS = BROKER_KINDS | COSMOS_KINDS | OUTAGE_KINDS | PARTITION_KINDS | HOST_KINDS | BYSTANDER_KINDS | READ_KINDS
SQL_KINDS = BROKER_KINDS | RELAY_KINDS | DATABASE_KINDS | WRITER_KINDS | BYSTANDER_KINDS
ALL_KINDS = KINDS | SQL_KINDS

# Conditions that blame the content of a message.
_CONTENT = ("amqp:not-allowed", "amqp:decode-error", "com.microsoft:argument-error")
_TRANSIENT = ("amqp:internal-error", "com.microsoft:server-busy", "com.microsoft:timeout")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        after: The number of committed events at which it is injected.
        kind: One of ALL_KINDS.
        options: Its parameters, as the admin ports name them.
    """

    after: int
    kind: str
    options: dict[str, Any] = field(default_factory=dict)


def draw(seed: int, *, events: int, faults: int, among: Collection[str] = KINDS) -> list[Fault]:
    """`faults` faults of the kinds in `among`, spread over `events` events."""
    rng = random.Random(f"faults-{seed}")
    kinds = [kind for kind in ALL_KINDS if kind in among]
    weights = [ALL_KINDS[kind] for kind in kinds]
    # Each kind occurs once, if there are enough faults, before any is drawn at random.
    chosen = rng.sample(kinds, min(faults, len(kinds)))
    chosen += rng.choices(kinds, weights, k=faults - len(chosen))
    rng.shuffle(chosen)
    span = events / (faults + 1)
    return [
        Fault(int((number + rng.random()) * span), kind, _options(rng, kind)) for number, kind in enumerate(chosen)
    ]


def _options(rng: random.Random, kind: str) -> dict[str, Any]:
    if kind in ("cut-before-transfer", "cut-after-transfer", "detach-link"):
        return {"count": rng.randint(1, 4)}
    if kind == "cut-mid-frame":
        return {"count": rng.randint(1, 3), "direction": rng.choice(("in", "out"))}
    if kind in ("server-busy", "internal-error"):
        return {"count": rng.randint(1, 6)}
    if kind == "reject-then-detach":
        return {"count": rng.randint(1, 4), "condition": rng.choice(_TRANSIENT)}
    if kind == "refuse-content":
        return {"for_ms": rng.randint(500, 2000), "condition": rng.choice(_CONTENT)}
    if kind == "shrink-limit":
        return {"for_ms": rng.randint(1000, 3000)}
    if kind in ("detach-idle", "close-idle"):
        return {"silent": rng.random() < 0.5}
    if kind == "delay-ack":
        return {"count": rng.randint(1, 4), "ms": rng.randint(50, 2000)}
    if kind == "disable-entity":
        return {"for_ms": rng.randint(100, 1500), "status": rng.choice(("Disabled", "SendDisabled"))}
    if kind == "refuse-token":
        return {"for_ms": rng.randint(100, 1500)}
    if kind == "partition-unavailable":
        return {"of": 4, "partition": rng.randrange(4), "for_ms": rng.randint(500, 3000)}
    if kind == "time-out-function":
        return {"count": 1, "ms": 12_000}
    if kind in ("kill-host", "kill-machine", "kill-worker"):
        return {"at": rng.choice((None, None, "before-invocation", "before-checkpoint", "after-checkpoint"))}
    if kind in COSMOS_KINDS:
        return _cosmos_options(rng, kind)
    if kind == "long-transaction":
        return {"for_s": rng.choice((0.5, 2.0, 6.0))}
    if kind == "wrong-hint":
        return {"off_s": rng.choice((-86_400, -60, -1, 1, 60, 86_400)), "count": rng.randint(1, 20)}
    if kind == "step-clock-back":
        return {"by_s": rng.choice((1, 60, 3600))}
    return {}


def _cosmos_options(rng: random.Random, kind: str) -> dict[str, Any]:
    operation = rng.choice(("read-feed", "batch", "replace"))
    if kind == "drop-after":
        operation = rng.choice(("batch", "replace"))
    if kind == "gone":
        operation = "read-feed"
    options: dict[str, Any] = {"match": {"operation": operation}, "count": rng.randint(1, 4)}
    if kind == "throttle":
        options["retry_after_ms"] = rng.randint(1, 200)
    return options
