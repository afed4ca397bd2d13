"""A Cosmos DB account (NoSQL API): the REST API that the SDKs use, on SQLite.

    server.CosmosServer        start, stop, endpoint, connection string
    command                    the same as a process: `outbox-relay-emulators cosmos`
    provisioning               containers that exist from the start
    ├─ gateway                 HTTP: signature, faults, path, method → a handler
    │   ├─ admin               /admin/: counts, edges, splits, faults → faults
    │   ├─ items_api           one item, batches, bulk    → operations, batches, hybridrow, patching
    │   ├─ feed_api            change feed, key ranges    → changefeed, scopes
    │   ├─ query_api           queries, read-feed, plans  → query/, scopes
    │   ├─ catalog_api         databases, containers      → catalog, container_definition
    │   └─ offers_api          throughput                 → offers
    └─ account                 the state: catalog, items, change feed and offers in one storage, edges, clock
        ├─ catalog             databases, containers, physical partitions → containers, repartitioning
        ├─ items               documents and commits      → documents, replicas
        └─ changefeed          pages of changes           → edges

Not served, and refused as the service refuses what an account has not enabled: stored procedures, triggers,
user-defined functions, users and permissions, the change feed of all versions and deletes, geospatial functions,
vector and full-text search. Throttling happens on request only.
"""
