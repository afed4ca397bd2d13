"""A connection of the receivers' world delivers in order, also what it delivers last."""

from __future__ import annotations

from functools import partial

from verification.simulation import determinism
from verification.simulation.channel import RpcChannel
from verification.simulation.receiving.connection import Connection
from verification.simulation.world import World


def test_nothing_arrives_ahead_of_what_was_sent_before_when_the_connection_breaks() -> None:
    for seed in range(200):
        world = World(f"{seed}")
        line = RpcChannel(world, "broker")
        line.loses = 1.0
        arrived: list[int] = []
        with determinism.of(world):
            connection = Connection(line, world.process("client"), lambda: None, lambda: None)
            for number in range(20):
                connection.up(partial(arrived.append, number))
            world.outside.after(2.0, int)
            world.run(lambda: False, 1.0)
            world.close()

        assert arrived == list(range(len(arrived))), seed
