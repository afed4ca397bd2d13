"""The documents that reach the function, how often, and their checkpoints."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from datetime import UTC, datetime, timedelta

import pytest

from packages.emulators.tests.integration.apps import (
    Delivery,
    eventually,
)
from packages.emulators.tests.integration.conftest import Outbox, status_of
from tests.support.watchdog import WATCHDOG_S

EAST = "2021-09-22T11:07:37.3022907+02:00"
SYNCHRONOUS = """\
import asyncio
import threading

import azure.functions as func

app = func.FunctionApp()
seen = []


@app.cosmos_db_trigger(
    arg_name="documents", connection="COSMOS", database_name="outbox", container_name="data",
    lease_container_name="leases", feed_poll_delay=30, start_from_beginning=True, max_items_per_invocation=1,
)
"""
ZEROS = "2019-01-01T00:00:01.0000000Z"


async def test_documents_written_before_and_after_the_start_arrive_in_order(outbox: Outbox) -> None:
    await outbox.write(*range(5))
    await outbox.start()
    await outbox.write(*range(5, 10))
    await outbox.recorder.until(lambda: len(outbox.recorder.succeeded_ids()) == 10)
    assert outbox.recorder.succeeded_ids() == [str(number) for number in range(10)]


async def test_an_invocation_gets_at_most_the_declared_number_of_documents(outbox: Outbox) -> None:
    await outbox.write(*range(7))
    await outbox.start(app={"max_items_per_invocation": 3})
    await outbox.recorder.until(lambda: len(outbox.recorder.succeeded_ids()) == 7)
    assert [len(delivery.ids) for delivery in outbox.recorder.succeeded] == [3, 3, 1]


async def test_a_document_arrives_as_stored_with_the_system_properties_of_the_change_feed(outbox: Outbox) -> None:
    data = {"n": [1, 2.5, None, "ü"], "east": EAST, "zeros": ZEROS}
    await outbox.write("1", data=data)
    await outbox.start(app={"keep_dates": True})
    await outbox.recorder.until(lambda: len(outbox.recorder.succeeded) == 1)
    (document,) = outbox.recorder.succeeded[0].documents
    assert document["data"] == data
    assert {"_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"} <= set(document)


async def test_dates_arrive_rewritten_by_default(outbox: Outbox) -> None:
    await outbox.write("1", data={"east": EAST, "zeros": ZEROS})
    await outbox.start({"TZ": "UTC"}, app={"keep_dates": False})
    await outbox.recorder.until(lambda: len(outbox.recorder.succeeded) == 1)
    assert outbox.recorder.succeeded[0].documents[0]["data"] == {
        "east": "2021-09-22T09:07:37.3022907+00:00",
        "zeros": "2019-01-01T00:00:01Z",
    }


async def test_with_an_unlimited_retry_policy_a_failed_batch_is_delivered_again(outbox: Outbox) -> None:
    await outbox.write("1")

    async def fail_three_times(delivery: Delivery) -> None:
        if delivery.retry_count < 3:
            raise ConnectionError("the broker is away")

    outbox.recorder.behaviour = fail_three_times
    host = await outbox.start()
    await outbox.until_succeeded("1")
    assert [delivery.retry_count for delivery in outbox.recorder.deliveries] == [0, 1, 2, 3]
    assert {delivery.max_retry_count for delivery in outbox.recorder.deliveries} == {-1}
    assert outbox.recorder.deliveries[0].previous_error == ""
    assert outbox.recorder.deliveries[3].previous_error == "ConnectionError: the broker is away"
    assert len({delivery.invocation_id for delivery in outbox.recorder.deliveries}) == 1
    assert status_of(host)["retries"] == 3


@pytest.mark.parametrize(
    ("retry", "retry_counts"),
    [
        (None, [0, 0]),
        ('strategy="fixed_delay", max_retry_count="2", delay_interval="00:00:00"', [0, 1, 2, 0]),
    ],
    ids=["no policy", "two retries"],
)
async def test_a_batch_without_a_retry_left_is_lost(
    outbox: Outbox, retry: str | None, retry_counts: list[int]
) -> None:
    await outbox.write("lost")

    async def refuse(delivery: Delivery) -> None:
        if "lost" in delivery.ids:
            raise ConnectionError("the broker is away")

    outbox.recorder.behaviour = refuse
    host = await outbox.start(app={"retry": retry})
    await outbox.recorder.until(lambda: len(outbox.recorder.deliveries) == len(retry_counts) - 1)
    await outbox.write("next")
    await outbox.until_succeeded("next")
    assert [delivery.retry_count for delivery in outbox.recorder.deliveries] == retry_counts
    await eventually(lambda: status_of(host)["documents_delivered"] == 1)
    status = status_of(host)
    assert (status["invocations"], status["documents_lost"]) == (len(retry_counts), 1)
    assert status["failures"] == status["retries"] + 1
    assert status["last_error"] == "ConnectionError: the broker is away"


async def test_a_failing_partition_does_not_hold_up_the_others(outbox: Outbox) -> None:
    async def refuse_one(delivery: Delivery) -> None:
        if "poison" in delivery.ids:
            raise ValueError("never")

    outbox.recorder.behaviour = refuse_one
    await outbox.write("poison")
    once_a_second = 'strategy="fixed_delay", max_retry_count="-1", delay_interval="00:00:01"'
    await outbox.start(app={"retry": once_a_second})
    for number in range(30):
        await outbox.write(number, key=f"key-{number}")
    await outbox.recorder.until(lambda: len(outbox.recorder.succeeded_ids()) >= 15)
    assert "poison" not in outbox.recorder.succeeded_ids()


async def test_a_restarted_host_goes_on_where_the_last_one_checkpointed(outbox: Outbox) -> None:
    await outbox.write("1")
    first = await outbox.start()
    await outbox.until_succeeded("1")
    await outbox.until_checkpointed()
    await first.stop()
    await outbox.write("2")
    await outbox.start()
    await outbox.recorder.until(lambda: "2" in outbox.recorder.succeeded_ids())
    assert outbox.recorder.succeeded_ids() == ["1", "2"]


async def test_a_host_that_stops_during_an_invocation_finishes_it_but_does_not_checkpoint(outbox: Outbox) -> None:
    await outbox.write("1")
    release = asyncio.Event()

    async def wait(_: Delivery) -> None:
        await release.wait()

    outbox.recorder.behaviour = wait
    host = await outbox.start(shutdown_timeout_s=10.0)
    await outbox.until_delivered()
    stopping = asyncio.create_task(host.stop())
    await asyncio.sleep(0)
    release.set()
    async with asyncio.timeout(WATCHDOG_S):
        await stopping
    assert outbox.recorder.succeeded_ids() == ["1"]
    stored = await outbox.stored_leases()
    assert [(lease["Owner"], lease["ContinuationToken"]) for lease in stored] == [(None, None)] * 4
    await outbox.start()
    await outbox.until_succeeded("1", "1")


async def test_a_host_that_stops_puts_the_environment_back(outbox: Outbox) -> None:
    host = await outbox.start({"ONLY_FOR_THE_APP": "1"})
    assert os.environ["ONLY_FOR_THE_APP"] == "1"
    await host.stop()
    assert "ONLY_FOR_THE_APP" not in os.environ
    assert str(outbox.folder / "app") not in sys.path


async def test_a_host_that_stops_does_not_wait_for_the_next_retry(outbox: Outbox) -> None:
    await outbox.write("1")

    async def refuse(_: Delivery) -> None:
        raise ValueError("never")

    outbox.recorder.behaviour = refuse
    hourly = 'strategy="fixed_delay", max_retry_count="-1", delay_interval="01:00:00"'
    host = await outbox.start(app={"retry": hourly}, shutdown_timeout_s=10.0)
    await outbox.until_delivered()
    async with asyncio.timeout(WATCHDOG_S):
        await host.stop()
    assert status_of(host)["documents_lost"] == 0


async def test_an_invocation_that_does_not_end_is_abandoned_when_the_host_stops(outbox: Outbox) -> None:
    await outbox.write("1")
    never = asyncio.Event()

    async def hang(_: Delivery) -> None:
        await never.wait()

    outbox.recorder.behaviour = hang
    host = await outbox.start(shutdown_timeout_s=1.0, instance="hung")
    await outbox.until_delivered()
    async with asyncio.timeout(WATCHDOG_S):
        await host.stop()
    owners = [
        lease["Owner"]
        async for lease in outbox.leases.query_items("SELECT * FROM c WHERE IS_DEFINED(c.LeaseToken)")
    ]
    assert sorted(owners, key=str) == [None, None, None, "hung-relay"]


async def test_an_invocation_longer_than_the_function_timeout_fails_and_is_retried(outbox: Outbox) -> None:
    await outbox.write("1")
    never = asyncio.Event()

    async def hang_at_first(delivery: Delivery) -> None:
        if delivery.retry_count == 0:
            await never.wait()

    outbox.recorder.behaviour = hang_at_first
    await outbox.start(app={"host_json": {"functionTimeout": "00:00:01"}})
    await outbox.until_succeeded("1")
    assert outbox.recorder.deliveries[1].previous_error.startswith("FunctionTimeout: ")


async def test_a_function_that_ends_by_cancellation_has_failed_and_is_retried(outbox: Outbox) -> None:
    await outbox.write("1")

    async def cancel_at_first(delivery: Delivery) -> None:
        if delivery.retry_count == 0:
            raise asyncio.CancelledError

    outbox.recorder.behaviour = cancel_at_first
    await outbox.start()
    await outbox.until_succeeded("1")
    assert outbox.recorder.deliveries[1].previous_error == "RuntimeError: the function was cancelled from within"


async def test_whatever_a_synchronous_function_raises_or_returns_fails_its_invocation(outbox: Outbox) -> None:
    script = (
        SYNCHRONOUS
        + """\
