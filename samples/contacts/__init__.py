"""The article's contact service, built on `outbox/`: domain, REST API and a consumer of its events."""
