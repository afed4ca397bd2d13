"""`python -m relay install`: makes in an SQL database what the relay needs there."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from outbox_relay.operator.backends.backend import open_sql_backends
from outbox_relay.operator.cli.arguments import Commands
from outbox_relay.operator.cli.terminal import ExitCode, Result, Terminal
from relay.config.streams import read_streams

EXAMPLES = """\
examples:
  python -m relay install --keep 30d
  python -m relay install --keep 30d --create-table
  python -m relay install --keep forever --env-file .local/stack.env --no-roles
  python -m relay install --keep 30d --sql > install.sql

Creates the schema changefeed, the feed of the event table SQL_FEED, and the quarantine's table relay.item. What
exists already stays as it is, except how long positions are kept. It needs the rights of the database's owner,
unlike every other command. With several streams in relay.toml, it does so for each one that has an SQL outbox;
each has a quarantine of its own.
--create-table also creates the event table, with the columns that docs/sql.md describes.
--sql prints the statements instead, and changes nothing: for the owner, who runs them with psql or sqlcmd -b. The
login that prints them needs a right on the event table, to see it."""


def add_to(commands: Commands) -> None:
    parser = commands.add("install", "create what the relay needs in an SQL database", EXAMPLES, run)
    parser.add_argument(
        "--create-table", action="store_true", help="also create the event table, if there is none"
    )
    parser.add_argument(
        "--keep",
        required=True,
        metavar="DURATION",
        help="how long positions that every consumer has read are kept, such as 30d or 12h, or forever",
    )
    parser.add_argument("--no-roles", action="store_true", help="do not create the roles of the feed")
    parser.add_argument(
        "--notify",
        action="store_true",
        help="PostgreSQL: commits wake readers, and writers pay for it",
    )
    parser.add_argument(
        "--sql", dest="as_script", action="store_true", help="print the statements instead of running them"
    )
    parser.add_argument("--no-notify", action="store_true", help="readers poll (default)")


async def run(arguments: argparse.Namespace, environment: Mapping[str, str], _: Terminal) -> Result:
    backends = open_sql_backends(read_streams(environment))
    options = {
        "create_table": arguments.create_table,
        "roles": not arguments.no_roles,
        "notify": arguments.notify and not arguments.no_notify,
    }
    if arguments.as_script:
        script = await backends[0].script_of(backends, keep=arguments.keep, **options)
        return Result(ExitCode.OK, {"sql": script}, script.splitlines())
    done: list[str] = []
    for backend in backends:
        done += await backend.install(keep=arguments.keep, **options)
    # Several streams have the same event table.
    advice = dict.fromkeys(each.advice for each in backends)
    return Result(ExitCode.OK, {"done": done}, [*done, *advice] if done else ["Everything is there already."])
