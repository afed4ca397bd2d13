"""Adds the app's package `relay`, whose code the commands run, to the distribution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RelayHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Include the package, but not in an editable installation, where it is beside."""
        if version == "editable":
            return
        root = Path(self.root)
        # A source distribution has it.
        relay = root / "relay" if (root / "relay").is_dir() else root.parents[1] / "relay"
        for file in sorted(relay.rglob("*")):
            if file.is_file() and file.suffix != ".md" and "__pycache__" not in file.parts:
                build_data["force_include"][str(file)] = f"relay/{file.relative_to(relay).as_posix()}"
