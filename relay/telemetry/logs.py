"""Which log records of the libraries leave the process."""

from __future__ import annotations

import logging

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
