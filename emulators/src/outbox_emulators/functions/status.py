"""What a function has done so far, for the admin endpoint and for tests."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class FunctionStatus:
    """Counts since the host started.

    `invocations` counts attempts; `documents_delivered` those handed to attempts that succeeded, `documents_lost`
    those checkpointed although every attempt at them failed. `leases` are owned; of those in `invoking`
    the function has documents now, retries and the waits between them included, and they may be lost already.
    """

    name: str
    invocations: int = 0
    failures: int = 0
    retries: int = 0
    documents_delivered: int = 0
    documents_lost: int = 0
    last_error: str | None = None
    leases: list[str] = field(default_factory=list)
    invoking: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
