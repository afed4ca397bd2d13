"""The schedule of faults: drawn from a seed, so that a failed campaign can be repeated."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from outbox_relay.emulators.servicebus.fault_plans import Ending, Step

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
# A peer that conforms to AMQP and is silent, late or unusual.
PEER_KINDS = {
    "silent-handshake": 4,
    "end-in-flight": 6,
    "late-acceptance": 2,
    "settle-in-two": 3,
    "begin-session": 3,
    "described-info": 3,
    "stall-transfer": 3,
    "refuse-everything": 2,
}
# Events that the topic refuses always, and events at which the peer ends the link or more each time they are sent.
# The writers commit them from the beginning to the end; nothing of them is drawn.
EVENT_KINDS = {"refused-events": 0, "ending-events": 0}
# The operator carries out a command as soon as an error names it, while faults are injected.
OPERATOR_KINDS = {"hasty-operator": 0}
COSMOS_KINDS = {"throttle": 6, "unavailable": 4, "timeout": 3, "gone": 2, "drop": 5, "drop-after": 5}
# Of the change feed alone, and of everything.
OUTAGE_KINDS = {"feed-outage": 2, "outage": 2}
# The whole account, or one use of it, accepts requests and does not answer.
SILENCE_KINDS = {"silent-account": 2, "silent-feed": 2, "silent-leases": 2, "silent-quarantine": 2}
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
# kill-backend ends one connection's process with SIGKILL, at which PostgreSQL recovers as after a crash. prune
# deletes what retention may, regardless of age. intrude is another reader of the feed, which does all that its
# role may, and tries to change the relay's claims.
DATABASE_KINDS = {
    "kill-database": 3,
    "stop-database": 2,
    "kill-backend": 2,
    "terminate-readers": 5,
    "terminate-writers": 4,
    "hold-shard": 2,
    "step-clock-back": 4,
    "prune": 4,
    "intrude": 4,
}
# What happens to the next commit of a writer.
WRITER_KINDS = {
    "long-transaction": 5,
    "kill-writer": 5,
    "lose-answer": 4,
    "roll-back": 3,
    "wrong-hint": 4,
    "hostile-row": 6,
}

# Of the writes of large events' contents to Blob Storage. kill-after-blob kills the process that has written one
# before it sends the message that names it.
BLOB_KINDS = {"refuse-blob": 6, "drop-blob": 3, "drop-after-blob": 4, "silent-blobs": 4, "kill-after-blob": 5}

# Rows of PostgreSQL that are no events, or hardly: half of a surrogate pair in what becomes a property, and
# elsewhere; data too deep for Python; rows larger than a page may be, which are sound if the relay takes large
# events.
HOSTILE_ROWS = ("surrogate-property", "surrogate-data", "deep", "huge")

BOTH_KINDS = BROKER_KINDS | PEER_KINDS | BYSTANDER_KINDS | EVENT_KINDS | OPERATOR_KINDS
KINDS = BOTH_KINDS | COSMOS_KINDS | SILENCE_KINDS | OUTAGE_KINDS | PARTITION_KINDS | HOST_KINDS | READ_KINDS
SQL_KINDS = BOTH_KINDS | RELAY_KINDS | DATABASE_KINDS | WRITER_KINDS
ALL_KINDS = KINDS | SQL_KINDS | BLOB_KINDS

# Longer than the send timeout of 5 s that campaigns with this fault have.
_LATE_MS = (6_000, 9_000)

# Conditions that blame the content of a message.
_CONTENT = (
    *("amqp:not-allowed", "amqp:invalid-field", "amqp:decode-error"),
    *("com.microsoft:argument-error", "com.microsoft:argument-out-of-range"),
)
_REFUSALS_OF_BLOBS = (403, 404, 409, 429, 500, 503)
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
    kinds = [kind for kind, weight in ALL_KINDS.items() if kind in among and weight]
    if not kinds:
        return []
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
        return {"count": 1}
    if kind in ("kill-host", "kill-machine", "kill-worker"):
        return {"at": rng.choice((None, None, "before-invocation", "before-checkpoint", "after-checkpoint"))}
    if kind in PEER_KINDS:
        return _peer_options(rng, kind)
    if kind in SILENCE_KINDS:
        return {"for_ms": rng.randint(2000, 6000)}
    if kind in COSMOS_KINDS:
        return _cosmos_options(rng, kind)
    if kind in BLOB_KINDS:
        return _blob_options(rng, kind)
    if kind == "long-transaction":
        return {"for_s": rng.choice((0.5, 2.0, 6.0))}
    if kind == "wrong-hint":
        return {"off_s": rng.choice((-86_400, -60, -1, 1, 60, 86_400)), "count": rng.randint(1, 20)}
    if kind == "hostile-row":
        return {"what": rng.choice(HOSTILE_ROWS)}
    if kind == "step-clock-back":
        return {"by_s": rng.choice((1, 60, 3600))}
    return {}


def standing(seed: int, kinds: Collection[str]) -> list[dict[str, Any]]:
    """Return the broker's faults that last for the whole campaign.

    Those of single events go by how their ids begin.
    """
    rng = random.Random(f"standing-{seed}")
    condition, how = rng.choice(_CONTENT), rng.choice(("connection", "connection-with-error", "reset", "link"))
    plans = {
        "refused-events": {"kind": "reject", "condition": condition, "message_id": "e-refused-*"},
        "ending-events": {"kind": "end-on-transfer", "how": how, "message_id": "e-ending-*"},
    }
    return [plan for kind, plan in plans.items() if kind in kinds]


def _peer_options(rng: random.Random, kind: str) -> dict[str, Any]:
    if kind == "silent-handshake":
        step = rng.choice([step.value for step in Step])
        return {"step": step, "ms": rng.choice((0, 0, 4000)), "heartbeats": rng.random() < 0.5, "for_ms": 3000}
    if kind == "end-in-flight":
        how = rng.choice([how.value for how in Ending])
        options = {"how": how, "taken": rng.random() < 0.5, "ms": rng.choice((0, 0, 200))}
        return {**options, "count": rng.randint(1, 3), "described_info": rng.random() < 0.3}
    if kind == "late-acceptance":
        return {"ms": rng.randint(*_LATE_MS), "for_ms": rng.randint(2000, 12_000)}
    if kind == "settle-in-two":
        return {"ms": rng.choice((0, 50, 500)), "count": rng.randint(1, 20)}
    if kind == "described-info":
        return {"condition": rng.choice(_TRANSIENT), "described_info": True, "count": rng.randint(1, 4)}
    if kind == "stall-transfer":
        return {"ms": rng.randint(500, 8000), "count": rng.randint(1, 3)}
    if kind == "refuse-everything":
        condition, accepts_repeats = rng.choice(_CONTENT), rng.random() < 0.5
        # With repeats accepted through three attempts, sound events are set aside: docs/guarantees.md says so.
        for_ms = 2_000 if accepts_repeats else rng.choice((3_000, 10_000, 20_000))
        return {"condition": condition, "accepts_repeats": accepts_repeats, "for_ms": for_ms}
    return {}


def _blob_options(rng: random.Random, kind: str) -> dict[str, Any]:
    if kind == "refuse-blob":
        # The SDK sends each write up to three times.
        return {"status": rng.choice(_REFUSALS_OF_BLOBS), "count": rng.randint(1, 20)}
    if kind == "silent-blobs":
        # Once in a while for longer than a send may take.
        return {"applies": rng.random() < 0.5, "for_ms": rng.choice((2_000, 4_000, 20_000))}
    if kind == "kill-after-blob":
        return {"kill": rng.choice(("machine", "worker"))}
    return {"count": rng.randint(1, 6)}


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