def relay(documents: func.DocumentList) -> object:
    match documents[0]["id"]:
        case "value":
            return 1
        case "stop":
            raise StopIteration
        case "cancelled":
            raise asyncio.CancelledError
    raise ValueError
"""
    )
    host = await outbox.start(app={"script": script})
    await outbox.write("value")
    await eventually(lambda: status_of(host)["documents_lost"] == 1)
    assert "without a $return binding" in status_of(host)["last_error"]

    for id_ in ("stop", "cancelled", "other"):
        await outbox.write(id_)
    await eventually(lambda: status_of(host)["documents_lost"] == 4)


async def test_a_synchronous_function_runs_beside_the_loop_and_sees_its_invocation_id(outbox: Outbox) -> None:
    script = (
        SYNCHRONOUS
        + """\
def relay(documents: str, context: func.Context) -> None:
    local = context.thread_local_storage.invocation_id == context.invocation_id
    seen.append((threading.current_thread() is threading.main_thread(), local, documents[:1]))
"""
    )
    await outbox.write("1")
    host = await outbox.start(app={"script": script})

    await eventually(lambda: bool(status_of(host)["documents_delivered"]))
    assert sys.modules["function_app"].seen == [(False, True, "[")]


async def test_from_now_on_means_that_earlier_documents_are_skipped(outbox: Outbox) -> None:
    await outbox.write("before")
    await outbox.start(app={"start_from_beginning": None})
    await outbox.write("after")
    await outbox.recorder.until(lambda: len(outbox.recorder.succeeded) == 1)
    assert outbox.recorder.succeeded_ids() == ["after"]


async def test_a_start_time_in_the_past_brings_what_was_written_since(outbox: Outbox) -> None:
    await outbox.write("1")
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    await outbox.start({"SINCE": hour_ago}, app={"start_from_beginning": None, "start_from_time": "%SINCE%"})
    await outbox.until_succeeded("1")


async def test_the_log_has_the_invocations_but_not_the_documents(
    outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "outbox_relay.emulators.functions")
    await outbox.write("1", data={"secret": "xyzzy"})

    async def fail_at_first(delivery: Delivery) -> None:
        if delivery.retry_count == 0:
            raise ConnectionError("away")

    outbox.recorder.behaviour = fail_at_first
    await outbox.start()
    await outbox.until_succeeded("1")
    await eventually(lambda: "Executed 'Functions.relay' (Succeeded" in caplog.text)
    assert "Executing 'Functions.relay'" in caplog.text
    assert "Executed 'Functions.relay' (Failed" in caplog.text
    assert "Next attempt: '1'. Max retry count: '-1'." in caplog.text
    assert "xyzzy" not in caplog.text
