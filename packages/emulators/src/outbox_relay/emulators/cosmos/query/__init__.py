"""Queries: a subset of the Cosmos DB NoSQL query language.

`parsing` turns text into `syntax`, by a grammar whose trees `clauses` and `expressions` read; `evaluation` makes
functions of it; `execution` runs a query over items and pages its results; `planning` makes the plan by which a
client merges the results of several partitions.
"""
