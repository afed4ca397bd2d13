"""The type checkers of users, in their strict modes: pyright and mypy, in an environment with the libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_OF_SDKS = ('Type of "from_connection_string" is partially unknown',)
"""Beginnings of the errors that an SDK causes: azure-cosmos does not annotate `**kwargs`."""


@dataclass(frozen=True, slots=True)
class TypeCheckers:
    """pyright and mypy, which read the packages of another environment.

    Attributes:
        python: The Python of the environment.
        cache: A folder for mypy.
    """

    python: Path
    cache: Path

    def errors_in(self, folder: Path) -> Iterator[str]:
        """Yield the errors in the programs of a folder, as a user with strict checks sees them."""
        (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
        for each in json.loads(self._pyright(folder, "--outputjson").stdout)["generalDiagnostics"]:
            if not each["message"].startswith(_OF_SDKS):
                line = each["range"]["start"]["line"] + 1
                yield f"pyright: {each['file']}:{line}: {each['message']} ({each.get('rule', '')})"
        options = ("--strict", "--explicit-package-bases", "--no-error-summary", "--cache-dir", str(self.cache))
        checked = self._run(folder, "mypy", *options, "--python-executable", str(self.python), ".")
        if checked.returncode:
            yield from (f"mypy: {folder}/{line}" for line in (checked.stdout + checked.stderr).splitlines())

    def errors_of(self, package: str, folder: Path) -> Iterator[str]:
        """Yield the names of an installed package whose types another checker may not know, or infer otherwise."""
        checked = self._pyright(folder, "--verifytypes", package, "--ignoreexternal")
        if checked.returncode:
            yield f"pyright --verifytypes {package}:\n{checked.stdout}"

    def _pyright(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run(folder, "pyright", *words)

    def _run(self, folder: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["PYRIGHT_PYTHON_IGNORE_WARNINGS"] = "1"  # of a newer version, which it would look for
        # pyright reads the packages of the first Python in PATH.
        environment["PATH"] = os.pathsep.join([str(self.python.parent), environment["PATH"]])
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
