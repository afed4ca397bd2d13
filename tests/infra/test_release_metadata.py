"""A release completes the metadata of its distribution with the address of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.infra.project import ROOT
from tests.support.pages import blocks_of
from tests.support.watchdog import WATCHDOG_S

SCRIPT = ".ci/release_metadata.py"
REPOSITORY = "https://forge.example/someone/a-fork"
TAG = "changefeed-v9.8.7"
ENVIRONMENT = {
    "GITHUB_SERVER_URL": "https://forge.example",
    "GITHUB_REPOSITORY": "someone/a-fork",
    "GITHUB_REF_NAME": TAG,
}
distributions = pytest.mark.parametrize(
    "folder",
    [
        "outbox_relay/changefeed",
        "packages/command_line",
        "packages/emulators",
        "packages/inbox",
        "packages/outbox",
    ],
)


def completed(folder: str, copy: Path) -> Path:
    """Complete a distribution in a copy of its folder; return the copied folder."""
    ignored = shutil.ignore_patterns("__pycache__", "tests", "node_modules", "*.egg-info", "dist")
    shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    (copy / ".ci").mkdir()
    shutil.copy(ROOT / SCRIPT, copy / SCRIPT)
    environment = {"PATH": os.environ["PATH"], **ENVIRONMENT}
    subprocess.run([sys.executable, SCRIPT, folder], cwd=copy, env=environment, timeout=WATCHDOG_S, check=True)
    return copy / folder


def targets(page: str) -> Iterator[str]:
    """Yield the addresses of a page's links and pictures."""
    for block in MarkdownIt("gfm-like", {"linkify": False}).parse(page):
        for token in block.children or ():
            yield from (str(value) for name, value in token.attrs.items() if name in ("href", "src"))


def broken(page: str) -> list[str]:
    """Return the links of a page that are relative, or lead to a file that the repository does not have."""
    files = f"{REPOSITORY}/blob/{TAG}/"
    return [
        each
        for each in targets(page)
        if not each.startswith("https://")
        or (each.startswith(REPOSITORY) and not each.startswith(files))
        or (each.startswith(files) and not (ROOT / each.removeprefix(files).partition("#")[0]).is_file())
    ]


def urls(folder: str) -> dict[str, str]:
    return {
        "Documentation": f"{REPOSITORY}/blob/{TAG}/README.md#documentation",
        "Source": f"{REPOSITORY}/tree/{TAG}/{folder}",
        "Changelog": f"{REPOSITORY}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{REPOSITORY}/issues",
    }


@distributions
def test_the_metadata_gets_urls_and_the_readme_absolute_links(folder: str, tmp_path: Path) -> None:
    before = (ROOT / folder / "README.md").read_text(encoding="utf-8")

    copy = completed(folder, tmp_path)

    metadata = tomllib.loads((copy / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    given = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert metadata == {**given, "urls": urls(folder)}
    after = (copy / "README.md").read_text(encoding="utf-8")
    assert len([*targets(after)]) == len([*targets(before)])
    assert broken(after) == []
    assert blocks_of(after, folder) == blocks_of(before, folder)


def test_code_that_looks_like_a_link_stays(tmp_path: Path) -> None:
    code = "`rows[0](name)`\n\n```python\nrows[0](name)\n```\n"
    shutil.copytree(ROOT / "packages/outbox", tmp_path / "given", ignore=shutil.ignore_patterns("src"))
    (tmp_path / "given/README.md").write_text(f"{code}[`page`](../a.md#b) and [here](#c)\n", encoding="utf-8")
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / SCRIPT, tmp_path / SCRIPT)

    command = [sys.executable, SCRIPT, "given"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, **ENVIRONMENT}, timeout=WATCHDOG_S, check=True)

    base = f"{REPOSITORY}/blob/{TAG}"
    assert (tmp_path / "given/README.md").read_text(encoding="utf-8") == (
        f"{code}[`page`]({base}/a.md#b) and [here]({base}/given/README.md#c)\n"
    )


@pytest.mark.slow
@distributions
def test_the_files_that_are_published_have_the_urls_and_links(folder: str, tmp_path: Path) -> None:
    copy = completed(folder, tmp_path)

    built = tmp_path / "dist"
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(built)]
    subprocess.run(build, cwd=copy, check=True, capture_output=True, timeout=WATCHDOG_S)

    for metadata in published(built):
        assert metadata.get_all("Project-URL") == [f"{label}, {url}" for label, url in urls(folder).items()]
        assert metadata["Author"] == "The Outbox Relay authors"
        assert metadata["Description-Content-Type"] == "text/markdown"
        description = metadata.get_payload()
        assert isinstance(description, str)
        assert description == (copy / "README.md").read_text(encoding="utf-8")
        assert broken(description) == []


def published(folder: Path) -> Iterator[Message]:
    """Yield the metadata of the source distribution and of the wheel in a folder."""
    [source] = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        [name] = [each for each in archive.getnames() if each.endswith("/PKG-INFO")]
        file = archive.extractfile(name)
        assert file is not None
        yield message_of(file.read())
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        [name] = [each for each in files.namelist() if each.endswith(".dist-info/METADATA")]
        yield message_of(files.read(name))


def message_of(metadata: bytes) -> Message:
    # As text: the parser of bytes escapes what is beyond ASCII.
    return message_from_string(metadata.decode("utf-8"))
