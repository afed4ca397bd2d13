"""The image of the emulators and its compose file: what they name exists. Neither is built or started here."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.program import PROGRAM
from tests.infra.project import ROOT
from tests.infra.test_container import ignored, versioned
from tests.support.watchdog import WATCHDOG_S

FOLDER = ROOT / "packages" / "emulators"
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
PAGE = (FOLDER / "docs" / "containers.md").read_text(encoding="utf-8")
# The conventions of the official emulators, which Testcontainers modules keep to.
PORTS = {"cosmos": {"port": 8081}, "servicebus": {"port": 5672, "admin_port": 5300}}
HEALTH = {"cosmos": "http://127.0.0.1:8081/health", "servicebus": "http://127.0.0.1:5300/health"}


BUILT = ("command_line", "emulators")
"""The folders with the packages that the image installs."""


def instructions(name: str) -> list[str]:
    """The arguments of every instruction of this name."""
    return re.findall(rf"^ *{name} +(.+?) *$", DOCKERFILE, re.MULTILINE)


def environment() -> dict[str, str]:
    """The variables of ENV."""
    return dict(pair.split("=", 1) for line in instructions("ENV") for pair in line.split())


def health_check() -> list[str]:
    """The command of HEALTHCHECK."""
    [line] = instructions("HEALTHCHECK")
    words: list[str] = json.loads(line.partition(" CMD ")[2])
    return words


def parsed(words: list[str]) -> Any:
    """The options of a container, parsed as `outbox-relay-emulators` does."""
    return PROGRAM.parse(words).options["options"]


@pytest.fixture(params=["cosmos", "servicebus"])
def name(request: pytest.FixtureRequest) -> str:
    service: str = request.param
    return service


@pytest.fixture
def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = COMPOSE["services"][name]
    return found


def test_what_is_copied_exists_and_is_all_that_is_sent_to_the_builder() -> None:
    copied = [
        source.rstrip("/") for line in instructions("COPY") if "--from" not in line for source in line.split()[:-1]
    ]
    lines = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    beside = FOLDER.parent.relative_to(ROOT).as_posix() + "/"
    files = [path.removeprefix(beside) for path in versioned() if path.startswith(beside)]
    sent = [path for path in files if not ignored(path, patterns)]

    own = [f"{folder}/{name}" for folder in BUILT for name in ("LICENSE", "README.md", "pyproject.toml", "src")]
    assert sorted(copied) == sorted([*own, "emulators/requirements.lock"])
    assert all((FOLDER.parent / source).exists() for source in copied)
    assert {"/".join(path.split("/")[:2]) for path in sent} == set(copied)
    assert "emulators/src/outbox_relay/emulators/__main__.py" in sent


def test_the_files_that_the_build_of_the_package_needs_are_copied() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    copied = " ".join(instructions("COPY"))

    assert project["readme"] in copied
    assert all(name in copied for name in project["license-files"])
    [program] = [json.loads(line) for line in instructions("ENTRYPOINT")]
    assert program[0] in project["scripts"]


def test_the_packages_are_the_locked_ones_and_are_installed_before_the_code_is_copied() -> None:
    [first, second] = [line for line in instructions("RUN") if "pip install" in line]

    assert first.endswith("--require-hashes -r requirements.lock")
    assert second.endswith("--no-deps ./command_line ./emulators")
    assert DOCKERFILE.index("--require-hashes") < DOCKERFILE.index("COPY emulators/src/")


def test_both_stages_have_the_same_python_which_the_package_supports() -> None:
    bases = {line.split()[0] for line in instructions("FROM")}
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert len(bases) == 1
    [version] = re.findall(r"python:([\d.]+)-slim", bases.pop())
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_the_image_runs_as_a_numbered_user_who_is_not_root_and_stops_on_a_signal() -> None:
    [user] = instructions("USER")

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert DOCKERFILE.index("\nUSER ") > DOCKERFILE.rindex("\nRUN ")
    assert instructions("STOPSIGNAL") == ["SIGTERM"]


def test_the_ports_of_the_image_are_the_conventional_ones() -> None:
    conventional = [port for ports in PORTS.values() for port in ports.values()]

    assert [int(port) for port in " ".join(instructions("EXPOSE")).split()] == conventional
    assert all(str(port) in PAGE for port in conventional)


def test_the_image_serves_cosmos_db_by_default_and_asks_for_its_health() -> None:
    [command] = [
        json.loads(line) for line in instructions("CMD") if "HEALTHCHECK" not in line and "-c" not in line
    ]

    assert parsed(command).port == PORTS["cosmos"]["port"]
    assert environment()["HEALTH_URL"] == HEALTH["cosmos"]


def test_each_service_gives_options_that_the_command_line_has(name: str, service: dict[str, Any]) -> None:
    arguments = parsed(service["command"])

    assert service["command"][0] == name
    assert {option: getattr(arguments, option) for option in PORTS[name]} == PORTS[name]


def test_each_service_listens_outside_its_container_and_is_published_to_the_host_alone(
    name: str, service: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMULATORS_HOST", environment()["EMULATORS_HOST"])

    assert parsed(service["command"]).host == "0.0.0.0"
    # The name by which other services of the project reach it.
    assert parsed(service["command"]).allowed_hosts == (name,)
    assert service["ports"] == [f"127.0.0.1:{port}:{port}" for port in PORTS[name].values()]
    context = FOLDER / service["build"]["context"]
    assert (context / service["build"]["dockerfile"]).resolve() == FOLDER / "Dockerfile"
    health = service.get("environment", {}).get("HEALTH_URL", environment()["HEALTH_URL"])
    assert health == HEALTH[name]


def test_an_option_that_there_is_not_is_found() -> None:
    with pytest.raises(SystemExit):
        parsed(["cosmos", "--no-such-option"])


@pytest.mark.asyncio
async def test_the_health_check_passes_while_an_emulator_serves_and_fails_afterwards() -> None:
    async def check(port: int) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *health_check()[1:],
            env={"HEALTH_URL": HEALTH["cosmos"].replace("8081", str(port)), "http_proxy": "http://192.0.2.1:9"},
            stderr=subprocess.DEVNULL,
        )
        return await asyncio.wait_for(process.wait(), WATCHDOG_S)

    assert health_check()[0] == "python"
    assert urlsplit(HEALTH["cosmos"]).path == "/health"
    async with CosmosServer() as server:
        port = server.port
        assert await check(port) == 0
    assert await check(port) != 0
