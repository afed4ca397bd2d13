"""Contacts on PostgreSQL, through SQLAlchemy: the same domain and use cases, with the outbox in a table."""

from __future__ import annotations

from samples.contacts.sql.connection import open_sql

__all__ = ["open_sql"]
