"""The relay with changed rules that count sooner: `python -m local.stack.ahead SECONDS run`, or as a function app.

With changed_rules = "later", they count up to a minute after a deployment. A campaign has many deployments.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from outbox_relay import command_line
from outbox_relay.operator.cli.main import main
from relay.routes import rulebook

_APP = """\
import importlib.util

from relay.routes import rulebook

rulebook.AHEAD_S = {seconds}
spec = importlib.util.spec_from_file_location("deployed", {deployed!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
app = module.app
"""


def make_app(folder: Path, app: Path, seconds: int) -> Path:
    """Make a copy of a function app in which changed rules count after the given seconds; return its folder."""
    folder.mkdir()
    deployed = str(app.resolve() / "function_app.py")
    (folder / "function_app.py").write_text(_APP.format(seconds=seconds, deployed=deployed))
    shutil.copy(app / "host.json", folder)
    return folder


def run(arguments: list[str]) -> int:
    """Run a command of the relay; the first argument is the number of seconds."""
    rulebook.AHEAD_S = int(arguments[0])
    return main(arguments[1:])


if __name__ == "__main__":
    sys.exit(command_line.run(lambda: run(sys.argv[1:])))
