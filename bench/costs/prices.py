"""The list prices behind the tables of docs/capacity.md, as inputs."""

from __future__ import annotations

from dataclasses import dataclass

HOURS = 730
"""Of a month, as the price lists have it."""
SECONDS = HOURS * 3600


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars, as remembered from the lists of 2025 and not looked up since: replace them by yours.

    Attributes:
        standard_base: Namespace of Service Bus Standard a month, with 13 million operations.
        standard_to_100: Million operations of Standard, from 13 to 100 million a month.
        standard_to_2500: The same, from 100 to 2 500 million.
        standard_beyond: The same, beyond 2 500 million.
        premium_unit: Messaging unit of Service Bus Premium a month.
        serverless_million: Million request units of serverless Cosmos DB.
        autoscale_100: 100 request units a second of autoscale throughput for an hour.
        cosmos_gigabyte: Gigabyte stored in Cosmos DB for a month.
        ready_baseline: Gigabyte second of an always-ready instance of Flex Consumption, busy or not.
        ready_execution: Gigabyte second of such an instance while it executes, in addition.
        on_demand: Gigabyte second of any other instance while it executes.
        executions: Million executions.
        log_gigabyte: Gigabyte ingested into Log Analytics.
        log_rule: Alert rule on a log query every five minutes, a month.
        metric_rule: Alert rule on a metric, a month.
        private_endpoint: Private endpoint a month.
    """

    standard_base: float = 10.0
    standard_to_100: float = 0.80
    standard_to_2500: float = 0.50
    standard_beyond: float = 0.20
    premium_unit: float = 677.0
    serverless_million: float = 0.25
    autoscale_100: float = 0.012
    cosmos_gigabyte: float = 0.25
    ready_baseline: float = 0.000004
    ready_execution: float = 0.000016
    on_demand: float = 0.000026
    executions: float = 0.40
    log_gigabyte: float = 2.76
    log_rule: float = 1.50
    metric_rule: float = 0.10
    private_endpoint: float = 7.30
