"""Rates of a running stack: two readings of its counters, and the difference per second."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """The stack's counters at one moment.

    Attributes:
        at: When, in seconds of a monotonic clock.
        documents: Documents in the outboxes.
        relayed: Messages that the topics and queues of all streams have accepted, without dropped duplicates.
        quarantined: Items in the quarantines of all streams.
        dead_lettered: Messages in the dead-letter queues of all subscriptions and queues.
        failures: Failed attempts of the function, on all hosts; None if they are not counted.
        lag_s: Age of the oldest change that a stream has not checkpointed, in seconds; 0 when there is none, None
            when no feed has ever been read. With an SQL source: of the oldest event behind no stored cursor.
    """

    at: float
    documents: int
    relayed: int
    quarantined: int
    dead_lettered: int
    failures: int | None
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class Rates:
    """The changes between two readings: per second, or the state at the later one."""

    documents_s: float
    relayed_s: float
    lag_s: float | None
    quarantined: int
    dead_lettered: int
    failures: int | None
    idle: bool

    @classmethod
    def between(cls, before: Reading, after: Reading) -> Rates:
        """Return the rates from one reading to a later one.

        Counters restart with their part, and documents expire: a count that fell gives a rate of 0.
        """
        seconds = after.at - before.at
        if seconds <= 0:
            raise ValueError("the second reading must be later than the first")
        return cls(
            documents_s=max(0, after.documents - before.documents) / seconds,
            relayed_s=max(0, after.relayed - before.relayed) / seconds,
            lag_s=after.lag_s,
            quarantined=after.quarantined,
            dead_lettered=after.dead_lettered,
            failures=_difference(before.failures, after.failures),
            idle=_counts(before) == _counts(after) and not after.lag_s,
        )

    def line(self) -> str:
        """Return the numbers as one line of text."""
        return ", ".join(f"{value} {name}" for name, value in self.columns())

    def columns(self) -> list[tuple[str, str]]:
        """Return names and numbers as text."""
        lag = "-" if self.lag_s is None else f"{self.lag_s:.0f}"
        return [
            ("documents/s of any type", f"{self.documents_s:.1f}"),
            ("events/s relayed", f"{self.relayed_s:.1f}"),
            ("s behind", lag),
            ("quarantined", str(self.quarantined)),
            ("dead-lettered", str(self.dead_lettered)),
            ("failed attempts", "-" if self.failures is None else str(self.failures)),
        ]


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _counts(reading: Reading) -> tuple[int | None, ...]:
    return (
        reading.documents,
        reading.relayed,
        reading.quarantined,
        reading.dead_lettered,
        reading.failures,
    )
