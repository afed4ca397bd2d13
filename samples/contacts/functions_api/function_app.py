"""The API as a function app: one HTTP function that runs the ASGI application."""

from __future__ import annotations

import azure.functions as func

from samples.contacts.api import app as api

# Callers need a function key, because the API itself has no authentication. If the first requests are concurrent,
# azure-functions 1.26.0 starts the application once for each, which costs a few more Cosmos DB clients.
app = func.AsgiFunctionApp(app=api, http_auth_level=func.AuthLevel.FUNCTION)
