"""The article's contact service, built on `packages/outbox/`: domain, REST API and a consumer of its events."""
