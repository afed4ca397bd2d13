"""Leases that cover the same keys, and what a host has not noticed yet that will make such leases.

The change feed processor of the trigger makes a lease where there is none of that name. Two old leases that have
keys of one new partition may each make its lease, at their own position, and the first decides: what the other has
not passed then comes through the old lease alone, and through none once that is deleted (azure-cosmos-dotnet-v3,
PartitionSynchronizerCore.HandlePartitionGoneAsync).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from relay.backends.cosmos.leases import LeasePosition, Positions
from relay.backends.findings import Finding
from relay.core.remedy import Remedy, Sentence


def overlaps(subject: str, positions: Positions, feed_ranges: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Find leases by which events come again, out of order, or no more.

    Args:
        subject: The lease container, as a finding names it.
        positions: The relay's own leases.
        feed_ranges: The physical partitions of the outbox container, as the SDK gives them.
    """
    findings = [_overlapping(subject, group) for group in _groups(positions.leases)]
    if findings:
        return findings
    return [_unnoticed(subject, leases) for each in feed_ranges if (leases := _meeting(positions, each))]


def _groups(leases: Sequence[LeasePosition]) -> Iterator[list[LeasePosition]]:
    """Yield groups of leases, in the order of their ranges, of which each overlaps another one of its group."""
    group: list[LeasePosition] = []
    end = ""
    for lease in leases:
        if lease.minimum >= end:
            if len(group) > 1:
                yield group
            group = []
        group.append(lease)
        end = max(end, lease.maximum)
    if len(group) > 1:
        yield group


def _meeting(positions: Positions, feed_range: Mapping[str, Any]) -> list[LeasePosition]:
    """Return the leases at different positions that meet in a physical partition.

    Returns none unless one of them may make its lease.

    One of them may make its lease.
    """
    minimum, maximum = feed_range["Range"]["min"], feed_range["Range"]["max"]
    leases = positions.within(feed_range)
    # The lease of a partition that is wholly within another one becomes that of its own range, as after a merge.
    makes_it = any(
        each.token.isdecimal() and (each.minimum < minimum or maximum < each.maximum) for each in leases
    )
    return leases if makes_it and len({each.done for each in leases}) > 1 else []


def _overlapping(subject: str, group: Sequence[LeasePosition]) -> Finding:
    return Finding.warning(
        f"{subject} has leases that cover the same keys: {_named(group)}. A split or merge has left one behind, "
        "or partitions were split and merged before a host noticed. Events may come again and out of order, and "
        "another split or merge may lose what only the lease furthest behind delivers",
        "Split and merge no partitions while anything waits behind these leases (metric relay.feed.age). If one "
        "of them never advances, give the app's identity the right to delete items of this container (role "
        "'Cosmos DB Built-in Data Contributor'): the next host that takes the old lease deletes it. If all "
        "advance, stop the app when nothing waits, and delete the lease whose range another one covers.",
    )


def _unnoticed(subject: str, leases: Sequence[LeasePosition]) -> Finding:
    return Finding.warning(
        f"{subject} has leases at different positions, {_named(leases)}, that meet in one partition: partitions "
        "were split and merged, and no host has noticed. Events may come again and out of order, or be lost",
        Sentence.of(
            "Once a host has run, publish again what was committed since the first of these changes, if it was "
            "within two hours: `{}`. Consumers get what they had before a second time.",
            Remedy("replay", options=("--from", "2h")),
        ),
    )


def _named(leases: Iterable[LeasePosition]) -> str:
    return ", ".join(f"{each.id!r} at {'the beginning' if each.done < 0 else each.done}" for each in leases)
