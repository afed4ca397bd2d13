"""`python -m outbox_relay.emulators servicebus`: the broker in the foreground."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from outbox_relay.emulators import process
from outbox_relay.emulators.access import add_allowed_host
from outbox_relay.emulators.addresses import add_host, elsewhere
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_host(parser)
    parser.add_argument(
        "--public-host",
        type=_host_name,
        metavar="NAME",
        help="host name or IP address that connection strings and the certificate have, for clients elsewhere",
    )
    add_allowed_host(parser)
    parser.add_argument("--port", type=int, default=5672, help="AMQP port, 0 for any free one")
    parser.add_argument("--admin-port", type=int, default=5300, help="HTTP port, 0 for any free one")
    parser.add_argument(
        "--tls", action="store_true", help="listen with TLS too, with a certificate made at the start"
    )
    parser.add_argument("--tls-port", type=int, default=5671, help="AMQP port with TLS, 0 for any free one")
    parser.add_argument("--https-port", type=int, default=5443, help="HTTP port with TLS, 0 for any free one")
    parser.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="where to write the certificate that clients trust (default: a temporary file)",
    )
    parser.add_argument(
        "--tls-name",
        type=_host_name,
        action="append",
        default=[],
        metavar="NAME",
        help="a host name or IP address in the certificate besides those of this machine; may be repeated",
    )
    parser.add_argument(
        "--websockets",
        action="store_true",
        help="serve AMQP over WebSockets on the HTTP ports: most clients want the one with TLS",
    )
    parser.add_argument(
        "--entities",
        type=Path,
        metavar="FILE",
        help="queues, topics and subscriptions, in the official emulator's Config.json format",
    )
    parser.add_argument(
        "--queue", action="append", default=[], metavar="NAME", help="a queue, without a file; may be repeated"
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[/SUBSCRIPTION]",
        help="a topic, or a topic and a subscription of it, without a file; may be repeated",
    )
    parser.add_argument(
        "--sessions",
        action="append",
        default=[],
        metavar="NAME[/SUBSCRIPTION]",
        help="a queue, or a subscription of a topic, that requires sessions, without a file; may be repeated",
    )
    parser.add_argument(
        "--tier", choices=("standard", "premium"), default="standard", help="tier whose limits apply"
    )
    parser.add_argument(
        "--partitioned",
        action="append",
        default=[],
        metavar="NAME",
        help="a queue or topic to partition, for which the file's format has no property; may be repeated",
    )
    parser.add_argument(
        "--duplicate-window",
        type=_window_ms,
        metavar="DURATION",
        help="ISO 8601 duration of every duplicate detection window, such as PT10M, for which the file's format "
        "allows five minutes at most",
    )
    parser.add_argument(
        "--ack-delay-ms",
        type=int,
        default=0,
        metavar="MS",
        help="delay of each acknowledgement (default: %(default)s)",
    )
    parser.add_argument(
        "--edges",
        type=_seed,
        default=DEFAULT_SEED,
        metavar="SEED",
        help="seed of the behaviour that varies or is not specified; 'off' for the usual one",
    )
    parser.add_argument(
        "--idle-ms",
        type=_milliseconds,
        metavar="MS",
        help="how long a link may idle before it is detached; by default 60 000, and 600 000 with --edges off",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="append each message that an entity accepts, or drops as a duplicate, as a line of JSON",
    )
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop when standard input ends")


def _seed(text: str) -> int | None:
    try:
        return parse_seed(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number or 'off', not '{text}'") from None


def _window_ms(text: str) -> int:
    try:
        milliseconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not _MIN_WINDOW_MS <= milliseconds <= _MAX_WINDOW_MS:
        raise argparse.ArgumentTypeError(f"must be from PT20S to P7D, not '{text}'")
    return milliseconds


def _host_name(text: str) -> str:
    if not text or not text.isascii():
        raise argparse.ArgumentTypeError(f"must be a host name in ASCII, not '{text}'")
    return text


def _milliseconds(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number of milliseconds above 0, not '{text}'")
    return int(text)


async def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; returns the exit code: 0, or 1 with a line on standard error if it cannot start."""
    if not arguments.tls and (arguments.ca_file or arguments.tls_name):
        print("servicebus: --ca-file and --tls-name are options of a certificate: add --tls", file=sys.stderr)
        return 1
    try:
        return await _serve(arguments, _entities(arguments))
    except (EntitiesError, OSError) as error:
        print(f"servicebus: {error}", file=sys.stderr)
        return 1


def _entities(arguments: argparse.Namespace) -> Entities:
    if arguments.entities is None:
        entities = entities_of_names(arguments.queue, arguments.topic, arguments.sessions)
    elif arguments.queue or arguments.topic or arguments.sessions:
        raise EntitiesError(["give --entities, or --queue, --topic and --sessions, not both"])
    else:
        entities = Entities.from_file(arguments.entities)
    for name in arguments.partitioned:
        entities = entities.with_partitioning(name)
    if arguments.duplicate_window is not None:
        entities = entities.with_duplicate_window(arguments.duplicate_window)
    return entities


def _tls(arguments: argparse.Namespace) -> Tls | None:
    if not arguments.tls:
        return None
    return Tls(arguments.tls_port, arguments.https_port, arguments.ca_file, tuple(arguments.tls_name))


async def _serve(arguments: argparse.Namespace, entities: Entities) -> int:
    server = ServiceBusServer(
        entities,
        host=arguments.host,
        public_host=arguments.public_host,
        allowed_hosts=arguments.allowed_host,
        port=arguments.port,
        admin_port=arguments.admin_port,
        tier=arguments.tier,
        ack_delay_ms=arguments.ack_delay_ms,
        edges=arguments.edges,
        idle_ms=arguments.idle_ms,
        tls=_tls(arguments),
        websockets=arguments.websockets,
        recording=None if arguments.record is None else Recording(arguments.record),
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
                **elsewhere(arguments.host),
                "Entities": ", ".join(entities.names) or "none: create them with the administration client",
            },
        )
        await process.until_stopped(exit_with_stdin=arguments.exit_with_stdin)
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
