"""Journals for tests: entries of one key, each a second after the one before."""

from __future__ import annotations

from itertools import count
from typing import Any

from verification.journal import entries
from verification.journal.entries import Entry

KEY = "k"


class Building:
    """A journal that grows. Events are numbers; the digest of event 1 is d1."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._clock = count(1)
        self._numbers = count(1)
        self._positions = count(1)

    def add(self, of: type[Entry], **values: Any) -> None:
        self.entries.append(of(at=float(next(self._clock)), **values))

    def committed(self, *numbers: int, key: str = KEY, sound: bool = True) -> Building:
        for number in numbers:
            position = (next(self._positions), 0)
            self.add(entries.Committed, **event(number, key), position=position, digest=f"d{number}", sound=sound)
        return self

    def accepted(self, *numbers: int, key: str = KEY, digest: str | None = None) -> Building:
        for number in numbers:
            values = {"digest": digest or f"d{number}", "number": next(self._numbers)}
            self.add(entries.Accepted, **event(number, key), **values)
        return self

    def duplicate(self, *numbers: int) -> Building:
        for number in numbers:
            self.add(entries.Duplicate, **event(number), digest=f"d{number}", number=0)
        return self

    def handled(self, *numbers: int, key: str = KEY, consumer: str = "c") -> Building:
        for number in numbers:
            self.add(entries.Handled, **event(number, key), consumer=consumer, digest=f"d{number}")
        return self

    def set_aside(self, *numbers: int) -> Building:
        for number in numbers:
            self.add(entries.SetAside, **event(number), reason="data-not-object")
        return self

    def parked(self, *numbers: int) -> Building:
        return self._each(entries.Parked, numbers)

    def ordered(self, *numbers: int) -> Building:
        return self._each(entries.Ordered, numbers)

    def released(self, *numbers: int) -> Building:
        return self._each(entries.Released, numbers)

    def discarded(self, *numbers: int) -> Building:
        return self._each(entries.Discarded, numbers)

    def _each(self, of: type[Entry], numbers: tuple[int, ...]) -> Building:
        for number in numbers:
            self.add(of, **event(number))
        return self


def event(number: int, key: str = KEY) -> dict[str, str]:
    return {"key": key, "id": f"e{number}"}
