#!/usr/bin/env python3
"""Try the newest versions of SDKs, tools and images, and keep one issue about what differs or fails.

    .ci/newest.py try FILE                    install them, run the checks, write what was found
    .ci/newest.py report FILE --host RESULT   open, update or close the issue by what the file says

`try` runs code that was published a moment ago, so that its job may write nothing. `report`, in another job, takes
the file for the text of a stranger. RESULT is how the job that runs the Functions host ended. Of the packages of
Java, Go and .NET the newest versions are looked up, and not run. Needs the standard library alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TITLE = "Newest versions of SDKs and tools"
MAX_TEXT = 4_000
"""Characters of the end of a check's output that the issue has."""
_MAX_ISSUE = 60_000
"""Characters of the issue, of which GitHub takes 65 536."""
_MOST = 50

PYTHON = ".venv/bin/python"
LANGUAGES = "packages/emulators/tests/languages"
PYTHON_PACKAGES = ("azure-cosmos", "azure-servicebus", "azure-functions")
NPM_PACKAGES = ("@azure/cosmos", "@azure/service-bus")
JAVA_PACKAGES = ("com.azure:azure-cosmos", "com.azure:azure-messaging-servicebus")
_GO = "github.com/Azure/azure-sdk-for-go/sdk"
GO_MODULES = {f"{_GO}/data/azcosmos": "cosmos", f"{_GO}/messaging/azservicebus": "servicebus"}
"""The folder of each module's checks."""
DOTNET_PACKAGES = ("Microsoft.Azure.Cosmos", "Azure.Messaging.ServiceBus")
LOOKED_UP = (*JAVA_PACKAGES, *GO_MODULES, *DOTNET_PACKAGES)
"""The packages that are not installed."""
CORE_TOOLS = "azure-functions-core-tools"
BUNDLE = "extension bundle"
BICEP = "Bicep"
HOST_IMAGE = "mcr.microsoft.com/azure-functions/python:4-python3.13"
"""The real Functions host with the worker of the Python version that is deployed."""
_BUNDLES = (
    "https://cdn.functions.azure.com/public/ExtensionBundles/Microsoft.Azure.Functions.ExtensionBundle/index.json"
)
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_HARMLESS = re.compile(r"[\w.+:@/-]{1,120}")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs a command; `text` is its input."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command whose failure is reported by its name."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that failed, with the end of its output."""

    name: str
    output: str


@dataclass(frozen=True, slots=True)
class Version:
    """A version that the repository was last tried with, and the newest one. None if it is unknown."""

    name: str
    known: str | None
    newest: str | None

    @property
    def differs(self) -> bool:
        return self.known != self.newest


@dataclass(frozen=True, slots=True)
class Found:
    """The result of `try`: versions, and the steps that failed."""

    versions: list[Version]
    failures: list[Failure]

    @classmethod
    def read(cls, text: str) -> Found:
        """Read the file that `try` wrote. Raises ValueError, KeyError or TypeError if it is another one."""
        read = json.loads(text)
        versions = [(each["name"], each["known"], each["newest"]) for each in read["versions"]]
        failures = [(each["name"], each["output"]) for each in read["failures"]]
        for value in (value for values in (*versions, *failures) for value in values):
            if not isinstance(value, str | None):
                raise TypeError(f"{value!r} is no text")
        return cls(
            [Version(*each) for each in versions[:_MOST]],
            [Failure(name or "", output or "") for name, output in failures[:_MOST]],
        )

    def __str__(self) -> str:
        return json.dumps(asdict(self), indent=2)


def images() -> list[str]:
    """Return the images by name: of the Functions host, and of the official emulators."""
    compose = (ROOT / "infra/emulators/compose.yaml").read_text(encoding="utf-8")
    return [HOST_IMAGE, *re.findall(r"^ +image: (\S+)$", compose, re.MULTILINE)]


def installations() -> Iterator[Step]:
    """Yield the commands that install the newest versions."""
    yield Step("install Python packages", (PYTHON, "-m", "pip", "install", "--upgrade", *PYTHON_PACKAGES))
    newest = [f"{name}@latest" for name in NPM_PACKAGES]
    npm = ("npm", "install", "--prefix", LANGUAGES, "--ignore-scripts", "--no-audit", "--no-fund", "--no-save")
    yield Step("install npm packages", (*npm, *newest))
    # Its script downloads the tools.
    yield Step("install Core Tools", ("npm", "install", "--global", f"{CORE_TOOLS}@latest"))
    yield Step("install Bicep", ("az", "bicep", "install"))
    for image in images():
        yield Step(f"pull {image}", ("docker", "pull", "--quiet", image))


def checks() -> list[Step]:
    """Return the checks of what was installed."""
    pytest = (PYTHON, "-m", "pytest", "-q")
    javascript = sorted(str(file.relative_to(ROOT)) for file in (ROOT / LANGUAGES).glob("test_javascript_*.py"))
    return [
        Step("quick tests", (*pytest, "-n", "auto", "--dist", "loadgroup", "-m", "not slow")),
        Step("tests of the JavaScript SDKs", (*pytest, *javascript)),
        # bicep build, lint, and snapshot --mode validate.
        Step("Bicep", (*pytest, "tests/infra/test_compiler.py")),
    ]


def known_versions() -> dict[str, str | None]:
    """Return the versions that the repository was tried with: those that it pins or names, and of tried.json."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    npm = json.loads((ROOT / LANGUAGES / "package.json").read_text(encoding="utf-8"))["dependencies"]
    tried: dict[str, str | None] = json.loads((ROOT / ".ci/tried.json").read_text(encoding="utf-8"))
    pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)", lock, re.MULTILINE))
    installed = {name: pinned[name] for name in PYTHON_PACKAGES} | {name: npm[name] for name in NPM_PACKAGES}
    return installed | _tried_by_tests() | tried


