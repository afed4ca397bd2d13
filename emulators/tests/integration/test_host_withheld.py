"""A page that the host cannot parse is neither delivered nor retried, and blocks its lease."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from emulators.tests.functions.test_documents import nested
from emulators.tests.integration.apps import eventually
from emulators.tests.integration.conftest import Outbox, status_of

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
    outbox: Outbox, caplog: pytest.LogCaptureFixture, data_of_it: dict[str, Any], keep_dates: bool, reason: str
) -> None:
    host = await outbox.start(app={"keep_dates": keep_dates})
    await outbox.write("before")
    await outbox.until_succeeded("before")

    await outbox.data.create_item({"id": "1", "partitionKey": "a", "type": "contact", "data": data_of_it})
    await outbox.write("2")
    await eventually(lambda: len(_withheld(caplog, reason)) >= 3)
    for number in range(30):
        await outbox.data.create_item({"id": f"other-{number}", "partitionKey": f"key-{number}"})
    await outbox.recorder.until(lambda: len(outbox.recorder.succeeded_ids()) > 15)

    status = status_of(host)
    assert {"1", "2"}.isdisjoint(outbox.recorder.succeeded_ids())
    assert (status["failures"], status["retries"], status["documents_lost"]) == (0, 0, 0)
    assert reason in status["last_error"]
    assert [lease["Owner"] for lease in await outbox.stored_leases()].count(None) <= 1

    await outbox.data.delete_item("1", partition_key="a")
    await outbox.recorder.until(lambda: "2" in outbox.recorder.succeeded_ids())


@pytest.mark.parametrize("data_of_it", [nested(62), {"at": TOO_LATE}], ids=["63 levels", "such a date, kept"])
async def test_what_the_host_can_parse_is_delivered(outbox: Outbox, data_of_it: dict[str, Any]) -> None:
    await outbox.write("1", data=data_of_it)
    await outbox.start()
    await outbox.until_succeeded("1")
