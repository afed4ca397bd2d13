"""How much is tried: little among the other tests, much in `make fuzz`."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, settings

# Documents through the hot loop; every other test tries a fixed share of it.
DOCUMENTS = int(os.environ.get("FUZZ_EXAMPLES", "2000"))

# What was tried, by kind, for the report at the end.
tried: Counter[str] = Counter()


def trying(examples: int, **options: Any) -> settings:
    """Hypothesis settings for this many examples, at least a few."""
    return settings(
        max_examples=max(examples, 5),
        deadline=None,
        # An example is a whole invocation, or a whole history of one server.
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.function_scoped_fixture,
            HealthCheck.data_too_large,
        ],
        # Explaining a counterexample would run it hundreds of times more.
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
        print_blob=True,
        **options,
    )


def count(fates: list[str]) -> None:
    """Count the documents of one batch."""
    tried["documents"] += len(fates)
    tried["of them sound events"] += fates.count("event")
    tried["of them of other types"] += fates.count("ignored")
