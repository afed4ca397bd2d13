"""The options of `python -m local up`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from local.stack import ports
from local.stack.arguments import File, Folder, Number, SourceOption
from local.stack.environment import Source
from local.stack.lock import DEFAULT_ENV_FILE
from local.stack.parts import ROOT
from outbox_relay.command_line import number, value, whole_number


def _option(port: ports.Port) -> Parameter:
    more = "0 takes free ones for all that are not given" if port is ports.PAGE else "0 takes a free one"
    return value(whole_number, help=f"{port.what}; {more} (default: {port.default})")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `up`.

    Attributes:
        shards: shards of the SQL feed
        app: folder with function_app.py and host.json
        entities: Config.json of queues and topics; the project's by default
        data: file to keep the documents in, or folder for PostgreSQL; not kept by default
        env_file: file to write the settings to
        logs: folder for the logs
        no_functions: start only the services, to run the relay in another way
        no_blobs: start no Blob Storage although Azurite is installed: large events are quarantined
        detach: start the stack in the background, and return when it is ready; `down` stops it
    """

    port: Annotated[int | None, _option(ports.PAGE)] = None
    cosmos_port: Annotated[int | None, _option(ports.COSMOS)] = None
    postgresql_port: Annotated[int | None, _option(ports.POSTGRESQL)] = None
    servicebus_port: Annotated[int | None, _option(ports.SERVICEBUS)] = None
    servicebus_admin_port: Annotated[int | None, _option(ports.SERVICEBUS_ADMIN)] = None
    functions_port: Annotated[int | None, _option(ports.FUNCTIONS)] = None
    blobs_port: Annotated[int | None, _option(ports.BLOBS)] = None
    source: SourceOption = Source.COSMOS
    shards: Number = 4
    app: Annotated[Folder, Parameter(show_default=False)] = ROOT
    entities: File | None = None
    data: File | None = None
    env_file: File = DEFAULT_ENV_FILE
    logs: Folder = Path(".local/logs")
    no_functions: bool = False
    no_blobs: bool = False
    detach: bool = False
    rates_every: Annotated[
        float | None,
        value(
            number,
            metavar="S",
            help="seconds between live rates on standard error, 0 for none (default: 1 on a terminal; otherwise "
            "10, and only while something happens)",
        ),
    ] = None

    def chosen_ports(self) -> Mapping[ports.Port, int]:
        """Return the number of each port, 0 for any free one.

        It is as given, or its default; with `--port 0`, 0 if not given.
        """
        free = self.port == 0
        given: dict[ports.Port, int | None] = {port: getattr(self, port.name) for port in ports.PORTS}
        return {
            port: (0 if free else port.default) if number is None else number for port, number in given.items()
        }
