"""`python -m outbox_relay.emulators servicebus`: the broker in the foreground."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from outbox_relay.command_line import value, values, whole_number
from outbox_relay.emulators import process
from outbox_relay.emulators.addresses import LOOPBACK, elsewhere
from outbox_relay.emulators.program import AllowedHosts, ExitWithStdin, Host
from outbox_relay.emulators.properties import parse_duration
from outbox_relay.emulators.recording import Recording
from outbox_relay.emulators.servicebus.edges import DEFAULT_SEED, parse_seed
from outbox_relay.emulators.servicebus.entities import Entities, EntitiesError
from outbox_relay.emulators.servicebus.entity_types import DAY_MS
from outbox_relay.emulators.servicebus.listeners import Tls
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.shorthand import entities_of_names

# https://learn.microsoft.com/azure/service-bus-messaging/duplicate-detection
_MIN_WINDOW_MS = 20_000
_MAX_WINDOW_MS = 7 * DAY_MS


def _seed(text: str) -> int | None:
    try:
        return parse_seed(text)
    except ValueError:
        raise ValueError(f"must be a whole number or 'off', not '{text}'") from None


def _window_ms(text: str) -> int:
    try:
        milliseconds = parse_duration(text)
    except ValueError as error:
        raise ValueError(str(error)) from None
    if not _MIN_WINDOW_MS <= milliseconds <= _MAX_WINDOW_MS:
        raise ValueError(f"must be from PT20S to P7D, not '{text}'")
    return milliseconds


def _host_name(text: str) -> str:
    if not text or not text.isascii():
        raise ValueError(f"must be a host name in ASCII, not '{text}'")
    return text


def _milliseconds(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f"must be a whole number of milliseconds above 0, not '{text}'")
    return int(text)


Port = Annotated[int, value(whole_number)]
File = Annotated[Path | None, Parameter(metavar="FILE")]
Names = Annotated[tuple[str, ...], Parameter(metavar="NAME")]
Paths = Annotated[tuple[str, ...], Parameter(metavar="NAME[/SUBSCRIPTION]")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command.

    Attributes:
        port: AMQP port, 0 for any free one
        admin_port: HTTP port, 0 for any free one
        tls: listen with TLS too, with a certificate made at the start
        tls_port: AMQP port with TLS, 0 for any free one
        https_port: HTTP port with TLS, 0 for any free one
        ca_file: where to write the certificate that clients trust (default: a temporary file)
        websockets: serve AMQP over WebSockets on the HTTP ports: most clients want the one with TLS
        entities: queues, topics and subscriptions, in the official emulator's Config.json format
        queue: a queue, without a file; may be repeated
        topic: a topic, or a topic and a subscription of it, without a file; may be repeated
        sessions: a queue, or a subscription of a topic, that requires sessions, without a file; may be repeated
        tier: tier whose limits apply
        partitioned: a queue or topic to partition, for which the file has no property; may be repeated
        ack_delay_ms: delay of each acknowledgement
        edges: seed of the behaviour that varies or is not specified; 'off' for the usual one
        idle_ms: how long a link may idle before it is detached; by default 60 000, and 600 000 with --edges off
        record: append each message that an entity accepts, or drops as a duplicate, as a line of JSON
    """

    host: Host = LOOPBACK
    public_host: Annotated[
        str | None,
        value(
            _host_name,
            metavar="NAME",
            help="host name or IP address that connection strings and the certificate have, for clients elsewhere",
        ),
    ] = None
    allowed_hosts: AllowedHosts = ()
    port: Port = 5672
    admin_port: Port = 5300
    tls: bool = False
    tls_port: Port = 5671
    https_port: Port = 5443
    ca_file: File = None
    tls_name: Annotated[
        tuple[str, ...],
        values(
            _host_name,
            metavar="NAME",
            help="a host name or IP address in the certificate besides those of this machine; may be repeated",
        ),
    ] = ()
    websockets: bool = False
    entities: File = None
    queue: Names = ()
    topic: Paths = ()
    sessions: Paths = ()
    tier: Literal["standard", "premium"] = "standard"
    partitioned: Names = ()
    duplicate_window: Annotated[
        int | None,
        value(
            _window_ms,
            metavar="DURATION",
            help="ISO 8601 duration of every duplicate detection window, such as PT10M, for which the file's "
            "format allows five minutes at most",
        ),
    ] = None
    ack_delay_ms: Annotated[int, value(whole_number, metavar="MS")] = 0
    edges: Annotated[int | None, value(_seed, metavar="SEED")] = DEFAULT_SEED
    idle_ms: Annotated[int | None, value(_milliseconds, metavar="MS")] = None
    record: File = None
    exit_with_stdin: ExitWithStdin = False


