"""Behaviours of the specifications, as TLC prints them, and the journals that they would leave."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from verification.journal import entries
from verification.journal.entries import Entry, Position
from verification.spec.runs import Run

_STATE = re.compile(r"^STATE_\d+ ==.*$|^State \d+:.*$", re.MULTILINE)
_VARIABLE = re.compile(r"^/\\ (\w+) = ", re.MULTILINE)
_TOKEN = re.compile(r'<<|>>|\|->|:>|@@|\.\.|[\[\]{}(),]|"[^"]*"|-?\d+|\w+')
_CONSTANTS = {"None": None, "TRUE": True, "FALSE": False}


class State:
    """A state: the values of variables, as Python's. Functions and records are dictionaries."""

    def __init__(self, text: str) -> None:
        parts = _VARIABLE.split(text)
        self._texts = dict(zip(parts[1::2], parts[2::2], strict=True))

    def __getattr__(self, name: str) -> Any:
        value = _Reader(self._texts[name]).value()
        setattr(self, name, value)
        return value


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text.split("\n\n")[0])
        self._tokens.reverse()

    def value(self) -> Any:
        token = self._tokens.pop()
        if token == "<<":
            return tuple(self._until(">>"))
        if token == "{":
            # What is in a set may be a dictionary, which Python's sets do not take.
            return list(self._until("}"))
        if token in "[(":
            return dict(self._pairs("]" if token == "[" else ")"))
        if token[0] == '"':
            return token[1:-1]
        if not token.lstrip("-").isdecimal():
            return _CONSTANTS.get(token, token)
        if self._tokens and self._tokens[-1] == "..":
            self._tokens.pop()
            return list(range(int(token), int(self._tokens.pop()) + 1))
        return int(token)

    def _until(self, end: str) -> Iterator[Any]:
        while self._tokens[-1] != end:
            if self._tokens[-1] == ",":
                self._tokens.pop()
            yield self.value()
        self._tokens.pop()

    def _pairs(self, end: str) -> Iterator[tuple[Any, Any]]:
        while self._tokens[-1] != end:
            if self._tokens[-1] in (",", "@@"):
                self._tokens.pop()
            key = self.value()
            self._tokens.pop()
            yield key, self.value()
        self._tokens.pop()


def behaviours(text: str) -> list[list[State]]:
    """The behaviours that TLC has printed: one counterexample, or several that were drawn."""
    found = [_STATE.split(each)[1:] for each in re.split(r"^-+ MODULE .*$", text, flags=re.MULTILINE)]
    return [[State(state) for state in states if _VARIABLE.search(state)] for states in found if states]


def journals(run: Run, states: Sequence[State]) -> list[list[Entry]]:
    """The journals that a behaviour of a world leaves.

    Of Feed there is one for each consumer, each shard, and each pair of events that have an order: its key.
    """
    if run.module == "Relay":
        return [list(_Relay(run.sizes["InFirst"]).entries(states))]
    if run.module == "Claims":
        return [list(_claims(states))]
    return list(_feeds(run, states))


def _of(event: object, key: str) -> dict[str, Any]:
    return {"id": str(event), "key": key}


def _accepted(at: float, event: object, key: str, number: int) -> Entry:
    return entries.Accepted(at=at, **_of(event, key), digest=str(event), number=number)


def _moved(
    at: float, lease: Mapping[str, Any], before: tuple[Any, Any], after: tuple[Any, Any]
) -> Iterator[Entry]:
    """A lease went from an owner and an epoch to others."""
    if before != after:
        if before[0] is not None:
            yield entries.Lost(at=at, **lease, owner=before[0], epoch=before[1])
        if after[0] is not None:
            yield entries.Claimed(at=at, **lease, owner=after[0], epoch=after[1])


# Relay

_COVERS = {"ab": ("a", "c"), "a": ("a", "b"), "b": ("b", "c")}


# In the place of an event that was replaced.
_GAP = 0