def _tried_by_tests() -> dict[str, str | None]:
    """Return the versions of Java and Go that the tests pin, and those of .NET that its page names."""
    pom = (ROOT / LANGUAGES / "java/pom.xml").read_text(encoding="utf-8")
    java = dict(re.findall(r"<artifactId>(\S+)</artifactId>\s*<version>(\S+)</version>", pom))
    page = (ROOT / "packages/emulators/docs/conformance/dotnet.md").read_text(encoding="utf-8")
    modules = {
        name: (ROOT / LANGUAGES / "go" / folder / "go.mod").read_text(encoding="utf-8")
        for name, folder in GO_MODULES.items()
    }
    return {
        **{name: java.get(name.partition(":")[2]) for name in JAVA_PACKAGES},
        **{name: _version_after(name, module) for name, module in modules.items()},
        **{name: _version_after(name, page) for name in DOTNET_PACKAGES},
    }


def _version_after(name: str, text: str) -> str | None:
    found = re.search(rf"\b{re.escape(name)} v?({_VERSION.pattern})\b", text)
    return found[1] if found else None


def newest_versions(run: Run, fetch: Callable[[str], str]) -> dict[str, str | None]:
    """Return what is installed now, the newest extension bundle of host.json's range, and what is looked up."""
    return {
        **{name: _python_version(run, name) for name in PYTHON_PACKAGES},
        **{name: _npm_version(name) for name in NPM_PACKAGES},
        CORE_TOOLS: _first(_VERSION, _output(run, "func", "--version")),
        BICEP: _first(_VERSION, _output(run, "az", "bicep", "version")),
        BUNDLE: _newest_bundle(fetch),
        **{name: _newest_listed(fetch, *_list_of(name)) for name in LOOKED_UP},
        **{image: _digest(run, image) for image in images()},
    }


def _output(run: Run, *command: str) -> str:
    ended = run(command)
    return "" if ended.returncode else ended.stdout


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found[0] if found else None


def _python_version(run: Run, name: str) -> str | None:
    program = f"from importlib.metadata import version; print(version({name!r}))"
    return _output(run, PYTHON, "-c", program).strip() or None


def _npm_version(name: str) -> str | None:
    file = ROOT / LANGUAGES / "node_modules" / name / "package.json"
    return str(json.loads(file.read_text(encoding="utf-8"))["version"]) if file.is_file() else None


def _newest_bundle(fetch: Callable[[str], str]) -> str | None:
    host = json.loads((ROOT / "host.json").read_text(encoding="utf-8"))
    least, end = map(_numbers, _VERSION.findall(host["extensionBundle"]["version"]))
    try:
        listed = json.loads(fetch(_BUNDLES))
    except (OSError, ValueError):
        return None
    inside = [each for each in listed if _VERSION.fullmatch(each) and least <= _numbers(each) < end]
    return max(inside, key=_numbers, default=None)


def _list_of(name: str) -> tuple[str, str]:
    """Return where the versions of a package are listed, and the pattern of one that is no preview."""
    if name in JAVA_PACKAGES:
        path = name.replace(".", "/").replace(":", "/")
        return f"https://repo1.maven.org/maven2/{path}/maven-metadata.xml", r"<version>(\d+\.\d+\.\d+)</version>"
    if name in GO_MODULES:
        # The proxy writes a capital letter as "!" and the small one (https://go.dev/ref/mod#goproxy-protocol).
        path = re.sub("[A-Z]", lambda capital: f"!{capital[0].lower()}", name)
        return f"https://proxy.golang.org/{path}/@v/list", r"(?m)^v(\d+\.\d+\.\d+)$"
    return f"https://api.nuget.org/v3-flatcontainer/{name.lower()}/index.json", r'"(\d+\.\d+\.\d+)"'


