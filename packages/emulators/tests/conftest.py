"""Settings of Hypothesis and of every Azure SDK client in these tests."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

# The tests of the package run without Hypothesis.
with suppress(ImportError):
    from hypothesis import HealthCheck, settings
    from hypothesis.internal.conjecture import providers

    # On a busy machine an example takes as long as it takes. Each run of a test has the same ones, by its source.
    _patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("tests", _patient, derandomize=True)
    if "FUZZ_EXAMPLES" not in os.environ:
        settings.load_profile("tests")
        # Hypothesis (6.170) draws constants of the modules that a process happens to have imported, too.
        providers._get_local_constants = lambda: providers._local_constants


def pytest_configure(config: pytest.Config) -> None:
    """Fail tests that leave something behind, or hang, unless those of the package run without the project."""
    with suppress(ImportError):
        from tests.support import leaks, local_services, watchdog

        for plugin in (leaks, watchdog, local_services):
            if not config.pluginmanager.is_registered(plugin):
                config.pluginmanager.register(plugin)
