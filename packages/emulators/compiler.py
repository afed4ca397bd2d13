"""Check that this machine can install python-qpid-proton, which is compiled on most platforms.

    python packages/emulators/compiler.py python-qpid-proton==0.40.0

Exits with 1, and one line that says what to install, where pip would fail after a minute with pages of text.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

REMEDY = (
    "{requirement} has no wheel for this platform and is compiled, but {missing} is missing. "
    "Install a C compiler and Python's headers (Debian, Ubuntu: apt-get install gcc python3-dev; "
    "Fedora: dnf install gcc python3-devel; Alpine: apk add build-base python3-dev; "
    "macOS: xcode-select --install), or set PIP_FIND_LINKS to a directory with a wheel of it."
)


def missing() -> str | None:
    """Return the part that is missing for compiling an extension module: the compiler or the headers.

    Visual C++ is not looked for: None on Windows.
    """
    if os.name == "nt":
        return None
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(compiler.split()[0]) is None:
        return f"the C compiler ({compiler.split()[0]})"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.is_file() else str(header)


def has_wheel(requirement: str) -> bool:
    """Return True if pip finds a wheel, on the package index or where PIP_FIND_LINKS says."""
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check")
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", directory, requirement]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def main(requirement: str) -> int:
    lacking = missing()
    if lacking is None or has_wheel(requirement):
        return 0
    print(REMEDY.format(requirement=requirement, missing=lacking), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
