"""The services of the wire's world: the emulators' own servers, each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outbox_relay.emulators.cosmos import jsontext
from outbox_relay.emulators.cosmos.batches import BatchOperation, execute_batch
from outbox_relay.emulators.cosmos.physical_partitions import Partition
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.fault_injection import FaultInjector
from outbox_relay.emulators.servicebus.fault_plans import FaultKind, FaultPlan
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.settings import OnPoison
from verification.simulation.connected import ConnectedWorld
from verification.simulation.journal_keeper import Notes
from verification.simulation.topic import CONDITIONS
from verification.simulation.wire.recordings import Recorder, Watch

WINDOW_S = 600
TOPIC = "domain-events"
DATABASE = "outbox"
APP = Path(__file__).parents[3]

_BROKER_PORT, _ADMIN_PORT, _GATEWAY_PORT = 5672, 5300, 8081
_CONTAINERS = ("data:/partitionKey:-1", "leases:/id:-1", "quarantine:/partitionKey")
_START_S = 60.0
ENTITIES: Any = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "simulated",
                "Topics": [
                    {
                        "Name": TOPIC,
                        "Properties": {
                            "RequiresDuplicateDetection": True,
                            "DuplicateDetectionHistoryTimeWindow": f"PT{WINDOW_S}S",
                        },
                    }
                ],
            }
        ]
    }
}


class Services(Notes):
    """A broker and an account, and the settings with which the relay finds them.

    Attributes:
        watch: What became of everything so far.
        lines: The ways to both, by their names.
    """

    world: ConnectedWorld

    def __init__(self, world: ConnectedWorld, policy: OnPoison) -> None:
        super().__init__(world, policy)
        self.watch = Watch(self)
        seed = world.entropy.randrange(1 << 32)
        self.broker = ServiceBusServer(
            Entities.from_document(ENTITIES),
            port=_BROKER_PORT,
            admin_port=_ADMIN_PORT,
            edges=seed,
            recording=Recorder(self.watch.of_topic),
        )
        self.gateway = CosmosServer(
            port=_GATEWAY_PORT, physical_partitions=1, edges=seed, recording=Recorder(self.watch.of_account)
        )
        self.ports = {
            "topic": world.network.port(_BROKER_PORT),
            "account": world.network.port(_GATEWAY_PORT),
        }
        self.lines = {name: port.way for name, port in self.ports.items()}

    def start(self) -> None:
        """Start both, with a topic that refuses what is poisoned."""
        world = self.world
        world.run_task(world.process("broker"), self.broker.start(), _START_S)
        world.run_task(world.process("gateway"), self.gateway.start(), _START_S)
        provision(self.gateway.account, [ContainerSpec.parse(f"{DATABASE}/{each}") for each in _CONTAINERS])
        # Only the outbox has several: a query of all of a container's costs a request for each.
        self.gateway.account.split(DATABASE, "data", self.partitions[0].id)
        for number, condition in enumerate(CONDITIONS):
            self.refuse(condition, message_id=f"refused-{number}-*")

    def refuse(self, condition: str, **more: Any) -> None:
        """Let the topic refuse what is sent, with a condition."""
        self.inject(FaultKind.REJECT, condition=condition, **more)

    def inject(self, kind: FaultKind, **more: Any) -> None:
        """Inject a fault into what is sent to the topic."""
        FaultInjector(self.broker.broker).inject(FaultPlan(kind, TOPIC, **more))

    def commit(self, key: str, documents: Sequence[Mapping[str, Any]]) -> None:
        """Commit documents of one key together."""
        account = self.gateway.account
        container = account.catalog.container(DATABASE, "data")
        requested = [
            BatchOperation.of(jsontext.parse(json.dumps({"operationType": "Create", "resourceBody": document})))
            for document in documents
        ]
        effective = container.partition_key.of_header(json.dumps([key]))
        execute_batch(account.items, container, effective, requested, _never, with_bodies=False)

    def settings(self) -> dict[str, str]:
        """Return the settings of the app."""
        return {
            "COSMOS": self.gateway.connection_string,
            "SERVICEBUS": self.broker.connection_string,
            "RELAY_ON_POISON": self.policy,
            "RELAY_DUPLICATE_WINDOW_S": str(WINDOW_S),
            "RELAY_POLL_DELAY_MS": "5000",
            "RELAY_MAX_ITEMS": "40",
            "RELAY_SEND_TIMEOUT_S": "10",
            "RELAY_ATTEMPT_TIMEOUT_S": "60",
            "AzureWebJobs.relay_age.Disabled": "true",
        }

    @property
    def partitions(self) -> Sequence[Partition]:
        """The physical partitions of the outbox."""
        return self.gateway.account.catalog.container(DATABASE, "data").partitions


def _never(*_: object) -> bool:
    return False
