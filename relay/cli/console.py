"""`python -m relay console`: serves a page that shows where events are, until it is stopped."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from relay.cli import check, shell
from relay.cli.arguments import Commands, one_stream, port_number, with_one_outbox
from relay.cli.terminal import ExitCode, Result, Terminal, stop_signal
from relay.console.ports import Check
from relay.errors import SettingsError, UsageError
from relay.findings import Finding
from relay.streams import read_streams

_REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements-console.txt"

EXAMPLES = """\
examples:
  python -m relay console
  python -m relay console --port 0 --from beginning
  python -m relay console --host 0.0.0.0

Serves one page: the number of events at each stage and its rate, each partition, the recent events, the timeline
of a partition key, quarantine and dead letters by reason, and the findings of `check`. It only reads: it changes
nothing, locks no session and settles no message. docs/console.md describes it.

On an address of this machine, only this machine can open it. On any other address, every request must have passed
the authentication of Azure Container Apps or App Service; there is no option to do without.

SIGTERM or Ctrl-C ends it. The first line on standard output is its address."""


def add_to(commands: Commands) -> None:
    parser = commands.add("console", "serve a page that shows where events are", EXAMPLES, run, one_outbox=True)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=port_number, default=8080, help="port to listen on; 0 takes a free one (default: 8080)"
    )
    parser.add_argument(
        "--from",
        dest="begin",
        choices=("now", "beginning"),
        default="now",
        help="count the events from now on, or read the whole outbox first, which takes request units (default: "
        "now)",
    )


async def run(arguments: argparse.Namespace, environment: Mapping[str, str], _: Terminal) -> Result:
    """Serve the page until SIGINT or SIGTERM."""
    settings = one_stream(arguments, environment)
    if find_spec("jinja2") is None:
        raise UsageError(
            f"the console needs the package 'jinja2', which is missing from {sys.executable}. "
            f"Run {shell.python()} -m pip install -r {shlex.quote(str(_REQUIREMENTS))}."
        )
    # Here, as no other command needs what serves a page.
    from relay.console.application import application
    from relay.console.observer import observer_of
    from relay.console.pages import ConsoleSettings
    from relay.console.server import access_for, loopback, serving
    from relay.console.texts import Commands as PageCommands

    shown = ConsoleSettings.from_environment(environment)
    access = access_for(arguments.host)
    stop = stop_signal()
    chosen = with_one_outbox(settings, arguments.source)
    source = f"--source {arguments.source} " if settings.cosmos and settings.sql else ""
    stream = f"--stream {settings.stream}" if settings.several else ""
    commands = PageCommands(f"{source}{stream}", stream, settings.servicebus_is_queue)
    kind = "queue " if settings.servicebus_is_queue else ""
    of = "" if settings.label is None else f"{settings.stream} → "
    async with observer_of(chosen, environment, from_beginning=arguments.begin == "beginning") as view:
        app = application(
            view,
            access,
            name=f"{of}{kind}{settings.servicebus_topic}",
            settings=shown,
            commands=commands,
            check=check_of(environment),
        )
        async with serving(app, arguments.host, arguments.port) as address:
            print(f"The console is on {address}", flush=True)
            if access is not loopback:
                print("It answers only requests that the platform has authenticated.", file=sys.stderr)
            await stop.wait()
    return Result(ExitCode.OK, {"address": address}, ["Stopped."])


def check_of(environment: Mapping[str, str]) -> Check:
    """`python -m relay check` with these settings and without options, for the page."""

    async def findings() -> Sequence[Finding]:
        try:
            return await check.findings(read_streams(environment), environment)
        except SettingsError as error:
            return check.settings_findings(error)

    return findings
