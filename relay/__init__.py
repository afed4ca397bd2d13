"""Relays domain events from a transactional outbox in Azure Cosmos DB to an Azure Service Bus topic.

Start reading at `relay.core.pipeline`.
"""

__version__ = "0.1.0"
