"""The interface of the side on which events are committed; one for each source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol

from local.chaos.history import Histories
from local.chaos.recordings import Recorded
from local.chaos.schedule import Fault
from local.chaos.streams import Stream
from local.chaos.workload import Commit
from local.stack.parts import Part


class SourceSide(Protocol):
    """The outboxes of a running stack, the processes that relay from it, and their faults.

    Attributes:
        causes: Edge cases, and the kind of fault that causes each. Other faults can prevent it.
        known: Every edge case of this side.
        parts: The parts whose admin ports have faults.
    """

    causes: Mapping[str, str]
    known: frozenset[str]
    parts: Sequence[Part]

    async def start_hosts(self, hosts: int) -> None:
        """Begin to record what happens in the outbox, and start that many processes that relay."""

    async def write(self, commits: Iterator[Commit], history: Histories, *, pause_s: float) -> None:
        """Commit one writer's commits in order, repeating each until it is known to be committed."""

    def lasting(self, fault: Fault) -> Coroutine[Any, Any, None] | None:
        """Return the work of a fault that takes a while, or None for one that is injected by `at_once`."""

    async def at_once(self, fault: Fault) -> None:
        """Inject a fault by one request. Raises NotInjected."""

    async def kill(self, process: str, victim: str) -> None:
        """Kill a host or worker by its name: `machine` with all that it has started, or `worker`.

        Raises NotInjected if it is not up.
        """

    async def recorded(self, stream: Stream) -> Recorded:
        """Return the recorded changes of a stream's events since the stack began."""

    async def met(self) -> Counter[str]:
        """Return the number of times each edge case was met."""

    async def quarantined(self, stream: Stream) -> dict[str, str]:
        """Return the reasons by the id of the quarantined document."""

    async def timeline(self, outbox: str) -> Mapping[str, Any] | None:
        """Return the stored timeline of an outbox's rules, in its stored form; None if there is none."""

    async def commit_times(self, outbox: str, since: float) -> Mapping[str, int]:
        """Return commit times by the ids of events, in whole seconds since 1970, as the timeline's are.

        Args:
            outbox: The name of the outbox.
            since: Events committed before this time may be left out; in seconds since 1970.
        """

    async def end_faults(self) -> None:
        """End what is pending at the processes that relay. Faults of `parts` are ended by the injector."""

    async def killed_workers(self) -> int:
        """Return the number of processes ended by their host, and not by a fault, because they took too long."""

    async def owners(self) -> list[str]:
        """Return a line for each lease or shard: its owner, and its position."""
