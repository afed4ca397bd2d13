"""The pytest plugin that is loaded into the suites: their repository's other files, and the known failures."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync

from packages.emulators.tests.sdk_suites import devtools, preparers
from packages.emulators.tests.sdk_suites.known import FAILING, NOT_RUN

SUITE = os.environ["SUITE"]
_PARSER = "parse_received_message"

devtools.install(SUITE)
if SUITE == "servicebus":
    preparers.install()
else:
    # Its tests of regions go to this address, the default of Microsoft's emulator, and not to that of the account.
    importlib.import_module("test_config").TestConfig.local_host = os.environ["ACCOUNT_HOST"]


@pytest.fixture(scope="session")
def test_proxy() -> None:
    """The proxy that records tests elsewhere."""


@pytest.fixture(autouse=SUITE == "servicebus")
def parsing_restored() -> Iterator[None]:
    """Take back the parser that test_queue_receive_handler_peek_check_uniq_corr_id leaves in the client's class.

    It drops the lock tokens of the deferred messages of later tests.
    """
    parser = vars(PyamqpTransport)[_PARSER]
    yield
    setattr(PyamqpTransport, _PARSER, parser)
    if _PARSER in vars(PyamqpTransportAsync):
        delattr(PyamqpTransportAsync, _PARSER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for pattern, reason in NOT_RUN[SUITE].items():
            if fnmatch(item.nodeid, pattern):
                item.add_marker(pytest.mark.skip(reason=reason))
        for pattern, reason in FAILING[SUITE].items():
            if fnmatch(item.nodeid, pattern):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
