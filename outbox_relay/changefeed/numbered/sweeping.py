"""The sweeper of generation 1: gives gapless numbers to committed changes, in the order of their change_id."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from outbox_relay.changefeed.errors import ChangefeedError
from outbox_relay.changefeed.numbered.statements import statements_for
from outbox_relay.changefeed.statements import AsyncSession, Operation, Session, run, run_async

# Seconds between polls of a sweeper that commits wake.
_LOOK_EVERY_S = 5.0
# Seconds that one statement waits to take over; between two of them the loop checks whether it has to stop.
_TURN_S = 1.0


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep.

    Attributes:
        change_count: Number of changes numbered.
        max_lag_milliseconds: The longest time from a change's insert to its number; it includes the time that the
            writer took to commit.
        iterations: Number of passes; 0 if another sweeper was active all the time.
    """

    change_count: int
    max_lag_milliseconds: int
    iterations: int

    def __add__(self, other: Swept) -> Swept:
        return Swept(
            self.change_count + other.change_count,
            max(self.max_lag_milliseconds, other.max_lag_milliseconds),
            self.iterations + other.iterations,
        )


_NOTHING = Swept(0, 0, 0)


def sweep(session: Session, sweep_group: int = 0) -> Swept:
    """Make one pass: number committed changes, at most 1000 of each shard of the group.

    Raises:
        FeedBusyError: Another pass has kept the lock of a shard for 10 s.
        SetupError: The sequence changefeed.change_id has a cache, or the schema is missing.
        IsolationError, DatabaseError
    """
    return run(session, _swept(statements_for(session).sweep(sweep_group)))


async def sweep_async(session: AsyncSession, sweep_group: int = 0) -> Swept:
    """Make one pass: number committed changes, at most 1000 of each shard of the group.

    See `sweep` for the arguments and errors.
    """
    return await run_async(session, _swept(statements_for(session).sweep(sweep_group)))


def sweep_loop(
    session: Session,
    sweep_group: int = 0,
    *,
    wait_s: float = 30.0,
    duration_s: float = 50.0,
    sleep_s: float = 0.05,
    stop: threading.Event | None = None,
) -> Swept:
    """Sweep a group for a while. Call it again and again, in a thread, with its own session.

    Run as many as you like: one sweeps, the others wait to take over. It is woken by commits; for a group with
    `longpoll = 0` in changefeed.shard, and if the database sends no notifications, it polls every `sleep_s`.

    Args:
        session: A session that nothing else uses; its connection is not pooled by transaction.
        sweep_group: As in changefeed.shard.
        wait_s: Seconds to wait for another sweeper to end.
        duration_s: When to return at the latest, counted from the call.
        sleep_s: The pause after a pass that found nothing, if nothing wakes the sweeper.
        stop: Ends the loop within about a second.

    Raises:
        As `sweep`. A lost connection ends the lock of the group; call it again with another session.
    """
    ends = time.monotonic() + duration_s
    took_over: bool | None = None
    swept = _NOTHING
    try:
        waits_until = time.monotonic() + min(wait_s, duration_s)
        while not took_over:
            took_over = None
            left_s = max(min(waits_until - time.monotonic(), _TURN_S), 0)
            took_over = run(session, statements_for(session).become_sweeper(sweep_group, int(left_s * 1000)))
            if not took_over and (_is_set(stop) or time.monotonic() >= waits_until):
                return swept
        channel = run(session, statements_for(session).sweep_channel(sweep_group))
        if channel is not None:
            session.listen(channel)
        while True:
            one = sweep(session, sweep_group)
            swept += one
            left_s = ends - time.monotonic()
            if left_s <= 0 or _is_set(stop):
                return swept
            if not one.change_count:
                session.notified(min(left_s, sleep_s if channel is None else _TURN_S if stop else _LOOK_EVERY_S))
    finally:
        # If it is unknown whether the lock was granted, it is released.
        if took_over is not False:
            with suppress(ChangefeedError):
                run(session, statements_for(session).resign_sweeper(sweep_group))


async def sweep_loop_async(
    session: AsyncSession,
    sweep_group: int = 0,
    *,
    wait_s: float = 30.0,
    duration_s: float = 50.0,
    sleep_s: float = 0.05,
) -> Swept:
    """Sweep a group for a while.

    Call it again and again, in a task, with its own session; cancel the task to stop it. See `sweep_loop` for
    the arguments and errors.
    """
    ends = time.monotonic() + duration_s
    took_over: bool | None = None
    swept = _NOTHING
    try:
        waits_until = time.monotonic() + min(wait_s, duration_s)
        while not took_over:
            took_over = None
            left_s = max(min(waits_until - time.monotonic(), _TURN_S), 0)
            took_over = await run_async(
                session, statements_for(session).become_sweeper(sweep_group, int(left_s * 1000))
            )
            if not took_over and time.monotonic() >= waits_until:
                return swept
        channel = await run_async(session, statements_for(session).sweep_channel(sweep_group))
        if channel is not None:
            await session.listen(channel)
        while True:
            one = await sweep_async(session, sweep_group)
            swept += one
            left_s = ends - time.monotonic()
            if left_s <= 0:
                return swept
            if not one.change_count:
                await session.notified(min(left_s, sleep_s if channel is None else _LOOK_EVERY_S))
    finally:
        if took_over is not False:
            with suppress(ChangefeedError):
                await run_async(session, statements_for(session).resign_sweeper(sweep_group))


def _is_set(stop: threading.Event | None) -> bool:
    return stop is not None and stop.is_set()


def _swept(sweeping: Operation[tuple[int, int]]) -> Operation[Swept]:
    count, lag_ms = yield from sweeping
    return Swept(count, lag_ms, 1)
