"""The documents that reach the function, how often, and their checkpoints."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.cosmos.aio import ContainerProxy

from emulators.tests.integration.apps import (
    Delivery,
    Recorder,
    checkpoint_written,
    eventually,
    stored_leases,
    write_app,
)
from emulators.tests.integration.conftest import HostFactory

pytestmark = pytest.mark.usefixtures("leases")

EAST = "2021-09-22T11:07:37.3022907+02:00"
ZEROS = "2019-01-01T00:00:01.0000000Z"


async def test_documents_written_before_and_after_the_start_arrive_in_order(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    for number in range(5):
        await data.create_item({"id": str(number), "partitionKey": "a"})
    await host_of(write_app(tmp_path)).start()
    for number in range(5, 10):
        await data.create_item({"id": str(number), "partitionKey": "a"})
    await recorder.until(lambda: len(recorder.succeeded_ids()) == 10)
    assert recorder.succeeded_ids() == [str(number) for number in range(10)]


async def test_a_document_has_the_system_properties_of_the_change_feed(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a", "data": {"n": [1, 2.5, None, "ü"]}})
    await host_of(write_app(tmp_path)).start()
    await recorder.until(lambda: len(recorder.succeeded) == 1)
    (document,) = recorder.succeeded[0].documents
    assert document["data"] == {"n": [1, 2.5, None, "ü"]}
    assert {"_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"} <= set(document)


async def test_an_invocation_gets_at_most_the_declared_number_of_documents(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    for number in range(7):
        await data.create_item({"id": str(number), "partitionKey": "a"})
    await host_of(write_app(tmp_path, max_items_per_invocation=3)).start()
    await recorder.until(lambda: len(recorder.succeeded_ids()) == 7)
    assert [len(delivery.ids) for delivery in recorder.succeeded] == [3, 3, 1]


async def test_dates_arrive_as_stored_if_host_json_says_so(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a", "data": {"east": EAST, "zeros": ZEROS}})
    await host_of(write_app(tmp_path, keep_dates=True)).start()
    await recorder.until(lambda: len(recorder.succeeded) == 1)
    assert recorder.succeeded[0].documents[0]["data"] == {"east": EAST, "zeros": ZEROS}


async def test_dates_arrive_rewritten_by_default(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a", "data": {"east": EAST, "zeros": ZEROS}})
    await host_of(write_app(tmp_path, keep_dates=False), {"TZ": "UTC"}).start()
    await recorder.until(lambda: len(recorder.succeeded) == 1)
    assert recorder.succeeded[0].documents[0]["data"] == {
        "east": "2021-09-22T09:07:37.3022907+00:00",
        "zeros": "2019-01-01T00:00:01Z",
    }


async def test_without_a_retry_policy_a_failed_batch_is_lost(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "lost", "partitionKey": "a"})

    async def fail_once(_: Delivery) -> None:
        if len(recorder.deliveries) == 1:
            raise ConnectionError("the broker is away")

    recorder.behaviour = fail_once
    host = host_of(write_app(tmp_path, retry=None))
    await host.start()
    await recorder.until(lambda: len(recorder.deliveries) == 1)
    await data.create_item({"id": "next", "partitionKey": "a"})
    await recorder.until(lambda: "next" in recorder.succeeded_ids())
    assert recorder.succeeded_ids() == ["next"]
    await eventually(lambda: host.status()["functions"][0]["documents_delivered"] == 1)
    status = host.status()["functions"][0]
    assert (status["invocations"], status["failures"], status["documents_lost"]) == (2, 1, 1)
    assert status["last_error"] == "ConnectionError: the broker is away"


async def test_with_an_unlimited_retry_policy_a_failed_batch_is_delivered_again(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a"})

    async def fail_three_times(delivery: Delivery) -> None:
        if delivery.retry_count < 3:
            raise ConnectionError("the broker is away")

    recorder.behaviour = fail_three_times
    host = host_of(write_app(tmp_path))
    await host.start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])
    assert [delivery.retry_count for delivery in recorder.deliveries] == [0, 1, 2, 3]
    assert {delivery.max_retry_count for delivery in recorder.deliveries} == {-1}
    assert recorder.deliveries[0].previous_error == ""
    assert recorder.deliveries[3].previous_error == "ConnectionError: the broker is away"
    assert len({delivery.invocation_id for delivery in recorder.deliveries}) == 1
    assert host.status()["functions"][0]["retries"] == 3


async def test_when_the_retries_are_used_up_the_batch_is_lost(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "lost", "partitionKey": "a"})

    async def refuse(delivery: Delivery) -> None:
        if "lost" in delivery.ids:
            raise ValueError("never")

    recorder.behaviour = refuse
    twice = 'strategy="fixed_delay", max_retry_count="2", delay_interval="00:00:00"'
    await host_of(write_app(tmp_path, retry=twice)).start()
    await recorder.until(lambda: len(recorder.deliveries) == 3)
    await data.create_item({"id": "next", "partitionKey": "a"})
    await recorder.until(lambda: recorder.succeeded_ids() == ["next"])
    assert [delivery.retry_count for delivery in recorder.deliveries] == [0, 1, 2, 0]


async def test_a_failing_partition_does_not_hold_up_the_others(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    async def refuse_one(delivery: Delivery) -> None:
        if "poison" in delivery.ids:
            raise ValueError("never")

    recorder.behaviour = refuse_one
    await data.create_item({"id": "poison", "partitionKey": "a"})
    once_a_second = 'strategy="fixed_delay", max_retry_count="-1", delay_interval="00:00:01"'
    await host_of(write_app(tmp_path, retry=once_a_second)).start()
    for number in range(30):
        await data.create_item({"id": str(number), "partitionKey": f"key-{number}"})
    await recorder.until(lambda: len(recorder.succeeded_ids()) >= 15)
    assert "poison" not in recorder.succeeded_ids()


async def test_a_restarted_host_goes_on_where_the_last_one_checkpointed(
    tmp_path: Path, data: ContainerProxy, leases: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    app = write_app(tmp_path)
    await data.create_item({"id": "1", "partitionKey": "a"})
    first = host_of(app)
    await first.start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])
    await checkpoint_written(leases)
    await first.stop()
    await data.create_item({"id": "2", "partitionKey": "a"})
    await host_of(app).start()
    await recorder.until(lambda: "2" in recorder.succeeded_ids())
    assert recorder.succeeded_ids() == ["1", "2"]


async def test_a_host_that_stops_during_an_invocation_finishes_it_but_does_not_checkpoint(
    tmp_path: Path, data: ContainerProxy, leases: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a"})
    release = asyncio.Event()

    async def wait(_: Delivery) -> None:
        await release.wait()

    recorder.behaviour = wait
    host = host_of(write_app(tmp_path), shutdown_timeout_s=10.0)
    await host.start()
    await recorder.until(lambda: len(recorder.deliveries) == 1)
    stopping = asyncio.create_task(host.stop())
    await asyncio.sleep(0)
    release.set()
    async with asyncio.timeout(5):
        await stopping
    assert recorder.succeeded_ids() == ["1"]
    stored = await stored_leases(leases)
    assert [(lease["Owner"], lease["ContinuationToken"]) for lease in stored] == [(None, None)] * 4
    await host_of(tmp_path).start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1", "1"])


@pytest.mark.usefixtures("data", "recorder")
async def test_a_host_that_stops_puts_the_environment_back(tmp_path: Path, host_of: HostFactory) -> None:
    host = host_of(write_app(tmp_path), {"ONLY_FOR_THE_APP": "1"})
    await host.start()
    assert os.environ["ONLY_FOR_THE_APP"] == "1"
    await host.stop()
    assert "ONLY_FOR_THE_APP" not in os.environ
    assert str(tmp_path) not in sys.path


async def test_a_host_that_stops_does_not_wait_for_the_next_retry(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a"})

    async def refuse(_: Delivery) -> None:
        raise ValueError("never")

    recorder.behaviour = refuse
    hourly = 'strategy="fixed_delay", max_retry_count="-1", delay_interval="01:00:00"'
    host = host_of(write_app(tmp_path, retry=hourly), shutdown_timeout_s=10.0)
    await host.start()
    await recorder.until(lambda: len(recorder.deliveries) == 1)
    async with asyncio.timeout(5):
        await host.stop()
    assert host.status()["functions"][0]["documents_lost"] == 0


async def test_an_invocation_that_does_not_end_is_abandoned_when_the_host_stops(
    tmp_path: Path, data: ContainerProxy, leases: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a"})
    never = asyncio.Event()

    async def hang(_: Delivery) -> None:
        await never.wait()

    recorder.behaviour = hang
    host = host_of(write_app(tmp_path), shutdown_timeout_s=1.0, instance="hung")
    await host.start()
    await recorder.until(lambda: len(recorder.deliveries) == 1)
    async with asyncio.timeout(5):
        await host.stop()
    owners = [
        lease["Owner"] async for lease in leases.query_items("SELECT * FROM c WHERE IS_DEFINED(c.LeaseToken)")
    ]
    assert sorted(owners, key=str) == [None, None, None, "hung-relay"]


async def test_an_invocation_longer_than_the_function_timeout_fails_and_is_retried(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a"})
    never = asyncio.Event()

    async def hang_at_first(delivery: Delivery) -> None:
        if delivery.retry_count == 0:
            await never.wait()

    recorder.behaviour = hang_at_first
    await host_of(write_app(tmp_path, host_json={"functionTimeout": "00:00:01"})).start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])
    assert recorder.deliveries[1].previous_error.startswith("FunctionTimeout: ")


async def test_a_function_that_ends_by_cancellation_has_failed_and_is_retried(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a"})

    async def cancel_at_first(delivery: Delivery) -> None:
        if delivery.retry_count == 0:
            raise asyncio.CancelledError

    recorder.behaviour = cancel_at_first
    await host_of(write_app(tmp_path)).start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])
    assert recorder.deliveries[1].previous_error == "RuntimeError: the function was cancelled from within"


@pytest.mark.parametrize("error", ["StopIteration", "asyncio.CancelledError", "ValueError"])
async def test_whatever_a_synchronous_function_raises_fails_its_invocation(
    tmp_path: Path, data: ContainerProxy, host_of: HostFactory, error: str
) -> None:
    script = f"""\
