"""The composition root: for each stream of the settings, the functions of its outbox: in Cosmos DB, SQL or both.

`relay/backends/` has the triggers. With wrong settings there is one timer alone, which fails with their names.
"""

from __future__ import annotations

import os
from pathlib import Path

import azure.functions as func

from relay.backends.backend import Backend, open_backends
from relay.config.clients import quiet_libraries, switch_off_sdk_tracing
from relay.config.reader import function_timeout_s
from relay.config.streams import read_streams
from relay.core.errors import SettingsError

APP = Path(__file__).parent

quiet_libraries()
switch_off_sdk_tracing()
app = func.FunctionApp()
backends: list[Backend] = []


def add_refusal(problems: list[str]) -> None:
    """Fail once a minute with the settings to correct, in place of all other functions.

    A host that cannot index the app shows no reason (4.1037: "0 functions loaded"), and counts as healthy.
    """

    @app.timer_trigger(schedule="0 * * * * *", arg_name="timer", run_on_startup=True, use_monitor=False)
    @app.function_name("relay_settings")
    async def refuse_settings(timer: func.TimerRequest) -> None:
        """Raise what is wrong, where the log, the portal and alerts show it."""
        raise SettingsError(problems)


def add_functions() -> None:
    """Add the functions of every stream, or the one that names wrong settings."""
    try:
        streams = read_streams(os.environ, app=APP, function_timeout_s=function_timeout_s(APP))
    except SettingsError as error:
        add_refusal(error.problems)
        return
    backends.extend(backend for stream in streams for backend in open_backends(stream))
    for backend in backends:
        backend.add_functions(app)


add_functions()
