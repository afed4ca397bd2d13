"""The databases of these tests."""

from __future__ import annotations

from tests.support.postgresql import postgres_database, postgres_server

__all__ = ["postgres_database", "postgres_server"]
