"""The image of the worker: what is copied into it exists and suffices to run. The image is not built here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from outbox_relay.operator.cli.terminal import ExitCode
from relay.routes.file import FILE
from tests.infra.project import ROOT, SITES, Project
from tests.support.watchdog import WATCHDOG_S

LOCK = "packages/operator/requirements.lock"
COMMAND_LINE = "packages/command_line/src/outbox_relay/command_line"
OPERATOR = "packages/operator/src/outbox_relay/operator"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
IMPORTS = """
import outbox_relay.command_line, outbox_relay.operator.cli.main
import outbox_relay.changefeed.postgresql.sessions, relay.backends.sql.backend
from outbox_relay.changefeed.install import migrations
assert migrations("postgresql") and migrations("sqlserver")
print(outbox_relay.changefeed.__file__, relay.__file__, outbox_relay.operator.__file__, sep="\\n")
"""


def instructions(name: str) -> list[str]:
    """The arguments of every instruction of this name, with continued lines joined."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} +(.+?) *$", joined, re.MULTILINE)


def copied() -> list[tuple[str, str]]:
    """Return the source and the destination of every COPY, of several sources one after another."""
    lines = [line.split() for line in instructions("COPY")]
    return [(source.rstrip("/"), line[-1].rstrip("/")) for line in lines for source in line[:-1]]


PATTERNS = [
    line
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


@cache
def context() -> list[str]:
    """The versioned files that .dockerignore lets through: the last pattern that matches decides."""
    return [path for path in versioned() if not ignored(path, PATTERNS)]


def ignored(path: str, patterns: list[str]) -> bool:
    """https://docs.docker.com/build/concepts/context/#dockerignore-files"""
    out = False
    names = [str(each) for each in (PurePosixPath(path), *PurePosixPath(path).parents)][:-1]
    for pattern in patterns:
        wanted = pattern.lstrip("!")
        if any(matches(name, wanted) for name in names):
            out = not pattern.startswith("!")
    return out


def matches(name: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch(PurePosixPath(name).name, pattern[3:])
    return name.count("/") == pattern.count("/") and fnmatch(name, pattern)


def versioned() -> list[str]:
    """Every file of the repository that is there, new ones included."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=True,
    ).stdout
    return [path for path in listed.splitlines() if (ROOT / path).is_file()]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder /app of the image."""
    folder = tmp_path_factory.mktemp("app")
    for source, destination in copied():
        for path in context():
            if path == source or path.startswith(f"{source}/"):
                target = folder / (
                    Path(path).name if destination == "." else destination + path.removeprefix(source)
                )
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, target)
    return folder


def python(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs the interpreter in a folder with nothing else of the project on its path."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "SYSTEMROOT", "LANG")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=kept | settings,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )


pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git clone")


def test_what_is_copied_exists_and_is_all_that_is_sent_to_the_builder() -> None:
    sources = [source for source, _ in copied()]
    sent = context()

    # The lock is there for the second COPY too, whose other file need not exist.
    assert sources == [LOCK, "outbox_relay", "relay", COMMAND_LINE, OPERATOR, LOCK, "relay.tom[l]"]
    assert all((ROOT / source).exists() for source in sources[:6])
    assert all(any(f"{path}/".startswith(f"{source}/") for source in sources) for path in sent if path != FILE)
    assert fnmatch(FILE, sources[6])
    assert not ignored(FILE, PATTERNS)
    assert {"relay/__main__.py", "outbox_relay/changefeed/postgresql/migrations/0005_baseline.sql"} <= set(sent)
    assert not [path for path in sent if path.endswith(("README.md", "pyproject.toml"))]


def test_the_copied_files_suffice_to_run_the_relay(image: Path) -> None:
    imported = python(image, "-c", IMPORTS)

    assert imported.returncode == 0, imported.stderr
    assert all(Path(path).is_relative_to(image) for path in imported.stdout.split()), imported.stdout


def test_the_relay_toml_of_the_image_is_read_from_any_folder(image: Path, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("of another program")
    show = "from relay.config.streams import read_file; print(read_file({})[0])"

    shown = python(tmp_path, "-c", show, PYTHONPATH=str(image))

    assert (shown.stdout, shown.stderr) == (f"{image / FILE}\n", "")


def test_the_command_of_the_image_names_the_settings_that_are_missing(image: Path) -> None:
    [command] = instructions("CMD")
    words = json.loads(command)
    assert words[:3] == ["python", "-m", "relay"], "a shell would not pass the signal on"

    ended = python(image, *words[1:])

    assert ended.returncode == ExitCode.USAGE, ended.stderr
    assert "SERVICEBUS" in ended.stderr


def test_the_packages_are_the_locked_ones_and_are_installed_before_the_code_is_copied() -> None:
    [install] = [line for line in instructions("RUN") if "pip install" in line]

    assert "--require-hashes" in install
    assert install.endswith(f"-r {Path(LOCK).name}")
    # A change of the code then leaves the layer of the packages as it is.
    assert DOCKERFILE.index("pip install") < DOCKERFILE.index("COPY relay/")


def test_the_image_runs_as_a_numbered_user_who_is_not_root() -> None:
    [user] = instructions("USER")

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert DOCKERFILE.index("\nUSER ") > DOCKERFILE.rindex("\nRUN ")


def test_the_image_stops_on_the_signal_that_the_worker_handles() -> None:
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    assert not instructions("ENTRYPOINT")


DIGEST = r"@sha256:[0-9a-f]{64}"


def bases(text: str) -> list[str]:
    """The images that a Dockerfile is built on, without its own stages."""
    stages = re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE)
    return [name for name in re.findall(r"^FROM (\S+)", text, re.MULTILINE) if name not in stages]


def test_every_base_image_has_a_digest_and_one_of_a_name_has_one_digest() -> None:
    files = [path for path in versioned() if PurePosixPath(path).name.startswith("Dockerfile")]
    digests: dict[str, set[str]] = {}
    for path in files:
        for base in bases((ROOT / path).read_text(encoding="utf-8")):
            assert re.fullmatch(rf"[\w./-]+:[\w.-]+{DIGEST}", base), f"{path}: {base}"
            name, _, digest = base.partition("@")
            digests.setdefault(name, set()).add(digest)

    assert {"Dockerfile", "packages/emulators/Dockerfile"} <= set(files)
    assert all(len(each) == 1 for each in digests.values()), digests


def test_the_image_has_the_python_of_the_function_app() -> None:
    [base] = bases(DOCKERFILE)
    runtime = Project(ROOT).trial.one(SITES).at("properties.functionAppConfig.runtime.version")

    assert re.fullmatch(rf"python:{runtime}-slim{DIGEST}", base)
