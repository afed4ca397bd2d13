"""Which ports a stack takes, and what it says of those that are in use."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Iterator

import pytest

from local.stack import ports
from local.stack.environment import Source


def chosen(*words: str) -> dict[str, int]:
    parser = argparse.ArgumentParser()
    ports.add_arguments(parser)
    return {port.option: number for port, number in ports.chosen(parser.parse_args(words)).items()}


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_each_port_has_its_default() -> None:
    assert chosen("--cosmos-port", "9000") == {
        "--port": 7070,
        "--cosmos-port": 9000,
        "--postgresql-port": 5432,
        "--servicebus-port": 5672,
        "--servicebus-admin-port": 5300,
        "--functions-port": 7071,
    }


def test_port_0_takes_free_ports_for_all_that_are_not_given() -> None:
    numbers = chosen("--port", "0", "--servicebus-port", "5672")

    assert numbers.pop("--servicebus-port") == 5672
    assert set(numbers.values()) == {0}


def test_a_port_in_use_is_named_with_its_option(taken: int) -> None:
    numbers = dict.fromkeys(ports.PORTS, 0) | {ports.COSMOS: taken, ports.POSTGRESQL: taken}

    with pytest.raises(ports.PortsInUseError) as caught:
        ports.check(numbers, Source.COSMOS, hosts=True)

    first, last = str(caught.value).splitlines()
    assert first == (
        f"Port {taken} (Cosmos DB) is in use. Choose another with --cosmos-port, or stop what uses it."
    )
    assert last == "--port 0 takes free ports for everything."


def test_only_the_ports_that_the_stack_needs_have_to_be_free(taken: int) -> None:
    numbers = dict.fromkeys(ports.PORTS, 0) | {ports.FUNCTIONS: taken, ports.POSTGRESQL: taken}

    ports.check(numbers, Source.COSMOS, hosts=False)
