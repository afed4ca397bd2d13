from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from uuid import UUID

import pytest

from relay.telemetry.logs import quiet_libraries


@pytest.fixture
def azure() -> Iterator[logging.Logger]:
    logger, root = logging.getLogger("azure"), logging.getLogger()
    before = logger.level, root.level
    # As the Functions worker does.
    root.setLevel(logging.INFO)
    yield logger
    for each, level in zip((logger, root), before, strict=True):
        each.setLevel(level)


def test_the_azure_sdks_log_warnings_and_no_more(azure: logging.Logger) -> None:
    azure.setLevel(logging.NOTSET)

    quiet_libraries()

    sdk = logging.getLogger("azure.servicebus._pyamqp")
    assert (sdk.isEnabledFor(logging.INFO), sdk.isEnabledFor(logging.WARNING)) == (False, True)


@pytest.mark.parametrize("level", [logging.DEBUG, logging.ERROR])
def test_a_level_that_somebody_has_set_stays(azure: logging.Logger, level: int) -> None:
    azure.setLevel(level)

    quiet_libraries()

    assert azure.level == level


def test_a_worker_exports_the_logger_that_is_named_as_the_functions_worker_does() -> None:
    program = (
        "import logging, os, relay.cli.run.command as command; command._set_up_telemetry(os.environ);"
        "names = ('root', 'relay', 'asyncio');"
        "has = lambda name: any('Otel' in type(each).__name__ or 'LoggingHandler' == type(each).__name__"
        " for each in logging.getLogger(name if name != 'root' else None).handlers);"
        "print([name for name in names if has(name)], flush=True); os._exit(0)"
    )
    environment = {
        **{name: value for name, value in os.environ.items() if "APPLICATIONINSIGHTS" not in name},
        "APPLICATIONINSIGHTS_CONNECTION_STRING": f"InstrumentationKey={UUID(int=1)};IngestionEndpoint=http://127.0.0.1:1/",
        "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
        "PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME": "relay",
    }
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=40, check=True)

    assert run.stdout.strip() == "['relay']"
