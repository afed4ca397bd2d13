"""Rehearse a release: build what a tag publishes, verify it, install it alone, and run its examples.

    python -m tests.release                                # every component
    python -m tests.release --only outbox --output FOLDER  # one; what was built is in FOLDER/dist and FOLDER/sbom

The exit code is 0 if every check passed. What needs Docker is skipped without it, and named.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from local.make_venv import pip_settings, uv_variables
from tests.release.components import APP, LIBRARIES, TYPES, Library
from tests.release.type_checkers import TypeCheckers
from tests.support.clones import copy_of_project
from tests.support.examples import programs
from tests.support.pages import PAGES, ROOT
from tests.support.pythons import other_pythons
from tests.support.wheels import ENVIRONMENTS

OUTPUT = ROOT / ".local" / "release"
DEPLOYED = (3, 13)
"""The Python of the deployed app."""

_LAST_LINES = 40
_ADDRESS = {
    "GITHUB_SERVER_URL": "https://example.org",
    "GITHUB_REPOSITORY": "outbox-relay/outbox-relay",
    "GITHUB_REF_NAME": "HEAD",
}
"""The address in the metadata, where GitHub gives none."""

_IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module({module!r})
names = [each.name for each in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""
_FUNCTIONS = """
import function_app
print(*sorted(each.get_function_name() for each in function_app.app.get_functions()))
"""
_EXPECTED = ["relay", "relay_age"]
_SETTINGS = {
    "COSMOS__accountEndpoint": "https://example.documents.azure.com",
    "SERVICEBUS__fullyQualifiedNamespace": "example.servicebus.windows.net",
}


class CheckFailed(Exception):
    """A check of a release failed; the text says which, with the end of the output."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The checks of a release, and the folders that they share.

    Attributes:
        copies: Two copies of the repository, in different folders.
        work: A folder for environments and intermediate files.
        output: Where what was built is left, in `dist` and `sbom`.
        pythons: The oldest supported Python, and the newest one of this machine.
    """

    copies: tuple[Path, Path]
    work: Path
    output: Path
    pythons: tuple[str, str]

    def check_library(self, library: Library) -> None:
        """Check a distribution.

        Raises:
            CheckFailed: It is not what it should be.
        """
        source, wheel = self._build(library)
        self._from_source(library, source, wheel)
        run([sys.executable, "-m", "twine", "check", "--strict", str(source), str(wheel)])
        say(library.name, "metadata and README: twine check --strict")
        self._build_needed(library)
        oldest, newest = self.pythons
        for python, resolution in ((oldest, "lowest-direct"), (newest, "highest")):
            self._check_installed(library, wheel, python, resolution)
        environment = self.work / f"highest-{Path(newest).name}" / library.name
        project = self.copies[0] / library.folder / "pyproject.toml"
        words = ["environment", str(environment), "--pyproject", str(project)]
        self._write_sbom(library.name, words)

    def check_app(self) -> None:
        """Check the zip of the function app, and its locked packages.

        Raises:
            CheckFailed: It is not what it should be.
        """
        made = [self.work / f"{number}.zip" for number in (1, 2)]
        for copy, file in zip(self.copies, made, strict=True):
            run([sys.executable, "infra/package.py", str(file)], folder=copy)
        compare(made)
        archive = shutil.copy(made[0], self.output / "dist" / "relay.zip")
        say(APP, f"relay.zip: the same {Path(archive).stat().st_size} bytes from two folders")
        app = self.work / "app"
        shutil.unpack_archive(archive, app)
        _, newest = self.pythons
        if run([newest, "-c", f"import sys; print(sys.version_info >= {DEPLOYED})"]).strip() != "True":
            raise CheckFailed(
                f"no Python {'.'.join(map(str, DEPLOYED))} is installed, which the app is deployed to"
            )
        python = self._environment("app-locked", newest)
        install(python, "--require-hashes", "-r", str(app / "requirements.txt"))
        functions = run([str(python), "-c", _FUNCTIONS], folder=app, environment=_SETTINGS).split()
        if functions != _EXPECTED:
            raise CheckFailed(f"relay.zip: its functions are {functions}, not {_EXPECTED}")
        say(APP, f"relay.zip: with its locked packages, {version_of(python)} finds {' and '.join(functions)}")
        self._write_sbom(APP, ["requirements", str(app / "requirements.txt")])

    def check_images(self) -> None:
        """Build the images, where Docker runs.

        Raises:
            CheckFailed: One cannot be built.
        """
        if shutil.which("docker") is None or subprocess.run(["docker", "ps"], capture_output=True).returncode:
            print("skipped  images: Docker is not installed, or its daemon does not run", flush=True)
            return
        for file, context in (("Dockerfile", "."), ("packages/emulators/Dockerfile", "packages")):
            run(["docker", "build", "--quiet", "--file", file, context], folder=self.copies[0])
            say("images", f"{file} is built")

    def check_types(self) -> None:
        """Check that a user's strict type checkers accept the libraries' names, the examples and the samples.

        Raises:
            CheckFailed: One of them reports an error.
        """
        copy, folder = self.copies[0], self.work / "programs"
        python = self._environment("programs-environment", self.pythons[1])
        for file in sorted(copy.glob("samples/**/requirements.txt")):
            install(python, "-r", str(file), folder=copy)
        install(python, *self._wheels_with_extras(), *(name for each in LIBRARIES for name in each.beside))
        folders = write_programs(folder)
        shutil.copytree(copy / "samples", folder / "samples" / "samples")
        checkers = TypeCheckers(python, self.work / "mypy")
        errors = [each for own in (*folders, folder / "samples") for each in checkers.errors_in(own)]
        errors += [
            each
            for library in LIBRARIES
            if library.is_typed
            for each in checkers.errors_of(library.module, folder)
        ]
        if errors:
            raise CheckFailed("\n".join(errors))
        say(TYPES, f"strict pyright and mypy accept the programs of {len(folders)} pages and the samples")

    def _wheels_with_extras(self) -> list[str]:
        """Build the wheels, and return the requirements of them with all their extras."""
        found = []
        for library in LIBRARIES:
            wheels = self.work / "wheels" / library.name
            build_wheel(self.copies[0] / library.folder, wheels)
            [wheel] = wheels.iterdir()
            found.append(f"{library.distribution}[{','.join(library.extras)}] @ {wheel.as_uri()}")
        return found

    def _build(self, library: Library) -> tuple[Path, Path]:
        """Build the source distribution and the wheel in both copies, and return those of the first."""
        folders = []
        for number, copy in enumerate(self.copies, start=1):
            run(
                [sys.executable, ".ci/release_metadata.py", library.folder],
                folder=copy,
                environment={name: os.environ.get(name, value) for name, value in _ADDRESS.items()},
            )
            folders.append(self.work / f"{library.name}-{number}")
            build = [sys.executable, "-m", "hatchling", "build", "-d", str(folders[-1])]
            run(build, folder=copy / library.folder)
        first, second = [sorted(folder.iterdir()) for folder in folders]
        for files in zip(first, second, strict=True):
            compare(files)
        [source] = [each for each in first if each.name.endswith(".tar.gz")]
        [wheel] = [each for each in first if each.suffix == ".whl"]
        for file in (source, wheel):
            shutil.copy(file, self.output / "dist")
        say(library.name, f"{source.name}, {wheel.name}: the same bytes from two folders")
        return source, wheel

    def _build_needed(self, library: Library) -> None:
        """Build the wheels that a library needs and PyPI may not have."""
        for needed in (each for each in LIBRARIES if each.name in library.needs):
            build_wheel(self.copies[0] / needed.folder, self._needed)

    @property
    def _needed(self) -> Path:
        return self.work / "needed"

    def _from_source(self, library: Library, source: Path, wheel: Path) -> None:
        """Check that the source distribution has all that the wheel is built from."""
        folder = self.work / f"{library.name}-source"
        shutil.unpack_archive(source, folder, filter="data")
        [unpacked] = folder.iterdir()
        build_wheel(unpacked, folder)
        compare([wheel, folder / wheel.name])
        say(library.name, "the source distribution builds the same wheel")

    def _check_installed(self, library: Library, wheel: Path, python: str, resolution: str) -> None:
        """Install a wheel into empty environments, and run it and its README's examples there.

        Args:
            library: The library of the wheel.
            wheel: Its file.
            python: The Python of the environments.
            resolution: Which versions of the packages it needs, in the words of `uv --resolution`.
        """
        folder = f"{resolution}-{Path(python).name}"
        alone = self._environment(f"{folder}/alone-{library.name}", python)
        install(alone, *self._requirements(library, python, resolution), str(wheel), found_in=self._needed)
        run([str(alone), "-I", "-c", f"import {library.module}"])
        complete = self._environment(f"{folder}/{library.name}", python)
        extras = ",".join(library.extras)
        required = self._requirements(library, python, resolution, "--all-extras")
        chosen = f"{library.distribution}[{extras}] @ {wheel.as_uri()}"
        install(complete, *required, *library.beside, chosen, found_in=self._needed)
        for command in library.commands:
            for option in ("--version", "--help"):
                run([str(complete.parent / command), option])
        modules = run([str(complete), "-I", "-c", _IMPORT_ALL.format(module=library.module)]).strip()
        of = f"{version_of(complete)} with the {'oldest' if resolution == 'lowest-direct' else 'newest'} packages"
        say(library.name, f"installed alone, {of}: {modules} modules")
        if library.examples:
            run(
                [sys.executable, "-m", "pytest", "-q", *library.examples],
                environment={ENVIRONMENTS: str(self.work / folder)},
            )
        elif (ROOT / library.folder / "check.sh").exists():
            run(
                ["bash", f"{library.folder}/check.sh"],
                environment={
                    "PYTHON": python,
                    "WHEEL": str(wheel),
                    "CONSTRAINTS": required[-1],
                    "PIP_FIND_LINKS": str(self._needed),
                },
            )
        say(library.name, f"the README's examples, {of}")

    def _environment(self, name: str, python: str) -> Path:
        """Make an empty environment in a folder of this name; returns its Python."""
        folder = self.work / name
        uv("venv", "--quiet", "--python", python, str(folder))
        return folder / "bin" / "python"

    def _requirements(self, library: Library, python: str, resolution: str, *options: str) -> list[str]:
        """Return the options that install the packages which a library needs in the versions of a resolution."""
        file = self.work / f"{library.name}-{resolution}{len(options)}.txt"
        project = self.copies[0] / library.folder / "pyproject.toml"
        chosen = ("--python", python, "--resolution", resolution, *options)
        here = ("--find-links", str(self._needed)) if library.needs else ()
        # A user has no folder beside: `tool.uv.sources` is for the clone.
        found = ("--no-sources", *here)
        uv("pip", "compile", "--quiet", *chosen, *found, "--output-file", str(file), str(project))
        return ["-r", str(file)]

    def _write_sbom(self, name: str, words: Sequence[str]) -> None:
        """Write a bill of materials in the format CycloneDX.

        Args:
            name: Of the file.
            words: The command of cyclonedx-py that reads the packages.
        """
        file = self.output / "sbom" / f"{name}.cdx.json"
        options = ("--output-reproducible", "--output-format", "JSON", "--output-file", str(file))
        run([str(Path(sys.executable).with_name("cyclonedx-py")), *words, *options])
        say(name, f"{file.name}: its packages and their licences")


def write_programs(folder: Path) -> list[Path]:
    """Write the programs of each page into a folder of its own; returns these folders."""
    folders = []
    for page in PAGES:
        if found := programs(page):
            folders.append(folder / page.relative_to(ROOT).with_suffix(""))
            folders[-1].mkdir(parents=True)
            for name, text in found.items():
                (folders[-1] / name).write_text(text, encoding="utf-8")
    return folders


def uv(*words: str, folder: Path = ROOT) -> None:
    """Run a command of uv, which gets packages from where pip does."""
    settings = pip_settings(run([sys.executable, "-m", "pip", "config", "list"]))
    variables = {name: value for name, value in uv_variables(settings).items() if name not in os.environ}
    run([sys.executable, "-m", "uv", *words], folder=folder, environment=variables)


def install(python: Path, *words: str, folder: Path = ROOT, found_in: Path | None = None) -> None:
    """Install packages, those of the folder `found_in` among them if it exists."""
    here = ("--find-links", str(found_in)) if found_in is not None and found_in.is_dir() else ()
    uv("pip", "install", "--quiet", "--python", str(python), *here, *words, folder=folder)


def run(words: Sequence[str], *, folder: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """Run a command, and return its output.

    Raises:
        CheckFailed: Its exit code is not 0.
    """
    ended = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        last = "\n".join([*ended.stdout.splitlines(), *ended.stderr.splitlines()][-_LAST_LINES:])
        raise CheckFailed(f"{' '.join(words)} ended with {ended.returncode}:\n{last}")
    return ended.stdout


def build_wheel(folder: Path, target: Path) -> None:
    """Build the wheel of a folder's distribution into another folder."""
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)], folder=folder)


