from __future__ import annotations

import logging
from collections.abc import Iterator

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
