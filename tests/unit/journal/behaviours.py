"""Behaviours of the specifications, as TLC prints them, and the journals that they would leave."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from journal import entries
from journal.entries import Entry

_STATE = re.compile(r"^STATE_\d+ ==.*$|^State \d+:.*$", re.MULTILINE)
_VARIABLE = re.compile(r"^/\\ (\w+) = ", re.MULTILINE)
_TOKEN = re.compile(r'<<|>>|\|->|:>|@@|[\[\]{}(),]|"[^"]*"|-?\d+|\w+')
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


def journals(states: Sequence[State]) -> list[list[Entry]]:
    """The journals that a behaviour of Feed leaves.

    There is one for each consumer and each pair of transactions that have an order, with one key for both.
    """
    last = states[-1]
    ordered = [(y, x) for x, before in enumerate(last.before, 1) for y in before]
    return [list(_feed(states, consumer, pair)) for consumer in last.cursor for pair in [(), *ordered]]


def _of(event: object, key: str) -> dict[str, Any]:
    return {"id": str(event), "key": key}


def _accepted(at: float, event: object, key: str, number: int) -> Entry:
    return entries.Accepted(at=at, **_of(event, key), digest=str(event), number=number)


_SHARD: dict[str, Any] = {"lease": "shard"}


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
