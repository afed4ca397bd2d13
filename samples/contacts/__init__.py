"""The article's contact service on `outbox/`: its domain, its REST API, and a consumer of its events."""
