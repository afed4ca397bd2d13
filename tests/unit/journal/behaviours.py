"""Behaviours of the specifications, as TLC prints them, and the journals that they would leave."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from journal import entries
from journal.entries import Entry, Position

_STATE = re.compile(r"^STATE_\d+ ==.*$|^State \d+:.*$", re.MULTILINE)
_VARIABLE = re.compile(r"^/\\ (\w+) = ", re.MULTILINE)
_TOKEN = re.compile(r'<<|>>|\|->|:>|@@|[\[\]{}(),]|"[^"]*"|-?\d+|\w+')
_CONSTANTS = {"None": None, "TRUE": True, "FALSE": False}

WINDOW_S = 2.0
"""The duplicate detection window of the worlds, in their ticks."""


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
        return int(token) if token.lstrip("-").isdecimal() else _CONSTANTS.get(token, token)

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


def journals(module: str, states: Sequence[State]) -> list[list[Entry]]:
    """The journals that a behaviour of a specification leaves.

    Of Feed there is one for each consumer and each pair of transactions that have an order, with one key for both.
    """
    if module == "Relay":
        return [list(_relay(states))]
    if module == "Claims":
        return [list(_claims(states))]
    last = states[-1]
    ordered = [(y, x) for x, before in enumerate(last.before, 1) for y in before]
    return [list(_feed(states, consumer, pair)) for consumer in last.cursor for pair in [(), *ordered]]


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


def _key_of(event: int) -> str:
    return "b" if event == 3 else "a"


_COVERS = {"ab": ("a", "c"), "a": ("a", "b"), "b": ("b", "c")}


def _relay(states: Sequence[State]) -> Iterator[Entry]:
    for before, after in pairwise(states):
        at = float(after.now)
        for event in sorted(after.feed[len(before.feed) :]):
            place = after.feed.index(event)
            position = (_commit_of(event), place)
            key = _key_of(event)
            yield entries.Committed(at=at, **_of(event, key), position=position, digest=str(event), place=key)
        for event in after.topic[len(before.topic) :]:
            yield _accepted(at, event, _key_of(event), len(after.topic))
        if before.topic == after.topic:
            for process in after.done:
                yield from _dropped(at, set(after.done[process]) - set(before.done[process]), after)
        yield from _of_leases(at, before, after)


def _dropped(at: float, done: set[int], state: State) -> Iterator[Entry]:
    for event in done & set(state.topic):
        yield entries.Duplicate(at=at, **_of(event, _key_of(event)), digest=str(event), number=0)


def _of_leases(at: float, before: State, after: State) -> Iterator[Entry]:
    for process, name in after.range.items():
        if name is not None and before.range[process] is None:
            page: dict[str, Any] = {
                "after": _at(after, after.begin[process]),
                "upto": _at(after, after.end[process]),
            }
            yield entries.Read(at=at, **_lease(name), owner=process, **page)
    for name in after.position:
        if name in after.leases and after.position[name] != before.position[name]:
            ended = [p for p in after.range if before.range[p] == name and after.range[p] is None]
            # A lease that a split made has a position before it has an owner.
            owner = ended[0] if ended else ""
            yield entries.Checkpointed(
                at=at, **_lease(name), owner=owner, position=_at(after, after.position[name])
            )
        yield from _moved(at, _lease(name), (before.owner[name], None), (after.owner[name], None))


def _lease(name: str) -> dict[str, Any]:
    return {"lease": name, "covers": _COVERS[name]}


def _commit_of(event: int) -> int:
    return 2 if event == 3 else 1


def _at(state: State, changes: int) -> Position:
    """The position of a lease that has passed so many changes."""
    return (_commit_of(state.feed[changes - 1]), changes - 1) if changes else (0,)


# Claims

_SHARD: dict[str, Any] = {"lease": "shard"}


def _claims(states: Sequence[State]) -> Iterator[Entry]:
    for event in range(1, len(states[0].seen) + 1):
        yield entries.Committed(at=0, **_of(event, "k"), position=(event,), digest=str(event), place="shard")
    for before, after in pairwise(states):
        at = float(after.now)
        for event in after.topic[len(before.topic) :]:
            yield _accepted(at, event, "k", len(after.topic))
        if before.topic == after.topic:
            for process, event in before.sent.items():
                if event in after.topic and after.next[process] > event and after.sent[process] is None:
                    yield entries.Duplicate(at=at, **_of(event, "k"), digest=str(event), number=0)
        if after.row["cursor"] != before.row["cursor"]:
            owner, epoch = _storer(before)
            yield entries.Checkpointed(at=at, **_SHARD, owner=owner, epoch=epoch, position=(after.row["cursor"],))
        had, has = ((state.row["owner"], state.row["epoch"]) for state in (before, after))
        yield from _moved(at, _SHARD, had, has)


def _storer(state: State) -> tuple[str, int]:
    """Who stored the cursor: whoever may, if anybody may."""
    claims = [(process, epoch) for process, epoch in state.epoch.items() if epoch is not None]
    may = [
        (process, epoch)
        for process, epoch in claims
        if (process, epoch) == (state.row["owner"], state.row["epoch"])
    ]
    return (may or claims)[0]


# Feed


def _feed(states: Sequence[State], consumer: str, pair: Sequence[int]) -> Iterator[Entry]:
    last = states[-1]

    def key_of(event: int) -> str:
        return "k" if event in pair else f"k{event}"

    yield entries.Claimed(at=0, **_SHARD, owner=consumer)
    for number, (before, after) in enumerate(pairwise(states), 1):
        at = float(number)
        for event, (was, state) in enumerate(zip(before.state, after.state, strict=True), 1):
            if was != state == "committed":
                position = last.position[event - 1]
                given = None if position is None else (position,)
                of = _of(event, key_of(event))
                yield entries.Committed(at=at, **of, position=given, digest=str(event), place="shard")
        for event in after.got[consumer][len(before.got[consumer]) :]:
            yield _accepted(at, event, key_of(event), number)
        if after.cursor[consumer] != before.cursor[consumer]:
            yield entries.Checkpointed(at=at, **_SHARD, owner=consumer, position=(after.cursor[consumer],))
