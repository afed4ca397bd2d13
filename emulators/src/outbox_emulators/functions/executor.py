"""An invocation with its retries: attempts with the same documents until one succeeds or the policy gives up."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from datetime import UTC, datetime

from outbox_emulators.functions.context import RetryContext, RpcException
from outbox_emulators.functions.pause import pause
from outbox_emulators.functions.status import Attempt, FunctionStatus
from outbox_emulators.functions.worker.interface import IndexedFunction, Invocation, InvocationFailed, Worker

logger = logging.getLogger(__name__)


class Executor:
    """Runs one function's invocations, several at a time, one for each lease.

    As FunctionExecutorExtensions.TryExecuteAsync in Azure/azure-webjobs-sdk: the policy is kept in memory, every
    attempt has the same documents and invocation id, and `stopping` ends the wait for the next attempt but not a
    running attempt.
    """

    def __init__(
        self,
        function: IndexedFunction,
        *,
        worker: Worker,
        container: str,
        timeout_s: float | None,
        stopping: asyncio.Event,
        status: FunctionStatus,
    ) -> None:
        self._function = function
        self._worker = worker
        self._container = container
        self._timeout_s = timeout_s
        self._stopping = stopping
        self._status = status
        self._random = random.Random()

    async def execute(self, documents: str, count: int, lease: str) -> bool:
        """Invoke with a lease's documents, a JSON array of `count`; returns whether an attempt succeeded."""
        try:
            return await self._execute(documents, count, lease)
        finally:
            self._status.attempts.pop(lease, None)

    async def _execute(self, documents: str, count: int, lease: str) -> bool:
        invocation_id = str(uuid.uuid4())
        policy = self._function.retry_policy
        retries = 0
        delays = policy.delays(self._random) if policy else iter(())
        retry = RetryContext(max_retry_count=policy.max_retry_count if policy else 0)
        while (error := await self._attempt(documents, invocation_id, retry)) is not None:
            if policy is None:
                return False
            if policy.exhausted(retries):
                logger.error("Function execution failed after '%d' retries.", retries)
                return False
            retries += 1
            self._status.retries += 1
            self._status.attempts[lease] = Attempt(retries + 1, str(error))
            retry = RetryContext(retries, policy.max_retry_count, _as_rpc(error))
            delay = next(delays)
            # The real host says so at Debug too.
            logger.debug(
                "Waiting for %.3f s before retrying %s. Next attempt: '%d'. Max retry count: '%d'.",
                delay,
                self._function.name,
                retries,
                policy.max_retry_count,
            )
            if await pause(delay, until=self._stopping):
                logger.warning("Invocation cancelled - exiting retry loop.")
                return False
        self._status.documents_delivered += count
        return True

    async def _attempt(self, documents: str, invocation_id: str, retry: RetryContext) -> InvocationFailed | None:
        name = f"Functions.{self._function.name}"
        now = datetime.now(UTC).isoformat()
        logger.info(
            "Executing '%s' (Reason='New changes on container %s at %s', Id=%s)",
            name,
            self._container,
            now,
            invocation_id,
        )
        self._status.invocations += 1
        started = time.monotonic()
        failure: InvocationFailed | None = None
        invocation = Invocation(self._function.name, invocation_id, documents, retry)
        try:
            await self._worker.invoke(invocation, timeout_s=self._timeout_s)
        except InvocationFailed as error:
            failure = error
        duration_ms = int((time.monotonic() - started) * 1_000)
        if failure is None:
            logger.info("Executed '%s' (Succeeded, Id=%s, Duration=%dms)", name, invocation_id, duration_ms)
        else:
            self._status.failures += 1
            self._status.last_error = str(failure)
            logger.error(
                "Executed '%s' (Failed, Id=%s, Duration=%dms)\nResult: Failure\nException: %s\n%s",
                name,
                invocation_id,
                duration_ms,
                failure,
                failure.stack_trace,
            )
        return failure


def _as_rpc(failure: InvocationFailed) -> RpcException:
    return RpcException(source=failure.source, stack_trace=failure.stack_trace, message=str(failure))
