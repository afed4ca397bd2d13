"""Queries: a subset of the Cosmos DB NoSQL query language.

`parsing` turns text into `syntax`; `evaluation` makes functions of it; `execution` runs a query over items and
pages its results; `planning` tells a client how to merge the results of several partitions.
"""
