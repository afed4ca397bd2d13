"""The options of a receiver."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Options:
    """Times are in seconds.

    Attributes:
        sessions: Number of sessions handled concurrently. Each has its own connection.
        prefetch: Number of messages fetched ahead in each session; at least 1, or their order is lost.
        accept_s: Time that one request waits for a session with messages; with dead letters, the time to wait for
            those that somebody else has locked.
        idle_s: Time that a session without messages is kept, or a dead-letter queue that gives out none.
        hold_s: Time after which a session with more messages is released, so that other sessions get a turn.
        renew_s: Maximum time between two renewals of a session's lock.
        retry_s: Pause before a failed message is delivered again; doubled with each delivery.
        retry_max_s: Maximum of that pause.
        answer_s: Time that the broker has to answer a request, in addition to `accept_s` or `idle_s`. Then the
            connection is discarded and a new one is opened. A store that parks keys has this time too.
        grace_s: Time that handlers have to finish after `stop()`; then they are cancelled.
        attempts: With `on_poison="park"`, number of failed deliveries after which a message parks its key. It must
            be less than the subscription's maximum delivery count, after which the broker dead-letters it.
        released_s: Time between two looks for keys that an operator has released.
        claim_s: Time after which another process takes over a released key if this one has ended.
    """

    sessions: int = 16
    prefetch: int = 50
    accept_s: float = 30.0
    idle_s: float = 0.2
    hold_s: float = 10.0
    renew_s: float = 10.0
    retry_s: float = 1.0
    retry_max_s: float = 60.0
    answer_s: float = 15.0
    grace_s: float = 20.0
    attempts: int = 8
    released_s: float = 10.0
    claim_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("sessions", "prefetch", "attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 1 or more.")
        for each in fields(self):
            if each.name.endswith("_s") and getattr(self, each.name) < 0:
                raise ValueError(f"{each.name} is {getattr(self, each.name)} seconds; it must not be negative.")
        if not self.accept_s or not self.idle_s or not self.answer_s:
            raise ValueError("accept_s, idle_s and answer_s must be above 0 seconds.")
        if not self.released_s or not self.claim_s:
            raise ValueError("released_s and claim_s must be above 0 seconds.")

    def pause_s(self, delivery_count: int) -> float:
        """Return the pause in seconds after a failed delivery that follows `delivery_count` others."""
        return min(self.retry_max_s, self.retry_s * 2.0 ** min(delivery_count, 32))
