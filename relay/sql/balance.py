"""Which process reads which shard: every process decides by itself, from the claims that all of them see."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from changefeed.claims import Claim


@dataclass(frozen=True, slots=True)
class Decision:
    """What a process does next.

    Attributes:
        take: Claims to take, as they were read.
        give: Own claims to hand over when the page under way is done, with the process that gets each.
        ask: A claim of another process to ask for; None if there is no reason to.
    """

    take: list[Claim] = field(default_factory=list)
    give: list[tuple[Claim, str]] = field(default_factory=list)
    ask: Claim | None = None


def decide(claims: Sequence[Claim], me: str, dead: frozenset[int]) -> Decision:
    """What this process does next.

    Shards without a living owner are taken up to a fair share, the number of shards by the number of processes,
    rounded up. A process with less than the share rounded down asks one with more than that for a shard; one with
    less than the share rounded up asks one with more than that. So in the end no two differ by more than one.

    Args:
        claims: The claims of all shards.
        me: This process.
        dead: The shards whose owner has shown no sign of life for too long.
    """
    alive = [claim for claim in claims if claim.owner is not None and claim.shard_id not in dead]
    held = Counter(claim.owner for claim in alive if claim.owner is not None)
    members = held.keys() | {me} | {claim.wanted_by for claim in alive if claim.wanted_by is not None}
    at_most = math.ceil(len(claims) / len(members))
    at_least = len(claims) // len(members)
    free = [claim for claim in claims if claim not in alive]
    take = free[: max(0, at_most - held[me])]
    if take:
        return Decision(take=take)
    mine = [claim for claim in alive if claim.owner == me]
    give = [(claim, claim.wanted_by) for claim in mine if claim.wanted_by is not None]
    give = give[: max(0, held[me] - max(at_least, 1))]
    if give or free or held[me] >= at_most or any(claim.wanted_by == me for claim in alive):
        return Decision(give=give)
    enough = at_least if held[me] < at_least else at_most
    others = [claim for claim in alive if claim.wanted_by is None and held[claim.owner or ""] > enough]
    return Decision(ask=max(others, key=lambda claim: held[claim.owner or ""], default=None))


class Watch:
    """Which claims have shown no sign of life for `claim_s`, by this process's own clock."""

    def __init__(self, claim_s: float) -> None:
        self._claim_s = claim_s
        self._seen: dict[int, tuple[tuple[int, int], float]] = {}

    def dead(self, claims: Sequence[Claim], now_s: float) -> frozenset[int]:
        """The shards whose owner is taken for dead.

        Args:
            claims: As they were just read.
            now_s: When they had been read, on a clock that does not step.
        """
        dead = set()
        for claim in claims:
            version, since_s = self._seen.get(claim.shard_id, (None, now_s))
            if version != claim.version:
                self._seen[claim.shard_id] = (claim.version, now_s)
            elif claim.owner is not None and now_s - since_s >= self._claim_s:
                dead.add(claim.shard_id)
        return frozenset(dead)
