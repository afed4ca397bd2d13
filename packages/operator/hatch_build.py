"""Adds the app's package `relay`, whose code the commands run, to the distribution, which has its version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_ROOT = Path(__file__).resolve().parent
# A source distribution has it.
_RELAY = _ROOT / "relay" if (_ROOT / "relay").is_dir() else _ROOT.parents[1] / "relay"


def version() -> str:
    """Return the version of the app's package."""
    text = (_RELAY / "__init__.py").read_text(encoding="utf-8")
    [found] = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return found


class RelayHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Include the package, but not in an editable installation, where it is beside."""
        if version == "editable":
            return
        for file in sorted(_RELAY.rglob("*")):
            if file.is_file() and file.suffix != ".md" and "__pycache__" not in file.parts:
                build_data["force_include"][str(file)] = f"relay/{file.relative_to(_RELAY).as_posix()}"
