"""Contacts on PostgreSQL, through SQLAlchemy: the same domain and use cases, with the outbox in a table."""

from __future__ import annotations

from samples.contacts.sql.connection import open_sql
from samples.contacts.sql.schema import create_schema

__all__ = ["create_schema", "open_sql"]
