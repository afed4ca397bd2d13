"""The errors of the management API."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4
from xml.etree import ElementTree

_MORE = "To know more visit https://aka.ms/sbResourceMgrExceptions."


class ApiError(Exception):
    """A request was refused. `status` is the HTTP status, and the code in the answer's body."""

    status = 500

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def body(self, namespace: str) -> bytes:
        """Encode the service's <Error/>, with its tracking id."""
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
        error = ElementTree.Element("Error")
        ElementTree.SubElement(error, "Code").text = str(self.status)
        ElementTree.SubElement(
            error, "Detail"
        ).text = f"{self.detail} TrackingId:{uuid4()}_L0, SystemTracker:{namespace}, Timestamp:{moment}"
        return bytes(ElementTree.tostring(error, "utf-8"))


class BadRequest(ApiError):
    """The request, or a value in it, is not valid, or not supported here."""

    status = 400

    def __init__(self, what: str) -> None:
        super().__init__(f"SubCode=40000. Bad Request. {what} {_MORE}")


class NoDestination(ApiError):
    """The target of forwarding does not exist (azure-service-bus issue 203)."""

    status = 400

    def __init__(self, name: str) -> None:
        super().__init__(f"SubCode=40400. The auto forwarding destination entity '{name}' does not exist. {_MORE}")


class NotAuthorized(ApiError):
    """There is no valid token."""

    status = 401


class EntityNotFound(ApiError):
    """The entity does not exist."""

    status = 404

    def __init__(self, what: str) -> None:
        super().__init__(f"SubCode=40400. Not Found. {what} {_MORE}")


class MethodNotAllowed(ApiError):
    """There is no such operation on this resource."""

    status = 405

    def __init__(self, method: str) -> None:
        super().__init__(f"SubCode=40500. The method {method} is not allowed on this resource. {_MORE}")


class Conflict(ApiError):
    """There is an entity of this name already."""

    status = 409

    def __init__(self, what: str) -> None:
        super().__init__(
            "SubCode=40900. Conflict. You're requesting an operation that isn't allowed in the resource's current "
            f"state: {what} {_MORE}"
        )
