#!/usr/bin/env python3
"""Complete the metadata of a distribution with the address of the repository, before a release builds it.

    .ci/release_metadata.py FOLDER

It adds the project's URLs to FOLDER/pyproject.toml, and makes the links of FOLDER/README.md absolute: PyPI shows
that page, on which relative links lead nowhere. The address comes from GITHUB_SERVER_URL and GITHUB_REPOSITORY,
and the links lead to the files of the tag GITHUB_REF_NAME.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urljoin

ROOT = Path(__file__).resolve().parents[1]

# Code blocks and code, which have no links: `rows[0](name)` is none.
_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"(?<=\]\()[^)\s]+")


def urls(repository: str, tag: str, folder: str) -> dict[str, str]:
    """Return the project's URLs by label: those of the released files, and the newest changelog."""
    return {
        "Documentation": f"{repository}/blob/{tag}/README.md#documentation",
        "Source": f"{repository}/tree/{tag}/{folder}",
        "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def with_absolute_links(text: str, page: str) -> str:
    """Return a Markdown page with absolute links.

    Args:
        text: The page.
        page: Its own address.
    """
    parts = _CODE.split(text)
    # Every second part is code.
    parts[::2] = [_TARGET.sub(lambda target: urljoin(page, target[0]), part) for part in parts[::2]]
    return "".join(parts)


def complete(folder: Path, environment: Mapping[str, str]) -> None:
    """Write the URLs and the links into the files of a folder."""
    repository = f"{environment['GITHUB_SERVER_URL']}/{environment['GITHUB_REPOSITORY']}"
    tag, path = environment["GITHUB_REF_NAME"], folder.resolve().relative_to(ROOT).as_posix()
    # The strings of JSON are strings of TOML too.
    lines = [f"{label} = {json.dumps(url)}\n" for label, url in urls(repository, tag, path).items()]
    with (folder / "pyproject.toml").open("a", encoding="utf-8", newline="\n") as file:
        file.writelines(["\n[project.urls]\n", *lines])
    readme = folder / "README.md"
    text = with_absolute_links(readme.read_text(encoding="utf-8"), f"{repository}/blob/{tag}/{path}/README.md")
    readme.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    complete(Path(sys.argv[1]), os.environ)
