"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from outbox_relay.command_line import value
from outbox_relay.emulators.addresses import HOST_VARIABLE, LOOPBACK, host_name

Host = Annotated[
    str,
    value(
        host_name,
        metavar="ADDRESS",
        env_var=HOST_VARIABLE,
        show_env_var=False,
        show_default=False,
        help="address to listen on, 0.0.0.0 for all of this machine's: the keys are public "
        f"(default: the environment variable {HOST_VARIABLE}, or else {LOOPBACK})",
    ),
]
"""The address that an emulator listens on."""

AllowedHosts = Annotated[
    tuple[str, ...],
    Parameter(
        name="--allowed-host",
        metavar="NAME",
        help="a host name by which clients reach the HTTP ports, besides localhost; may be repeated",
    ),
]
"""The names by which clients may reach an emulator."""

ExitWithStdin = Annotated[bool, Parameter(help="stop at the end of standard input too")]
"""The option that ties an emulator to the process that started it."""