import asyncio

import azure.functions as func

app = func.FunctionApp()


@app.cosmos_db_trigger(
    arg_name="documents", connection="COSMOS", database_name="outbox", container_name="data",
    lease_container_name="leases", feed_poll_delay=30, start_from_beginning=True,
)
def relay(documents: func.DocumentList) -> None:
    raise {error}
"""
    await data.create_item({"id": "1", "partitionKey": "a"})
    host = host_of(write_app(tmp_path, script=script))
    await host.start()
    await eventually(lambda: host.status()["functions"][0]["documents_lost"] == 1)


async def test_a_function_that_returns_a_value_fails_as_in_the_worker(
    tmp_path: Path, data: ContainerProxy, host_of: HostFactory
) -> None:
    script = """\
import azure.functions as func

app = func.FunctionApp()


@app.cosmos_db_trigger(
    arg_name="documents", connection="COSMOS", database_name="outbox", container_name="data",
    lease_container_name="leases", feed_poll_delay=30, start_from_beginning=True,
)
def relay(documents: func.DocumentList) -> int:
    return len(documents)
"""
    await data.create_item({"id": "1", "partitionKey": "a"})
    host = host_of(write_app(tmp_path, script=script))
    await host.start()

    await eventually(lambda: bool(host.status()["functions"][0]["failures"]))
    assert "without a $return binding" in host.status()["functions"][0]["last_error"]


async def test_a_synchronous_function_runs_beside_the_loop_and_sees_its_invocation_id(
    tmp_path: Path, data: ContainerProxy, host_of: HostFactory
) -> None:
    script = """\
