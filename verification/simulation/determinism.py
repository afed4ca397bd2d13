"""Give the code under simulation the world's time, randomness and identity in place of the machine's.

Installed once for many universes, as modules that have imported a name have to be found. Only the thread that runs
a universe asks its world: another thread of the interpreter would change it by each question, at a real moment.
"""

from __future__ import annotations

import datetime as datetime_module
import os
import random
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from outbox_relay.inbox.event_loop import Watchdog

if TYPE_CHECKING:
    from verification.simulation.world import World

_RealDatetime = datetime_module.datetime
_real = {
    name: getattr(time, name)
    for name in (
        "time",
        "monotonic",
        "perf_counter",
        "process_time",
        "thread_time",
        "time_ns",
        "monotonic_ns",
        "perf_counter_ns",
        "process_time_ns",
        "thread_time_ns",
        "clock_gettime",
        "sleep",
    )
}
_real_urandom = os.urandom
_real_getpid = os.getpid
_real_gethostname = socket.gethostname
_real_uuid1 = uuid.uuid1
_RealRandom = random.Random
_real_start = threading.Thread.start

# The generator that the functions of `random` share has these methods.
_SHARED = [name for name in random.__all__ if isinstance(getattr(random, name), BuiltinFunctionType | MethodType)]


class _Here(threading.local):
    """The world that runs in this thread, and what the functions of `random` share in it."""

    world: World | None = None
    shared: random.Random


_here = _Here()


class SimulationError(Exception):
    """The code under simulation has asked for something that only the real machine has."""


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
        world = _here.world
        super().__init__(world.entropy.random() if x is None and world is not None else x)


def _uuid1(node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
    return _real_uuid1(node, clock_seq) if _here.world is None else uuid.UUID(bytes=_urandom(16), version=1)


def _seconds_by(name: str) -> Callable[[], float]:
    """Return the function that reads a clock that does not step."""
    real = _real[name]

    def read() -> float:
        world = _here.world
        return float(real()) if world is None else world.running.monotonic()

    return read


def _time() -> float:
    world = _here.world
    return float(_real["time"]()) if world is None else world.running.wall()


def _nanoseconds_by(name: str, seconds: Callable[[], float]) -> Callable[[], int]:
    """Return the function that reads a clock in nanoseconds."""
    real = _real[name]
    return lambda: int(real()) if _here.world is None else int(seconds() * 1_000_000_000)


def _gettime(clock: int) -> float:
    world = _here.world
    if world is None:
        return float(_real["clock_gettime"](clock))
    process = world.running
    clocks = {time.CLOCK_REALTIME: process.wall, getattr(time, "CLOCK_BOOTTIME", None): process.boottime}
    return clocks.get(clock, process.monotonic)()


def _urandom(size: int) -> bytes:
    world = _here.world
    return _real_urandom(size) if world is None else world.entropy.randbytes(size)


def _shared(name: str) -> Callable[..., Any]:
    """Return a function of `random`, which in a universe uses the generator of its world."""
    real = getattr(random, name)
    return lambda *args, **more: (real if _here.world is None else getattr(_here.shared, name))(*args, **more)


def _getpid() -> int:
    world = _here.world
    return _real_getpid() if world is None else world.running.number


def _gethostname() -> str:
    return _real_gethostname() if _here.world is None else "simulated"


def _sleep(seconds: float) -> None:
    if _here.world is not None:
        raise SimulationError("a simulated process must not block its thread: time.sleep")
    _real["sleep"](seconds)


def _start(thread: threading.Thread) -> None:
    if _here.world is not None:
        raise SimulationError(f"a simulated process must not start a thread: {thread.name}")
    _real_start(thread)


_monotonic = _seconds_by("monotonic")

_REPLACED: dict[Any, Callable[..., Any] | type] = {
    _real["time"]: _time,
    _real["time_ns"]: _nanoseconds_by("time_ns", _time),
    _real["clock_gettime"]: _gettime,
    _real["sleep"]: _sleep,
    **{_real[name]: _seconds_by(name) for name in ("monotonic", "perf_counter", "process_time", "thread_time")},
    **{
        _real[name]: _nanoseconds_by(name, _monotonic)
        for name in ("monotonic_ns", "perf_counter_ns", "process_time_ns", "thread_time_ns")
    },
    **{getattr(random, name): _shared(name) for name in _SHARED},
    _real_urandom: _urandom,
    _real_getpid: _getpid,
    _real_gethostname: _gethostname,
    _real_uuid1: _uuid1,
    _RealDatetime: _Datetime,
    _RealRandom: _Random,
}
_NEW = {id(old): new for old, new in _REPLACED.items()}
_OLD = {id(new): old for old, new in _REPLACED.items()}

# Modules that need the real ones, or of which no code runs in a universe.
_LEFT = (
    "verification.simulation.determinism",
    "_pytest",
    "pytest",
    "_strptime",
    "asyncio",
    "threading",
    "logging",
)

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
        if name.startswith(_WITH_DEFAULTS):
            for function in _functions_with_clocks(module):
                for kind, defaults in _new_defaults(function):
                    replace(function, kind, defaults)
    replace(threading.Thread, "start", _start)
    # Its thread would run in real time.
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
    """Restore the real things in modules that were loaded within the block.

    They have imported what stood in for them.
    """
    for module in list(sys.modules.values()):
        if module is sys.modules[__name__]:
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in _OLD:
                setattr(module, attribute, _OLD[id(value)])


def _new(value: Any) -> Any:
    # By identity: some values cannot be hashed.
    return _NEW.get(id(value))


_with_clocks: WeakKeyDictionary[ModuleType, list[FunctionType]] = WeakKeyDictionary()


def _functions_with_clocks(module: ModuleType) -> list[FunctionType]:
    """Return a module's functions and methods that have clocks as default arguments; each module is read once."""
    if module not in _with_clocks:
        functions = {id(each): each for value in list(vars(module).values()) for each in _functions(value)}
        _with_clocks[module] = [each for each in functions.values() if any(_new_defaults(each))]
    return _with_clocks[module]


def _functions(value: Any) -> list[FunctionType]:
    """Return a function alone, or the functions of a class."""
    members = [value, *vars(value).values()] if isinstance(value, type) else [value]
    return [each for each in members if isinstance(each, FunctionType)]


def _new_defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield those of its default arguments, by position and by keyword, that need another value."""
    if any(_new(each) for each in function.__defaults__ or ()):
        yield "__defaults__", tuple(_new(each) or each for each in function.__defaults__ or ())
    by_keyword = function.__kwdefaults__ or {}
    if any(_new(each) for each in by_keyword.values()):
        yield "__kwdefaults__", {name: _new(each) or each for name, each in by_keyword.items()}


@contextmanager
def of(world: World) -> Iterator[None]:
    """Let this thread ask this world, until the block ends."""
    _here.shared = _RealRandom(world.entropy.random())
    _here.world = world
    try:
        yield
    finally:
        _here.world = None


def seconds() -> float:
    """Return the real clock's seconds, for those who measure a simulation."""
    return float(_real["perf_counter"]())
