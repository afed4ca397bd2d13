"""Request units, of the order the service charges.

Source: a point read of 1 KB costs 1 RU, a write about five times as much
(https://learn.microsoft.com/azure/cosmos-db/request-units).
"""

from __future__ import annotations

import math

LEAST = 1.0


def read(text: str) -> float:
    return float(_kilobytes(text))


def write(text: str) -> float:
    return round(5.14 + 0.57 * _kilobytes(text), 2)


def query(scanned: int, returned: int) -> float:
    return round(2.2 + 0.03 * scanned + 0.1 * returned, 2)


def feed(texts: list[str]) -> float:
    return LEAST + sum(_kilobytes(text) for text in texts)


def _kilobytes(text: str) -> int:
    return max(1, math.ceil(len(text) / 1024))
