"""`python -m relay install`: makes in an SQL database what the relay needs there."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from cyclopts import Parameter

from outbox_relay.command_line import value
from outbox_relay.operator.backends.backend import open_sql_backends
from outbox_relay.operator.cli.options import Options, Session, command_app
from outbox_relay.operator.cli.terminal import ExitCode, Result
from relay.config.streams import read_streams
from relay.core.times import parse_duration

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


app = command_app("install", EXAMPLES)

_HOUR = timedelta(hours=1)


def _keep(text: str) -> str:
    """Parse how long positions are kept, in the form that the feed stores. Raises ValueError."""
    if text == "forever":
        return text
    hours, rest = divmod(parse_duration(text), _HOUR)
    if rest or not hours:
        raise ValueError(f"{text!r} is not a number of whole hours: write it as 30d, 12h or forever")
    return f"{hours // 24}d" if hours % 24 == 0 else f"{hours}h"


@app.default
async def install(
    *,
    create_table: bool = False,
    keep: Annotated[
        str,
        value(
            _keep,
            metavar="DURATION",
            help="how long positions that every consumer has read are kept, such as 30d or 12h, or forever",
        ),
    ],
    no_roles: bool = False,
    notify: bool = False,
    as_script: Annotated[bool, Parameter(name="--sql")] = False,
    no_notify: bool = False,
    options: Options = Options(),
    session: Session,
) -> Result:
    """Create what the relay needs in an SQL database.

    Args:
        create_table: also create the event table, if there is none
        no_roles: do not create the roles of the feed
        notify: PostgreSQL: commits wake readers, and writers pay for it
        as_script: print the statements instead of running them
        no_notify: readers poll (default)
    """
    backends = open_sql_backends(read_streams(session.environment))
    chosen = {"create_table": create_table, "roles": not no_roles, "notify": notify and not no_notify}
    if as_script:
        script = await backends[0].script_of(backends, keep=keep, **chosen)
        return Result(ExitCode.OK, {"sql": script}, script.splitlines())
    done: list[str] = []
    for backend in backends:
        done += await backend.install(keep=keep, **chosen)
    # Several streams have the same event table.
    advice = dict.fromkeys(each.advice for each in backends)
    return Result(ExitCode.OK, {"done": done}, [*done, *advice] if done else ["Everything is there already."])