class _Relay:
    """`in_first` is the number of events of commit 1, all of key "a"; the event of commit 2 is of key "b"."""

    def __init__(self, in_first: int) -> None:
        self._in_first = in_first

    def entries(self, states: Sequence[State]) -> Iterator[Entry]:
        for before, after in pairwise(states):
            at = float(after.now)
            for event in sorted(set(after.feed) - {*before.feed, _GAP}):
                key, position = self._key_of(event), self._at(after, after.feed.index(event) + 1)
                yield entries.Committed(at=at, **_of(event, key), position=position, digest=str(event), place=key)
            for event in after.topic[len(before.topic) :]:
                yield _accepted(at, event, self._key_of(event), len(after.topic))
            if before.topic == after.topic:
                yield from self._dropped(at, before, after)
            yield from self._of_leases(at, before, after)

    def _dropped(self, at: float, before: State, after: State) -> Iterator[Entry]:
        for process in after.done:
            for event in (set(after.done[process]) - set(before.done[process])) & set(after.topic):
                yield entries.Duplicate(at=at, **_of(event, self._key_of(event)), digest=str(event), number=0)

    def _of_leases(self, at: float, before: State, after: State) -> Iterator[Entry]:
        for name in after.leases:
            of = _lease(name)
            was = before.position[name] if name in before.leases else 0
            if after.position[name] != was:
                ended = [p for p in after.range if before.range[p] == name and after.range[p] is None]
                # A lease that a split or a merge made has a position before it has an owner.
                owner = ended[0] if ended and name in before.leases else ""
                yield entries.Checkpointed(
                    at=at, **of, owner=owner, position=self._at(after, after.position[name])
                )
        for name in after.owner:
            yield from _moved(at, _lease(name), (before.owner[name], None), (after.owner[name], None))
        for process, name in after.range.items():
            if name is not None and before.range[process] is None:
                page = {"after": after.begin[process], "upto": after.end[process]}
                found: dict[str, Any] = {each: self._at(after, changes) for each, changes in page.items()}
                yield entries.Read(at=at, **_lease(name), owner=process, **found)

    def _key_of(self, event: int) -> str:
        return "b" if event > self._in_first else "a"

    def _at(self, state: State, changes: int) -> Position:
        """The position of a lease that has passed so many changes."""
        if not changes:
            return (0,)
        return (2 if state.feed[changes - 1] > self._in_first else 1, changes - 1)


def _lease(name: str) -> dict[str, Any]:
    return {"lease": name, "covers": _COVERS[name.removeprefix("range ")]}


# Claims

_SHARD: dict[str, Any] = {"lease": "shard"}
_DEAD = "dead"


def _claims(states: Sequence[State]) -> Iterator[Entry]:
    for event in range(1, len(states[0].seen) + 1):
        yield entries.Committed(at=0, **_of(event, "k"), position=(event,), digest=str(event), place="shard")
    owner: str | None = None
    epoch = 0
    for number, (before, after) in enumerate(pairwise(states), 1):
        at = float(number)
        for event in after.topic[len(before.topic) :]:
            yield _accepted(at, event, "k", number)
        if after.cursor != before.cursor:
            process, is_valid = _storer(before)
            # A claim that is valid is under the epoch of the row; another one is under one before.
            under = epoch if is_valid else epoch - 1
            yield entries.Checkpointed(at=at, **_SHARD, owner=process, epoch=under, position=(after.cursor,))
        # The row goes on to name a process that has ended.
        if after.owner not in (before.owner, _DEAD):
            had = owner, epoch
            epoch += not any(is_valid for process, is_valid in after.valid.items() if process != after.owner)
            owner = after.owner
            yield from _moved(at, _SHARD, had, (owner, epoch))


def _storer(state: State) -> tuple[str, bool]:
    """Who stored the cursor, and whether its claim is valid: whoever may, if anybody may."""
    claims = [(process, state.valid[process]) for process, has in state.has.items() if has]
    return max(claims, key=lambda claim: claim[1])


# Feed


class _Feed:
    """The events of one shard that a consumer gets. Those of `pair`, which have an order, are of one key."""

    def __init__(self, consumer: str, shard: int, pair: Sequence[int]) -> None:
        self._consumer = consumer
        self._shard = shard
        self._pair = pair

    def entries(self, states: Sequence[State]) -> Iterator[Entry]:
        consumer, shard = self._consumer, self._shard - 1
        positions = {event: at for state in states for at, event in state.feed[shard]}
        yield entries.Claimed(at=0, **_SHARD, owner=consumer)
        # Events that are older than the feed are there only if a backfill has moved them.
        for event, state in enumerate(states[0].state, 1):
            if state == "committed" and event in positions:
                yield self._committed(0, event, positions)
        for number, (before, after) in enumerate(pairwise(states), 1):
            at = float(number)
            for event, (was, state) in enumerate(zip(before.state, after.state, strict=True), 1):
                if was != state == "committed":
                    yield self._committed(at, event, positions)
            for event in after.got[consumer][shard][len(before.got[consumer][shard]) :]:
                yield _accepted(at, event, self._key_of(event), number)
            if after.cursor[consumer][shard] != before.cursor[consumer][shard]:
                position = (after.cursor[consumer][shard],)
                yield entries.Checkpointed(at=at, **_SHARD, owner=consumer, position=position)

    def _committed(self, at: float, event: int, positions: Mapping[int, int]) -> Entry:
        position = (positions[event],) if event in positions else None
        of = _of(event, self._key_of(event))
        return entries.Committed(at=at, **of, position=position, digest=str(event), place=_SHARD["lease"])

    def _key_of(self, event: int) -> str:
        return "k" if event in self._pair else f"k{event}"


def _feeds(run: Run, states: Sequence[State]) -> Iterator[list[Entry]]:
    last, old = states[-1], run.sizes["Old"]
    shards = range(1, run.sizes["Count"] + 1)
    ordered = [
        (y, x)
        for x, before in enumerate(last.before, 1)
        for y in before
        if x % len(shards) == y % len(shards) and (not run.sizes["Anyway"] or min(x, y) > old)
    ]
    for consumer in last.cursor:
        for shard in shards:
            for pair in [(), *ordered]:
                yield list(_Feed(consumer, shard, pair).entries(states))
