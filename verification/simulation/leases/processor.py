"""The leases of one trigger, with the rules of the .NET change feed processor (SDK 3.63.1 and later).

Azure/azure-cosmos-dotnet-v3, ChangeFeedProcessor: `PartitionSynchronizerCore.HandlePartitionGoneAsync` divides a
lease whose partition is gone, `CreateLeasesAsync` makes those that are missing when a host starts. Every step is
one request, so that hosts may meet between any two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from relay.backends.cosmos.effective_keys import EffectiveKeys
from relay.backends.cosmos.leases import LeasePosition, Positions
from verification.simulation.leases.container import SLOTS, Change, Container, Partition

NOTHING = -1
"""The LSN before all others."""

PREFIX = "account_database_container"


@dataclass(slots=True)
class Lease:
    """A lease of a physical partition, or since a merge of a range, at the LSN `position`.

    Attributes:
        began: Its position when it was made: what lies before was never read through it.
    """

    token: str
    minimum: int
    maximum: int
    is_range: bool
    position: int
    began: int
    owner: str | None = None

    def covers(self, slot: int) -> bool:
        return self.minimum <= slot < self.maximum


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a lease's range, which is to have a lease of its own."""

    token: str
    minimum: int
    maximum: int
    is_range: bool

    @classmethod
    def of_partition(cls, partition: Partition) -> Part:
        return cls(partition.token, partition.minimum, partition.maximum, is_range=False)

    @classmethod
    def of_range(cls, minimum: int, maximum: int) -> Part:
        return cls(f"{bound(minimum)}-{bound(maximum)}", minimum, maximum, is_range=True)


class Leases:
    """The lease container, and the events that the processor has lost."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self.all: dict[str, Lease] = {}
        self.skipped: set[int] = set()
        """Numbers of events that no lease had passed and that no lease delivers any more."""

    def create_missing(self) -> None:
        """Make the leases that are missing, as a host does when it finds no marker that this was done."""
        ranges = [each for each in self.all.values() if each.is_range]
        begins, ends = {each.minimum for each in ranges}, {each.maximum for each in ranges}
        for each in self._container.partitions:
            is_covered = each.parents & self.all.keys() or each.minimum in begins or each.maximum in ends
            if not is_covered:
                self.create(Part.of_partition(each), NOTHING)

    def parts_of(self, lease: Lease) -> list[Part]:
        """Return the parts that a lease whose partition is gone is divided into; none if it stays as it is."""
        found = self._container.overlapping(lease.minimum, lease.maximum)
        if not lease.is_range:
            if len(found) > 1:
                return [Part.of_partition(each) for each in found]
            return [Part.of_range(lease.minimum, lease.maximum)]
        if len(found) == 1:
            return []
        inner = [each.maximum for each in found[:-1]]
        bounds = [lease.minimum, *inner, lease.maximum]
        return [Part.of_range(*pair) for pair in pairwise(bounds)]

    def create(self, part: Part, position: int) -> None:
        """Make a lease, unless there is one of that name: then that one stays where it is."""
        if part.token not in self.all:
            self.all[part.token] = Lease(
                part.token, part.minimum, part.maximum, part.is_range, position, began=position
            )

    def delete(self, token: str) -> None:
        """Delete a lease, whoever owns it. What it alone would have delivered is lost."""
        gone = self.all.pop(token, None)
        if gone is not None:
            self.skipped |= {
                each.number
                for each in self._container.changes
                if gone.covers(each.slot) and each.lsn > gone.position and self.has_settled(each)
            }

    def covering(self, slot: int) -> Iterator[Lease]:
        return (each for each in self.all.values() if each.covers(slot))

    def has_settled(self, change: Change) -> bool:
        """Return True if no lease would still deliver the event."""
        return all(change.lsn <= each.position for each in self.covering(change.slot))

    def positions(self, keys: EffectiveKeys) -> Positions:
        """Return the positions as the relay reads them."""
        return Positions(keys, [LeasePosition.from_document(_document(each)) for each in self.all.values()])


class Keys(EffectiveKeys):
    """The keys of this container, numbers or their hexadecimal digits, which are their own effective keys."""

    def __init__(self) -> None:
        pass

    async def of(self, value: object) -> str | None:
        return f"{value}8" if isinstance(value, str) else f"{value:X}8"


def bound(slot: int) -> str:
    """Return a bound of ranges, as the service names it."""
    return "" if slot == 0 else "FF" if slot == SLOTS else f"{slot:X}0"


def _document(lease: Lease) -> dict[str, object]:
    return {
        "id": f"{PREFIX}..{lease.token}",
        "Owner": lease.owner,
        "ContinuationToken": None if lease.position == NOTHING else f'"{lease.position}"',
        "FeedRange": {"Range": {"min": bound(lease.minimum), "max": bound(lease.maximum)}},
    }