async def run(*, options: Options = Options()) -> int:
    """Serve until a signal; returns the exit code: 0, or 1 with a line on standard error if it cannot start."""
    if not options.tls and (options.ca_file or options.tls_name):
        print("servicebus: --ca-file and --tls-name are options of a certificate: add --tls", file=sys.stderr)
        return 1
    try:
        return await _serve(options, _entities(options))
    except (EntitiesError, OSError) as error:
        print(f"servicebus: {error}", file=sys.stderr)
        return 1


def _entities(options: Options) -> Entities:
    if options.entities is None:
        entities = entities_of_names(options.queue, options.topic, options.sessions)
    elif options.queue or options.topic or options.sessions:
        raise EntitiesError(["give --entities, or --queue, --topic and --sessions, not both"])
    else:
        entities = Entities.from_file(options.entities)
    for name in options.partitioned:
        entities = entities.with_partitioning(name)
    if options.duplicate_window is not None:
        entities = entities.with_duplicate_window(options.duplicate_window)
    return entities


def _tls(options: Options) -> Tls | None:
    if not options.tls:
        return None
    return Tls(options.tls_port, options.https_port, options.ca_file, options.tls_name)


async def _serve(options: Options, entities: Entities) -> int:
    server = ServiceBusServer(
        entities,
        host=options.host,
        public_host=options.public_host,
        allowed_hosts=options.allowed_hosts,
        port=options.port,
        admin_port=options.admin_port,
        tier=options.tier,
        ack_delay_ms=options.ack_delay_ms,
        edges=options.edges,
        idle_ms=options.idle_ms,
        tls=_tls(options),
        websockets=options.websockets,
        recording=None if options.record is None else Recording(options.record),
    )
    async with server:
        process.announce(
            {
                "part": "servicebus",
                "connection_string": server.connection_string,
                "port": server.port,
                "admin_port": server.admin_port,
                **_secured(server),
                "duplicate_windows_s": {
                    topic.name: topic.sending.duplicates.window_ms // 1000
                    for topic in entities.topics
                    if topic.sending.duplicates is not None
                },
            }
        )
        process.explain(
            "The Service Bus emulator is ready.",
            {
                "Connection string": server.connection_string,
                "Administration": server.admin_endpoint,
                **_explained(server),
                **elsewhere(options.host),
                "Entities": ", ".join(entities.names) or "none: create them with the administration client",
            },
        )
        await process.until_stopped(exit_with_stdin=options.exit_with_stdin)
    return 0


def _secured(server: ServiceBusServer) -> dict[str, object]:
    strings, secured = server.secure_connection_strings, server.secured
    if strings is None or secured is None:
        return {}
    return {
        "tls_connection_string": strings[0],
        "https_connection_string": strings[1],
        "tls_port": secured.port,
        "https_port": secured.https_port,
        "ca_file": str(secured.ca_file),
    }


def _explained(server: ServiceBusServer) -> dict[str, object]:
    found = _secured(server)
    return found and {
        "With TLS": found["tls_connection_string"],
        "With HTTPS": found["https_connection_string"],
        "Trust": found["ca_file"],
        "  Node": f"NODE_EXTRA_CA_CERTS={found['ca_file']}",
        "  Python": f"connection_verify={str(found['ca_file'])!r}",
        "  .NET, Go": f"SSL_CERT_FILE={found['ca_file']}",
    }