def compare(files: Sequence[Path]) -> None:
    """Raise CheckFailed unless the files have the same bytes."""
    first, *others = files
    for other in others:
        if first.read_bytes() != other.read_bytes():
            raise CheckFailed(f"{first} and {other} differ")


def version_of(python: Path) -> str:
    """Return the name and version of a Python, such as `Python 3.13.0`."""
    return run([str(python), "--version"]).strip()


def say(component: str, text: str) -> None:
    print(f"ok       {component}: {text}", flush=True)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__.partition("\n")[0])
    names = [*(each.name for each in LIBRARIES), APP, TYPES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where what was built is left")
    given = parser.parse_args()
    shutil.rmtree(given.output, ignore_errors=True)
    for name in ("dist", "sbom"):
        (given.output / name).mkdir(parents=True)
    own = sys.executable
    pythons = sorted([own, *other_pythons()], key=lambda python: version_of(Path(python)).split(".")[1].zfill(3))
    failed = 0
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        work = Path(folder)
        copies = (copy_of_project(work / "first"), copy_of_project(work / "the second"))
        rehearsal = Rehearsal(copies, work, given.output.resolve(), (pythons[0], pythons[-1]))
        checks: list[tuple[str, Callable[[], None]]] = [
            *((each.name, partial(rehearsal.check_library, each)) for each in LIBRARIES),
            (APP, rehearsal.check_app),
            (APP, rehearsal.check_images),
            (TYPES, rehearsal.check_types),
        ]
        for name, check in checks:
            if name in given.only:
                try:
                    check()
                except CheckFailed as error:
                    failed += 1
                    print(f"failed   {name}: {error}", flush=True)
    print(f"{failed} failed" if failed else f"Everything passed; what was built is in {given.output}.", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
