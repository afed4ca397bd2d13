from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from uuid import UUID

import pytest
from azure.core.settings import settings as azure_settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan

from outbox_relay.operator.cli.main import main
from relay.backends.cosmos.backend import CosmosBackend
from relay.config.clients import HANDLERS, quiet_libraries, switch_off_sdk_tracing
from relay.config.settings import Settings
from tests.support.watchdog import WATCHDOG_S

SETTINGS = {
    "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AAAA;",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AAAA",
}


@pytest.fixture
def azure() -> logging.Logger:
    # As the Functions worker does.
    logging.getLogger().setLevel(logging.INFO)
    return logging.getLogger("azure")


def test_the_azure_sdks_log_warnings_and_no_more(azure: logging.Logger) -> None:
    azure.setLevel(logging.NOTSET)

    quiet_libraries()

    sdk = logging.getLogger("azure.servicebus._pyamqp")
    assert (sdk.isEnabledFor(logging.INFO), sdk.isEnabledFor(logging.WARNING)) == (False, True)
    for name in HANDLERS:
        import_module(name)  # a logger of the SDK has the name of its module
        handlers = logging.getLogger(name)
        assert (handlers.isEnabledFor(logging.ERROR), handlers.isEnabledFor(logging.CRITICAL)) == (False, True)


@pytest.mark.parametrize("level", [logging.DEBUG, logging.ERROR])
def test_a_level_that_somebody_has_set_stays(azure: logging.Logger, level: int) -> None:
    azure.setLevel(level)

    quiet_libraries()

    assert azure.level == level


@pytest.fixture
def traced() -> Iterator[None]:
    """The SDKs' own tracing, as azure-monitor-opentelemetry switches it on in the Functions worker."""
    azure_settings.tracing_implementation = OpenTelemetrySpan
    yield
    azure_settings.tracing_implementation = None


def test_the_sdks_trace_until_it_is_switched_off(traced: None) -> None:
    before = azure_settings.tracing_implementation()

    switch_off_sdk_tracing()

    assert (before, azure_settings.tracing_implementation()) == (OpenTelemetrySpan, None)


def test_assembling_a_relay_changes_no_setting_of_the_process(traced: None) -> None:
    assert CosmosBackend(Settings.from_environment(SETTINGS)).relay is not None

    assert azure_settings.tracing_implementation() is OpenTelemetrySpan


def test_a_command_switches_the_sdks_tracing_off(traced: None) -> None:
    assert main(["explain", "no.json"]) == 2

    assert azure_settings.tracing_implementation() is None


def exported(program: str, **settings: str) -> str:
    """The output of a new process that exports to Application Insights, where nothing answers."""
    environment = {
        **{name: value for name, value in os.environ.items() if "APPLICATIONINSIGHTS" not in name},
        "APPLICATIONINSIGHTS_CONNECTION_STRING": f"InstrumentationKey={UUID(int=1)};IngestionEndpoint=http://127.0.0.1:1/",
        "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
    }
    command = [sys.executable, "-c", f"{program}; os._exit(0)"]
    run = subprocess.run(
        command, env=environment | settings, capture_output=True, text=True, timeout=WATCHDOG_S, check=True
    )
    return run.stdout.strip()


def test_a_worker_that_exports_does_not_trace_the_sdks() -> None:
    program = (
        "import os, outbox_relay.operator.cli.run as command; command._set_up_telemetry(os.environ);"
        "from azure.core.settings import settings; print(settings.tracing_implementation(), flush=True)"
    )

    assert exported(program) == "None"


def test_a_worker_exports_the_logger_that_is_named_as_the_functions_worker_does() -> None:
    program = (
        "import logging, os, outbox_relay.operator.cli.run as command; command._set_up_telemetry(os.environ);"
        "names = ('root', 'relay', 'asyncio');"
        "has = lambda name: any('Otel' in type(each).__name__ or 'LoggingHandler' == type(each).__name__"
        " for each in logging.getLogger(name if name != 'root' else None).handlers);"
        "print([name for name in names if has(name)], flush=True)"
    )

    assert exported(program, PYTHON_APPLICATIONINSIGHTS_LOGGER_NAME="relay") == "['relay']"
