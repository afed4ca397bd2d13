"""The API as a function app: one HTTP function before the whole ASGI application."""

from __future__ import annotations

import azure.functions as func

from samples.contacts.api import app as api

# Function keys, as the API itself asks nobody who they are. Where first requests coincide, the SDK (1.26.0) starts
# the application once for each: some clients of Cosmos DB more, which do no harm.
app = func.AsgiFunctionApp(api, http_auth_level=func.AuthLevel.FUNCTION)