import threading

import azure.functions as func

app = func.FunctionApp()
seen = []


@app.cosmos_db_trigger(
    arg_name="documents", connection="COSMOS", database_name="outbox", container_name="data",
    lease_container_name="leases", feed_poll_delay=30, start_from_beginning=True,
)
def relay(documents: str, context: func.Context) -> None:
    local = context.thread_local_storage.invocation_id == context.invocation_id
    seen.append((threading.current_thread() is threading.main_thread(), local, documents[:1]))
"""
    await data.create_item({"id": "1", "partitionKey": "a"})
    host = host_of(write_app(tmp_path, script=script))
    await host.start()

    await eventually(lambda: bool(host.status()["functions"][0]["documents_delivered"]))
    assert sys.modules["function_app"].seen == [(False, True, "[")]


async def test_from_now_on_means_that_earlier_documents_are_skipped(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "before", "partitionKey": "a"})
    await host_of(write_app(tmp_path, start_from_beginning=None)).start()
    await data.create_item({"id": "after", "partitionKey": "a"})
    await recorder.until(lambda: len(recorder.succeeded) == 1)
    assert recorder.succeeded_ids() == ["after"]


async def test_a_start_time_in_the_past_brings_what_was_written_since(
    tmp_path: Path, data: ContainerProxy, recorder: Recorder, host_of: HostFactory
) -> None:
    await data.create_item({"id": "1", "partitionKey": "a"})
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    app = write_app(tmp_path, start_from_beginning=None, start_from_time="%SINCE%")
    await host_of(app, {"SINCE": hour_ago}).start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])


async def test_the_log_has_the_invocations_but_not_the_documents(
    tmp_path: Path,
    data: ContainerProxy,
    recorder: Recorder,
    host_of: HostFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "outbox_emulators.functions")
    await data.create_item({"id": "1", "partitionKey": "a", "data": {"secret": "xyzzy"}})

    async def fail_at_first(delivery: Delivery) -> None:
        if delivery.retry_count == 0:
            raise ConnectionError("away")

    recorder.behaviour = fail_at_first
    await host_of(write_app(tmp_path)).start()
    await recorder.until(lambda: recorder.succeeded_ids() == ["1"])
    await eventually(lambda: "Executed 'Functions.relay' (Succeeded" in caplog.text)
    assert "Executing 'Functions.relay'" in caplog.text
    assert "Executed 'Functions.relay' (Failed" in caplog.text
    assert "Next attempt: '1'. Max retry count: '-1'." in caplog.text
    assert "xyzzy" not in caplog.text
