"""The options of a stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from local.stack.environment import Source
from local.stack.parts import ROOT


@dataclass(frozen=True, slots=True)
class StackOptions:
    """Ports and files of a stack; port 0 takes any free one.

    Attributes:
        source: Where the events come from: Cosmos DB, or PostgreSQL.
        shards: Number of shards of the SQL feed.
        data: A file that keeps Cosmos DB's documents, or a folder for PostgreSQL; nothing is kept when None.
        temporary: Whether PostgreSQL removes that folder when it stops, unless it is killed.
        entities: The queues and topics, in the official emulator's Config.json format; None for the project's.
        app: The folder with function_app.py and host.json.
        logs: The folder of the parts' logs.
        settings: Settings of the app in addition to those that point at the stack.
        blobs_port: The port of Blob Storage, to which large events then go; None if they are quarantined.
        blob_faults: Whether faults can be injected into writes to it: `local.azurite.faults`.
        hosts: Number of Functions hosts, or workers of the SQL source, to start with the stack.
        cosmos_options, servicebus_options, host_options: Further options of those parts.
        rules_ahead_s: Seconds after which changed rules count in the workers of the SQL source; None for a minute.
        records: Whether the emulators record what they do: see `recording`.
        edges: Every part's `--edges`: a seed, or `off`; None for the default.
    """

    source: Source = Source.COSMOS
    shards: int = 4
    cosmos_port: int = 0
    postgresql_port: int = 0
    servicebus_port: int = 0
    servicebus_admin_port: int = 0
    functions_port: int = 0
    blobs_port: int | None = None
    blob_faults: bool = False
    data: Path | None = None
    temporary: bool = False
    entities: Path | None = None
    app: Path = ROOT
    logs: Path = Path(".local/logs")
    settings: Mapping[str, str] = field(default_factory=dict)
    hosts: int = 1
    cosmos_options: Sequence[str] = ()
    servicebus_options: Sequence[str] = ()
    host_options: Sequence[str] = ()
    rules_ahead_s: int | None = None
    records: bool = False
    edges: int | str | None = None

    @property
    def edge_options(self) -> list[str]:
        """The `--edges` option of every part."""
        return [] if self.edges is None else ["--edges", str(self.edges)]

    def recording(self, part: str) -> Path:
        """Return the file in which the emulator `cosmos` or `servicebus` records what it does."""
        return self.logs / f"{part}.recording.jsonl"

    def record_options(self, part: str) -> list[str]:
        """Return the option of that part, and remove what an earlier stack recorded."""
        if not self.records:
            return []
        self.recording(part).unlink(missing_ok=True)
        return ["--record", str(self.recording(part))]
