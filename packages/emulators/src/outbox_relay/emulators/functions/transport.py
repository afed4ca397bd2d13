"""HTTP as the trigger's own client retries it, which decides when a lease is given up.

The trigger uses the .NET SDK: a throttled request is repeated nine times within 30 seconds, a dropped connection
for minutes, and any other failure not at all (ResourceThrottleRetryPolicy and ClientRetryPolicy of
azure-cosmos-dotnet-v3). azure-cosmos repeats a 429 up to a hundred times, a 503 four times and a dropped
connection eight times, so its own retries are turned off here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.documents import ConnectionPolicy

from outbox_relay.emulators.functions.pause import pause

MAX_THROTTLED_RETRIES = 9
MAX_THROTTLED_WAIT_S = 30.0
MAX_CONNECTION_RETRIES = 120
CONNECTION_RETRY_S = 1.0

# The reads of the account itself are repeated at once only: whoever wants them tries again (GatewayAccountReader).
_IMMEDIATE_RETRIES = 2
_DEFAULT_RETRY_AFTER_S = 5.0

logger = logging.getLogger(__name__)


def client_options(stopping: asyncio.Event) -> dict[str, Any]:
    """Return the options of azure-cosmos with which a client retries as the trigger's, until `stopping`."""
    policy = ConnectionPolicy()
    # `retry_throttle_total=0` means the default of nine.
    policy.RetryOptions._max_retry_attempt_count = 0
    return {
        "connection_policy": policy,
        "retry_total": 0,
        "retry_connect": 0,
        "retry_read": 0,
        "retry_status": 0,
        "enable_endpoint_discovery": False,
        "transport": TriggerTransport(stopping),
    }


class TriggerTransport(AioHttpTransport):  # type: ignore[misc]  # azure-core exports it lazily, as Any
    """Repeats requests until they are answered, the retries are used up, or `stopping` is set."""

    def __init__(self, stopping: asyncio.Event) -> None:
        super().__init__()
        self._stopping = stopping

    async def send(self, request: Any, **options: Any) -> Any:
        throttled, waited_s = 0, 0.0
        while True:
            response = await self._connected(request, dict(options))
            if response.status_code != 429 or throttled == MAX_THROTTLED_RETRIES:
                return response
            delay_s = _retry_after_s(response.headers)
            throttled, waited_s = throttled + 1, waited_s + delay_s
            if waited_s > MAX_THROTTLED_WAIT_S or await pause(delay_s, until=self._stopping):
                return response

    async def _connected(self, request: Any, options: dict[str, Any]) -> Any:
        """Return the answer to the request, as soon as a connection lasts for one."""
        is_account = not request.url.partition("://")[2].partition("/")[2]
        failures = 0
        while True:
            try:
                return await super().send(request, **dict(options))
            except (ServiceRequestError, ServiceResponseError) as error:
                if isinstance(error.inner_exception, TimeoutError):
                    raise
                failures += 1
                if failures > (_IMMEDIATE_RETRIES if is_account else MAX_CONNECTION_RETRIES):
                    raise
                logger.debug("%s %s has no connection: %s", request.method, request.url, error)
                wait_s = 0.0 if failures <= _IMMEDIATE_RETRIES else CONNECTION_RETRY_S
                if await pause(wait_s, until=self._stopping):
                    raise


def _retry_after_s(headers: Any) -> float:
    value = headers.get("x-ms-retry-after-ms")
    return _DEFAULT_RETRY_AFTER_S if value is None else float(value) / 1_000
