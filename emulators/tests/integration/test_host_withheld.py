"""A page that the host cannot parse is neither delivered nor retried, and blocks its lease."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from emulators.tests.functions.test_documents import nested
from emulators.tests.integration.apps import Recorder, eventually, stored_leases, write_app
from emulators.tests.integration.conftest import HostFactory

TOO_LATE = "/Date(9999999999999999)/"


def _withheld(caplog: pytest.LogCaptureFixture, reason: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING
        and "encountered an unhandled user exception" in record.getMessage()
        and reason in record.getMessage()
    ]


@pytest.mark.parametrize(
    ("data_of_it", "keep_dates", "reason"),
    [
        (nested(63), True, "MaxDepth of 64 has been exceeded"),
        ({"at": TOO_LATE}, False, "Ticks must be between"),
    ],
    ids=["64 levels", "a date beyond all years"],
)
async def test_a_page_that_cannot_be_parsed_blocks_its_lease_until_the_document_is_gone(
    tmp_path: Path,
    data: ContainerProxy,
    leases: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
    caplog: pytest.LogCaptureFixture,
    data_of_it: dict[str, Any],
    keep_dates: bool,
    reason: str,
) -> None:
    host = host_of(write_app(tmp_path, keep_dates=keep_dates))
    await host.start()
    await data.create_item({"id": "before", "partitionKey": "a"})
    await recorder.until(lambda: recorder.succeeded_ids() == ["before"])

    await data.create_item({"id": "1", "partitionKey": "a", "type": "contact", "data": data_of_it})
    await data.create_item({"id": "2", "partitionKey": "a"})
    await eventually(lambda: len(_withheld(caplog, reason)) >= 3)
    for number in range(30):
        await data.create_item({"id": f"other-{number}", "partitionKey": f"key-{number}"})
    await recorder.until(lambda: len(recorder.succeeded_ids()) > 15)

    status = host.status()["functions"][0]
    assert {"1", "2"}.isdisjoint(recorder.succeeded_ids())
    assert (status["failures"], status["retries"], status["documents_lost"]) == (0, 0, 0)
    assert reason in status["last_error"]
    assert [lease["Owner"] for lease in await stored_leases(leases)].count(None) <= 1

    await data.delete_item("1", partition_key="a")
    await recorder.until(lambda: "2" in recorder.succeeded_ids())


@pytest.mark.usefixtures("leases")
@pytest.mark.parametrize("data_of_it", [nested(62), {"at": TOO_LATE}], ids=["63 levels", "such a date, kept"])
async def test_what_the_host_can_parse_is_delivered(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory, data_of_it: dict[str, Any]
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a", "data": data_of_it})
    await host_of(write_app(tmp_path)).start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])
