"""The features that a query demands of a client that merges the results of several physical partitions.

A client lists in `x-ms-cosmos-supported-query-features` what it can merge; the service refuses to plan the rest.
The Python SDK, for one, has no GROUP BY across partitions (azure-cosmos 4.17, _GetQueryPlanThroughGateway).
"""

from __future__ import annotations

from outbox_emulators.cosmos.errors import BadRequest
from outbox_emulators.cosmos.query.syntax import Query


def check_features(query: Query, supported: str) -> None:
    """Raise BadRequest unless the client supports all that the query needs; `supported` is the header."""
    known = {feature.strip() for feature in supported.split(",")}
    missing = [feature for feature in _features(query) if feature not in known]
    if missing:
        raise BadRequest(
            "Query contains the following features, which the calling client does not support: "
            f"{' '.join(missing)}. Upgrade the SDK to a version that does, or give the query a partition key."
        )


def _features(query: Query) -> list[str]:
    needed = {
        "Aggregate": query.aggregates and query.value is not None,
        "DCount": query.counts_distinct,
        "Distinct": query.distinct,
        "GroupBy": query.group_by,
        "ListAndSetAggregate": any(call.function in ("MAKELIST", "MAKESET") for call in query.aggregates),
        "MultipleAggregates": len(query.aggregates) > 1,
        "MultipleOrderBy": len(query.order_by) > 1,
        "NonValueAggregate": query.aggregates and query.value is None,
        "OffsetAndLimit": query.offset is not None,
        "OrderBy": query.order_by,
        "Top": query.top is not None,
    }
    return [feature for feature, is_needed in needed.items() if is_needed]
