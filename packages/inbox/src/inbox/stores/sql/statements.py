"""Operations, which are written once for sync and async connections and for each database.

An operation is a generator: it yields statements, is sent their results, and returns its own result. It begins and
ends no transaction: what runs it does. An error of a statement ends the operation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement.

    Attributes:
        sql: The text, with a `?` for each parameter. A literal `?`, `%` or `:` cannot be written.
        parameters: Their values.
    """

    sql: str
    parameters: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a statement.

    Attributes:
        rows: The rows, if it returns any.
        changed: Number of rows changed, if it changes any.
    """

    rows: Sequence[Sequence[Any]] = ()
    changed: int = 0


Operation = Generator[Statement, Result, ResultT]


def run(execute: Callable[[Statement], Result], operation: Operation[ResultT]) -> ResultT:
    """Run an operation with a function that executes one statement."""
    try:
        statement = next(operation)
        while True:
            statement = operation.send(execute(statement))
    except StopIteration as done:
        value: ResultT = done.value
        return value
    finally:
        operation.close()


async def run_async(execute: Callable[[Statement], Awaitable[Result]], operation: Operation[ResultT]) -> ResultT:
    """Run an operation with a coroutine function that executes its statements, and return its result."""
    try:
        statement = next(operation)
        while True:
            statement = operation.send(await execute(statement))
    except StopIteration as done:
        value: ResultT = done.value
        return value
    finally:
        operation.close()
