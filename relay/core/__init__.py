"""Relay events: read, judge, plan and publish a batch, without any SDK."""
