"""Builds the checks of a compiled language on first use, in its folder `build`, which git ignores.

The folder is named by a hash of the sources, so a change of them builds anew. A lock keeps processes apart.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from packages.emulators.tests.languages.checks import FOLDER
from tests.support.watchdog import WATCHDOG_S

JAVA = FOLDER / "java"
GO = FOLDER / "go"
_BUILDS_KEPT = 4
_OLDEST_JDK = 17
_GO_HINT = "install Go; packages/emulators/tests/languages/go has the version in its go.mod"
# These programs end before code that is compiled a second time pays.
_JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_MAVEN = ("mvn", "--batch-mode", "--quiet", "-Dstyle.color=never")


def names(folder: Path, suffix: str) -> list[str]:
    """Return the names of the checks in the sources below this folder."""
    return [
        name
        for file in sorted(folder.glob(f"**/*{suffix}"))
        for name in re.findall(r'^\s*check\("(.+?)", ', file.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def java(service: str) -> list[str]:
    """Return the command that runs the checks of this service in Java; skip where it cannot be built."""
    jars = java_packages()
    sources = sorted((JAVA / "src").glob("**/*.java"))
    with _built(JAVA, [JAVA / "pom.xml", *sources]) as build:
        if not (build / "compiled").exists():
            _run(["javac", "-d", str(build / "classes"), "-cp", jars, *map(str, sources)], JAVA)
            (build / "compiled").touch()
        return [*_JAVA, "-cp", f"{build / 'classes'}{os.pathsep}{jars}", f"{service}.Main"]


def java_packages() -> str:
    """Return the class path of Microsoft's clients; skip without a JDK, Maven or the packages."""
    hint = f"install a JDK, version {_OLDEST_JDK} or later, and Maven"
    _skip_without("java", "javac", "keytool", "mvn", hint=hint)
    version = subprocess.run(["javac", "-version"], capture_output=True, text=True).stdout.strip()
    if int(re.sub(r"\D.*", "", version.removeprefix("javac "))) < _OLDEST_JDK:
        _skip(f"{version} is too old: {hint}")
    with _built(JAVA, [JAVA / "pom.xml"]) as build:
        class_path = build / "class-path"
        if not class_path.is_file() or not all(map(os.path.exists, class_path.read_text().split(os.pathsep))):
            _fetch(
                [*_MAVEN, "dependency:build-classpath", f"-Dmdep.outputFile={class_path}"],
                JAVA,
                "Maven cannot fetch the packages of packages/emulators/tests/languages/java/pom.xml",
            )
        return class_path.read_text()


def trust_store(certificate: str, folder: Path) -> list[str]:
    """Return the options of `java` for a new trust store that has this certificate."""
    store, password = folder / "trust.p12", "changeit"
    command = ["keytool", "-importcert", "-noprompt", "-alias", "emulator", "-file", certificate]
    _run([*command, "-storetype", "PKCS12", "-storepass", password, "-keystore", str(store)], folder)
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={password}"]


def go(service: str) -> list[str]:
    """Return the command that runs the checks of this service in Go; skip where it cannot be built."""
    _skip_without("go", hint=_GO_HINT)
    module = GO / service
    sources = [path for each in (module, GO / "checks") for path in sorted(each.glob("*")) if path.is_file()]
    with _built(module, sources) as build:
        program = build / "checks"
        if not program.exists():
            _fetch_go(service, module, ".")
            _run(["go", "build", "-o", str(program), "."], module)
        return [str(program)]


def go_module(service: str, program: Path) -> None:
    """Make a program's folder a module with the packages of this service's checks; skip where it cannot be."""
    _skip_without("go", hint=_GO_HINT)
    lines = (GO / service / "go.mod").read_text(encoding="utf-8").splitlines()
    # Without the module of the checks, which is in this repository.
    module = "\n".join(line for line in lines if "outbox.emulators/checks " not in line)
    (program.parent / "go.mod").write_text(f"{module}\n", encoding="utf-8")
    shutil.copy(GO / service / "go.sum", program.parent)
    _fetch_go(service, program.parent, program.name)


def _fetch_go(service: str, folder: Path, package: str) -> None:
    problem = f"Go cannot fetch the modules of packages/emulators/tests/languages/go/{service}/go.mod"
    _fetch(["go", "list", "-deps", package], folder, problem)


def _skip(reason: str) -> NoReturn:
    """Skip the test, or fail it where COMPILED_LANGUAGES is "required", as in the weekly workflow."""
    if os.environ.get("COMPILED_LANGUAGES") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def _skip_without(*programs: str, hint: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        _skip(f"{', '.join(missing)} not found: {hint}")


@contextmanager
def _built(folder: Path, sources: list[Path]) -> Iterator[Path]:
    """Yield the folder of what is built from these sources, while no other process may build there."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{source.name}\n".encode() + source.read_bytes())
    root = folder / "build"
    root.mkdir(exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build = root / digest.hexdigest()[:16]
        build.mkdir(exist_ok=True)
        older = sorted((path for path in root.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
        for path in older[:-_BUILDS_KEPT]:
            if path != build:
                shutil.rmtree(path)
        yield build


def _fetch(command: list[str], folder: Path, problem: str) -> None:
    """Run a command that needs a registry; skip with the reason that it gives where it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WATCHDOG_S)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        _skip(f"{problem}: {said[0] if said else f'exit code {done.returncode}'}")


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WATCHDOG_S)
    assert done.returncode == 0, f"{command[0]} failed: {done.stdout}{done.stderr}"