def _newest_listed(fetch: Callable[[str], str], url: str, pattern: str) -> str | None:
    try:
        listed: list[str] = re.findall(pattern, fetch(url))
    except (OSError, ValueError):
        return None
    return max(listed, key=_numbers, default=None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _digest(run: Run, image: str) -> str | None:
    found = _output(run, "docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}", image)
    return found.strip().rpartition("@")[2] or None


def attempt(steps: Iterable[Step], run: Run) -> list[Failure]:
    """Run the steps, whatever becomes of each, and return those that failed."""
    failures = []
    for step in steps:
        print(f"{step.name}: {' '.join(step.command)}", flush=True)
        ended = run(step.command)
        print(ended.stdout, flush=True)
        if ended.returncode:
            failures.append(Failure(step.name, ended.stdout[-MAX_TEXT:]))
    return failures


def find(run: Run, fetch: Callable[[str], str]) -> Found:
    """Install the newest versions, and run the checks."""
    known = known_versions()
    failures = attempt(installations(), run)
    newest = newest_versions(run, fetch)
    failures += attempt(checks(), run)
    return Found([Version(name, known.get(name), found) for name, found in newest.items()], failures)


def describe(found: Found, host: str, link: str) -> str | None:
    """Return the text of the issue, or None if nothing differs and nothing failed."""
    different = [each for each in found.versions if each.differs]
    failed = bool(found.failures) or host != "success"
    if not different and not failed:
        return None
    lines = [f"[The run]({link}) of `.github/workflows/newest.yml` tried the newest versions.", ""]
    if different:
        lines += ["| | tried before | newest |", "|---|---|---|"]
        lines += [f"| {_code(each.name)} | {_code(each.known)} | {_code(each.newest)} |" for each in different]
        lines += ["", "If all is well, pin them, and write the others into `.ci/tried.json`.", ""]
        if any(each.name in LOOKED_UP for each in different):
            lines += ["Those of Java, Go and .NET were looked up, and not run.", ""]
    if not failed:
        lines.append("Every check passed.")
    for failure in found.failures:
        output = failure.output[-MAX_TEXT:]
        # A fence that no text within ends.
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", output)), default=0))
        lines += [f"## Failed: {_code(failure.name)}", "", f"{fence}text", output.strip(), fence, ""]
    if host != "success":
        lines.append(f"## The app under the newest host, and the official emulators: {_code(host)}")
    return "\n".join(lines).rstrip()[:_MAX_ISSUE] + "\n"


def _code(text: str | None) -> str:
    """Return a name or version as code; "unknown" for anything that is neither."""
    kept = " ".join(word if _HARMLESS.fullmatch(word) else "?" for word in (text or "").split()[:8])
    return f"`{kept}`" if kept else "unknown"


def publish(text: str | None, run: Run) -> str:
    """Open or update the issue, or close it if there is no text. Return what was done."""
    listed = run(("gh", "issue", "list", "--state", "open", "--limit", "1000", "--json", "number,title"))
    listed.check_returncode()
    open_ones = [str(each["number"]) for each in json.loads(listed.stdout) if each["title"] == TITLE]
    if text is None:
        for number in open_ones:
            comment = "Nothing differs, and every check passed."
            run(("gh", "issue", "close", number, "--comment", comment)).check_returncode()
        return f"closed {len(open_ones)}"
    if open_ones:
        run(("gh", "issue", "edit", open_ones[0], "--body-file", "-"), text=text).check_returncode()
        return f"updated {open_ones[0]}"
    run(("gh", "issue", "create", "--title", TITLE, "--body-file", "-"), text=text).check_returncode()
    return "opened"


def run_command(command: tuple[str, ...], text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in the repository's folder; its errors are in its output."""
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, str(error))


def fetch_text(url: str) -> str:
    """Return the text at an address."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode("utf-8-sig")
    return text


def link_of_run(environment: Mapping[str, str]) -> str:
    """Return the address of this run of the workflow."""
    server, repository = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_REPOSITORY", "")
    return f"{server}/{repository}/actions/runs/{environment.get('GITHUB_RUN_ID', '')}"


def main(arguments: list[str] | None = None, run: Run = run_command, fetch: Any = fetch_text) -> int:
    """Run a command of this script; return the exit code."""
    parser = argparse.ArgumentParser(description="Try the newest versions of SDKs, tools and images.")
    commands = parser.add_subparsers(dest="command", required=True)
    trying = commands.add_parser("try", help="install them, and run the checks")
    reporting = commands.add_parser("report", help="open, update or close the issue")
    for each in (trying, reporting):
        each.add_argument("file", type=Path, help="what was found, as JSON")
    reporting.add_argument("--host", required=True, help="result of the job that runs the Functions host")
    chosen = parser.parse_args(arguments)
    if chosen.command == "try":
        # A failure is no failure of the job: the issue has it.
        chosen.file.write_text(str(find(run, fetch)), encoding="utf-8")
        return 0
    try:
        found = Found.read(chosen.file.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = Found([], [Failure("the run itself", f"{type(error).__name__}: {error}")])
    print(publish(describe(found, chosen.host, link_of_run(os.environ)), run))
    return 0


if __name__ == "__main__":
    sys.exit(main())
