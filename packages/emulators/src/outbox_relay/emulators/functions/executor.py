"""An invocation with its retries: attempts with the same documents until one succeeds or the policy gives up."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from datetime import UTC, datetime

from outbox_relay.emulators.functions.context import RetryContext, RpcException
from outbox_relay.emulators.functions.pause import pause
from outbox_relay.emulators.functions.status import Attempt, FunctionStatus
from outbox_relay.emulators.functions.worker.interface import IndexedFunction, Invocation, InvocationFailed, Worker

logger = logging.getLogger(__name__)


class Executor:
    """Runs one function's invocations, several at a time, one for each key: a lease, or a timer.

    As FunctionExecutorExtensions.TryExecuteAsync in Azure/azure-webjobs-sdk: the policy is kept in memory, every
    attempt has the same value and invocation id, and `stopping` ends the wait for the next attempt but not a
    running attempt. `reason` is what the log gives for an invocation.
    """

    def __init__(
        self,
        function: IndexedFunction,
        *,
        worker: Worker,
        reason: str,
        timeout_s: float | None,
        stopping: asyncio.Event,
        status: FunctionStatus,
    ) -> None:
        self._function = function
        self._worker = worker
        self._reason = reason
        self._timeout_s = timeout_s
        self._stopping = stopping
        self._status = status
        self._random = random.Random()

    async def execute(self, value: str, *, key: str, details: str = "") -> bool:
        """Invoke with the trigger's value, JSON as text; returns whether an attempt succeeded.

        `details` are logged with each attempt.
        """
        try:
            return await self._execute(value, key, details)
        finally:
            self._status.attempts.pop(key, None)

    async def _execute(self, value: str, key: str, details: str) -> bool:
        invocation_id = str(uuid.uuid4())
        policy = self._function.retry_policy
        retries = 0
        delays = policy.delays(self._random) if policy else iter(())
        retry = RetryContext(max_retry_count=policy.max_retry_count if policy else 0)
        while (error := await self._attempt(value, invocation_id, retry, details)) is not None:
            if policy is None:
                return False
            if policy.exhausted(retries):
                logger.error("Function execution failed after '%d' retries.", retries)
                return False
            retries += 1
            self._status.retries += 1
            self._status.attempts[key] = Attempt(retries + 1, str(error))
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
        return True

    async def _attempt(
        self, value: str, invocation_id: str, retry: RetryContext, details: str
    ) -> InvocationFailed | None:
        name = f"Functions.{self._function.name}"
        now = datetime.now(UTC).isoformat()
        logger.info("Executing '%s' (Reason='%s at %s', Id=%s)", name, self._reason, now, invocation_id)
        if details:
            logger.info("Trigger Details: %s", details)
        self._status.invocations += 1
        started = time.monotonic()
        failure: InvocationFailed | None = None
        invocation = Invocation(self._function.name, invocation_id, value, retry)
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
