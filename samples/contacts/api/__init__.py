"""The REST API: `python -m uvicorn samples.contacts.api:app`."""

from __future__ import annotations

from samples.contacts.api.application import create_app

app = create_app()

__all__ = ["app", "create_app"]
