"""A Cosmos DB account (NoSQL API) on a laptop: the part of its REST API that azure-cosmos needs, on SQLite.

    server.CosmosServer        start, stop, endpoint, connection string
    command                    the same as a process
    ├─ gateway                 HTTP: signature, path, verb → a handler
    │   ├─ items_api           one item, batches, bulk    → operations, batches, hybridrow, patching
    │   ├─ feed_api            change feed, key ranges    → changefeed
    │   ├─ query_api           queries, read-feed, plans  → query/
    │   ├─ catalog_api         databases, containers      → catalog, container_definition
    │   └─ offers_api          throughput                 → offers
    └─ account                 what is behind the wire: catalog, items, feed, offers over one storage

Not served, and refused as the service refuses what an account has not enabled: stored procedures, triggers,
user-defined functions, users and permissions, the change feed of all versions and deletes, vector and full-text
search, JOIN, GROUP BY and subqueries. Never happening of itself: throttling, splits of physical
partitions.
"""
