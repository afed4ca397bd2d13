"""What the Azure SDKs report by themselves. The switches are global: composition roots alone use them."""

from __future__ import annotations

import logging

from azure.core.settings import settings as azure_settings

# The Azure SDKs log every request and every state of a connection at INFO: the Cosmos DB client with the
# partition key, azure-servicebus with some thirty lines a failed send, and the exporter its own requests, which
# would be rows for its next one.
_LIBRARIES = ("azure",)


def quiet_libraries() -> None:
    """Let the Azure SDKs log warnings and errors alone, unless a level has been set for them.

    The Functions worker sets the root logger to INFO, exports what reaches the root logger (or the one that
    PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME names), and hands the same records to the host, which shows them as
    `Function.relay.User`. The log levels of host.json do not reach the worker's exporter.
    https://learn.microsoft.com/azure/azure-functions/opentelemetry-howto
    """
    for name in _LIBRARIES:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


def switch_off_sdk_tracing() -> None:
    """Have the Azure SDKs trace nothing in this process. Call it after whatever switches their tracing on.

    The Functions worker does so together with telemetry, before it loads the app. azure-servicebus (7.15.0) then
    makes a span of each message, and gives the message a second `traceparent`, which is the one that the consumer
    sees: the request that caused the event could not be followed to it. There is no switch for one client.
    """
    azure_settings.tracing_implementation = None
