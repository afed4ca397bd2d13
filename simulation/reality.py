"""What the code under simulation would learn from the real machine, from the world instead: time and randomness.

Installed once for many universes, as modules that have imported a name have to be found.
"""

from __future__ import annotations

import datetime as datetime_module
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from inbox.watchdog import Watchdog

if TYPE_CHECKING:
    from simulation.world import World

_RealDatetime = datetime_module.datetime
_real = {name: getattr(time, name) for name in ("time", "monotonic", "time_ns", "monotonic_ns", "perf_counter")}
_real_urandom = os.urandom
_real_gettime = time.clock_gettime
_real_uuid1 = uuid.uuid1
_RealRandom = random.Random

# The world that runs, in this thread.
_world: World | None = None


class _IsDatetime(type):
    def __call__(cls, *args: Any, **more: Any) -> _RealDatetime:
        # The real class, for those who look at an object's type.
        return _RealDatetime(*args, **more)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RealDatetime)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _RealDatetime)


class _Datetime(_RealDatetime, metaclass=_IsDatetime):
    """The class `datetime`, whose present is the world's."""

    @classmethod
    def now(cls, tz: datetime_module.tzinfo | None = None) -> Any:
        return _RealDatetime.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return _RealDatetime.fromtimestamp(time.time(), datetime_module.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return cls.now()


class _Random(_RealRandom):
    """The class `Random`, which without a seed is seeded by the world."""

    def __init__(self, x: Any = None) -> None:
        super().__init__(_world.entropy.random() if x is None and _world is not None else x)


def _uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    return _real_uuid1(node, clock_seq) if _world is None else uuid.UUID(bytes=_urandom(16), version=1)


def _monotonic() -> float:
    return _real["monotonic"]() if _world is None else _world.running.monotonic()


def _time() -> float:
    return _real["time"]() if _world is None else _world.running.wall()


def _gettime(clock: int) -> float:
    if _world is None:
        return _real_gettime(clock)
    process = _world.running
    clocks = {time.CLOCK_REALTIME: process.wall, getattr(time, "CLOCK_BOOTTIME", None): process.boottime}
    return clocks.get(clock, process.monotonic)()


def _urandom(size: int) -> bytes:
    return _real_urandom(size) if _world is None else _world.entropy.randbytes(size)


_REPLACED: dict[Any, Callable[..., Any] | type] = {
    _real["time"]: _time,
    _real["monotonic"]: _monotonic,
    _real["perf_counter"]: _monotonic,
    _real["time_ns"]: lambda: int(_time() * 1_000_000_000),
    _real["monotonic_ns"]: lambda: int(_monotonic() * 1_000_000_000),
    _real_urandom: _urandom,
    _real_gettime: _gettime,
    _real_uuid1: _uuid1,
    _RealDatetime: _Datetime,
    _RealRandom: _Random,
}

# Modules that need the real ones, or of which no code runs in a universe.
_LEFT = ("simulation.reality", "_pytest", "pytest", "_strptime", "asyncio", "threading", "logging")

# Packages whose functions have clocks as default arguments.
_WITH_DEFAULTS = ("relay", "changefeed", "inbox", "outbox", "azure")


@contextmanager
def replaced() -> Iterator[None]:
    """Let the modules that are loaded ask the world, until the block ends."""
    _let_extensions_look_up_types()
    undo: list[tuple[Any, str, Any]] = []

    def replace(owner: Any, attribute: str, value: Any) -> None:
        undo.append((owner, attribute, getattr(owner, attribute)))
        setattr(owner, attribute, value)

    for name, module in list(sys.modules.items()):
        if name.startswith(_LEFT) and name != "logging":
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            new = _new(value)
            if new is not None:
                replace(module, attribute, new)
            elif name.startswith(_WITH_DEFAULTS):
                for function in _functions(value):
                    for kind, defaults in _new_defaults(function):
                        replace(function, kind, defaults)
    # A thread would run in real time.
    replace(Watchdog, "start", lambda _: None)
    replace(Watchdog, "stop", lambda _: None)
    try:
        yield
    finally:
        for owner, attribute, value in reversed(undo):
            setattr(owner, attribute, value)
        _restore_in_new_modules()


def _let_extensions_look_up_types() -> None:
    """Let cryptography find the real datetime: it looks once, when it first needs it."""
    with suppress(ImportError):
        from cryptography.x509.verification import PolicyBuilder

        PolicyBuilder().time(_RealDatetime.now())


def _restore_in_new_modules() -> None:
    """Modules that were loaded within the block have imported what stood in for the real thing."""
    real = {id(new): old for old, new in _REPLACED.items()}
    for module in list(sys.modules.values()):
        if module is sys.modules[__name__]:
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in real:
                setattr(module, attribute, real[id(value)])


def _new(value: Any) -> Any:
    # Of other kinds, some cannot be hashed.
    return _REPLACED.get(value) if isinstance(value, BuiltinFunctionType | FunctionType | type) else None


def _functions(value: Any) -> list[FunctionType]:
    """A function, or those of a class."""
    members = [value, *vars(value).values()] if isinstance(value, type) else [value]
    return [each for each in members if isinstance(each, FunctionType)]


def _new_defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Those of its default arguments, by position and by keyword, that need another value."""
    if any(_new(each) for each in function.__defaults__ or ()):
        yield "__defaults__", tuple(_new(each) or each for each in function.__defaults__ or ())
    by_keyword = function.__kwdefaults__ or {}
    if any(_new(each) for each in by_keyword.values()):
        yield "__kwdefaults__", {name: _new(each) or each for name, each in by_keyword.items()}


@contextmanager
def of(world: World) -> Iterator[None]:
    """Let this world be the one that is asked, until the block ends."""
    global _world
    state = random.getstate()
    random.seed(world.entropy.random())
    _world = world
    try:
        yield
    finally:
        _world = None
        random.setstate(state)


def seconds() -> float:
    """The real clock, for those who measure a simulation."""
    return float(_real["perf_counter"]())
