"""JOIN: an item together with the elements of its own arrays.

Source: https://learn.microsoft.com/azure/cosmos-db/nosql/query/join: a cross product within one item; what is no
array, or has no elements, gives nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from outbox_relay.emulators.cosmos.query.evaluation import Evaluator, Scope


def joined(scope: Scope, joins: Sequence[tuple[str, Evaluator]]) -> Iterator[Scope]:
    """Yield the scope once for each combination of elements. Each join may refer to the names of those before it.

    Raises BadRequest if there are too many.
    """
    if not joins:
        yield scope
        return
    (alias, array), *others = joins
    elements = array(scope)
    if isinstance(elements, list):
        for element in elements:
            scope.budget.spend()
            yield from joined(replace(scope, joined={**scope.joined, alias: element}), others)
