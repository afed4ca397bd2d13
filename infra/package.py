"""Packs the function app into the zip that is released and deployed:

    python3 infra/package.py relay.zip

Its requirements.txt is requirements.lock, so that Azure's remote build installs the locked versions and checks
their hashes. The same files always give the same bytes. Needs the standard library alone.
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = {"function_app.py": "function_app.py", "host.json": "host.json", "requirements.txt": "requirements.lock"}
"""Single files: name in the zip, and path in the repository."""
OPTIONAL = ("relay.toml",)
"""Files that only some apps have."""
FOLDERS = ("relay", "outbox_relay")
_LEFT_OUT = {"LICENSE", "pyproject.toml"}


def packed(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name in the zip of each file, and where it is."""
    for name, path in FILES.items():
        yield name, root / path
    for name in OPTIONAL:
        if (root / name).exists():
            yield name, root / name
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.is_file() and not _ignored(file):
                yield file.relative_to(root).as_posix(), file


def _ignored(file: Path) -> bool:
    return "__pycache__" in file.parts or file.suffix == ".md" or file.name in _LEFT_OUT


def pack(root: Path, target: Path) -> None:
    """Write the zip.

    Raises:
        OSError: A file cannot be read, or the zip not be written.
    """
    with zipfile.ZipFile(target, "w") as archive:
        for name, file in packed(root):
            # A fixed date and mode, and no compression, whose result depends on the version of zlib.
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, file.read_bytes())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Pack the function app into the zip that is deployed.")
    parser.add_argument("zip", type=Path, help="the file to write, such as relay.zip")
    given = parser.parse_args(arguments)
    try:
        pack(ROOT, given.zip)
    except OSError as error:
        parser.exit(1, f"{given.zip} was not written: {error}\n")


if __name__ == "__main__":
    main()
