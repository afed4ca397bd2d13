"""The errors of Cosmos DB.

    CosmosError                 status, code word, message, sub-status
    ├─ BadRequest          400  the request is malformed, or is not served here
    ├─ Unauthorized        401  no signature, or a wrong one
    ├─ NotFound            404
    ├─ MethodNotAllowed    405
    ├─ RequestTimeout      408  only as an injected fault
    ├─ Conflict            409  the id is taken
    ├─ Gone                410  the physical partition does not exist, or no longer
    ├─ PreconditionFailed  412  an ETag, or a patch's condition, does not hold
    ├─ TooLarge            413
    ├─ TooManyRequests     429  only as an injected fault
    └─ ServiceUnavailable  503  only as an injected fault

Bodies are `{"code": …, "message": …}`, some with further details; sub-statuses go into `x-ms-substatus`
(https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb).
"""

from __future__ import annotations

import json

PARTITION_KEY_MISMATCH = 1001
PARTITION_KEY_RANGE_GONE = 1002  # with 410
READ_SESSION_NOT_AVAILABLE = 1002  # with 404
CROSS_PARTITION_QUERY_NOT_SERVABLE = 1004
COLLECTION_RID_MISMATCH = 1024
REQUEST_RATE_TOO_LARGE = 3200


class CosmosError(Exception):
    """An error as the client sees it."""

    status = 500
    code = "InternalServerError"

    def __init__(self, message: str, substatus: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.substatus = substatus
        self.headers: dict[str, str] = {}
        """Added to those of every error: the partition that refused, and its session token."""
        self.details: dict[str, str] = {}
        """Members of the body other than `code` and `message`."""

    @property
    def text(self) -> str:
        """The message in the body."""
        return self.message


class _Listed(CosmosError):
    """An error whose body has its message in a list.

    Source: CosmosItemTests.cs of azure-cosmos-dotnet-v3, which expects these texts of the service.
    """

    @property
    def text(self) -> str:
        return f"Message: {json.dumps({'Errors': [self.message]}, separators=(',', ':'))}"


class BadRequest(CosmosError):
    status = 400
    code = "BadRequest"


class Unauthorized(CosmosError):
    status = 401
    code = "Unauthorized"


class NotFound(_Listed):
    """There is no such resource; the body has its address."""

    status = 404
    code = "NotFound"

    def __init__(
        self,
        message: str = "Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found",
        substatus: int = 0,
        sought: str | None = None,
    ) -> None:
        super().__init__(message, substatus)
        if sought is not None:
            self.args = (f"There is no {sought}.",)


class MethodNotAllowed(CosmosError):
    status = 405
    code = "MethodNotAllowed"

    def __init__(self, message: str = "The requested verb is not supported.") -> None:
        super().__init__(message)


class RequestTimeout(CosmosError):
    status = 408
    code = "RequestTimeout"

    def __init__(self) -> None:
        super().__init__("The requested operation exceeded the maximum allotted time.")


class Conflict(CosmosError):
    status = 409
    code = "Conflict"

    def __init__(self, message: str = "Resource with specified id or name already exists.") -> None:
        super().__init__(message)


class Gone(CosmosError):
    status = 410
    code = "Gone"


class PreconditionFailed(_Listed):
    status = 412
    code = "PreconditionFailed"

    def __init__(
        self,
        message: str = (
            "One of the specified pre-condition is not met. Learn more: "
            "https://aka.ms/CosmosDB/sql/errors/precondition-failed"
        ),
    ) -> None:
        super().__init__(message)


class TooLarge(CosmosError):
    status = 413
    code = "RequestEntityTooLarge"

    def __init__(self, message: str = "Request size is too large.") -> None:
        super().__init__(message)


class TooManyRequests(CosmosError):
    """The request rate is too large.

    The code word and the sub-status are those of the service's answers as users report them, such as
    https://github.com/Azure/azure-sdk-for-java/issues/20288.
    """

    status = 429
    code = "429"

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(
            "Request rate is large. More Request Units may be needed, so no changes were made. Please retry this "
            "request later. Learn more: http://aka.ms/cosmosdb-error-429",
            REQUEST_RATE_TOO_LARGE,
        )
        self.retry_after_ms = retry_after_ms


class ServiceUnavailable(CosmosError):
    status = 503
    code = "ServiceUnavailable"

    def __init__(self) -> None:
        super().__init__(
            "Service is currently unavailable. More info: https://aka.ms/cosmosdb-tsg-service-unavailable"
        )
