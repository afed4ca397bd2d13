"""Azure Cosmos DB with its change feed, Azure Service Bus, and a Functions trigger host, on one machine."""

__version__ = "0.1.0"
