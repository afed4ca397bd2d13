"""The examples of the README run as they are pasted, but for the ports."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from packages.emulators.tests.package.projects import SLOW, run_pytest, run_python

pytestmark = [pytest.mark.slow, SLOW]

README = (Path(__file__).parents[2] / "README.md").read_text()
PORTS = {
    "cosmos": ["--port", "0"],
    "servicebus": ["--port", "0", "--admin-port", "0", "--tls-port", "0", "--https-port", "0"],
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def block_with(text: str, language: str = "python") -> str:
    (found,) = [block for block in blocks(language) if text in block]
    return found


@contextmanager
def started(line: str, folder: Path | None = None) -> Iterator[dict[str, Any]]:
    """Start an emulator in a folder as a line of the README does; yields what its READY line says."""
    program, part, *options = shlex.split(line)
    assert program == "outbox-relay-emulators"
    command = [sys.executable, "-m", "outbox_relay.emulators", part, *options, *PORTS[part]]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline().removeprefix("READY "))
        finally:
            process.terminate()


@pytest.fixture
def emulators() -> Iterator[dict[str, str]]:
    """The first two emulators of the README; where its addresses are found in this run."""
    cosmos, servicebus, _ = block_with("outbox-relay-emulators cosmos", "sh").splitlines()
    with started(cosmos) as account, started(servicebus) as namespace:
        yield {
            "127.0.0.1:8081": f"127.0.0.1:{account['port']}",
            "127.0.0.1:5672": f"127.0.0.1:{namespace['port']}",
            "127.0.0.1:5300": f"127.0.0.1:{namespace['admin_port']}",
        }


def with_ports(text: str, addresses: dict[str, str]) -> str:
    for documented, actual in addresses.items():
        text = text.replace(documented, actual)
    return text


def test_the_sdks_work_with_emulators_that_were_started_from_the_shell(
    emulators: dict[str, str], tmp_path: Path
) -> None:
    ended = run_python(tmp_path, "-c", with_ports(block_with("COSMOS ="), emulators))

    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["received event-1", "received order-1"]


def test_faults_are_injected_from_the_shell(emulators: dict[str, str]) -> None:
    lines = [line for line in block_with("admin/faults", "sh").splitlines() if "7071" not in line]
    assert len(lines) == 2
    for line in lines:
        _, _, body, url = shlex.split(with_ports(line, emulators))
        with urllib.request.urlopen(url, body.encode()) as response:
            assert json.load(response)["id"] == 1


def test_partitions_are_split_and_merged_from_the_shell(emulators: dict[str, str]) -> None:
    answers = []
    for line in block_with("admin/split", "sh").splitlines():
        _, _, body, url = shlex.split(with_ports(line, emulators))
        with urllib.request.urlopen(url, body.encode()) as response:
            answers.append(json.load(response))

    assert answers == [{"split": "0", "into": ["4", "5"]}, {"merged": ["1", "2"], "into": "6"}]


def test_clients_connect_with_tls_as_in_the_readme(tmp_path: Path) -> None:
    with started(block_with("--tls", "sh"), tmp_path) as namespace:
        addresses = {
            "localhost:5671": f"localhost:{namespace['tls_port']}",
            "localhost:5443": f"localhost:{namespace['https_port']}",
        }
        ended = run_python(tmp_path, "-c", with_ports(block_with("CA_FILE ="), addresses))

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "sent with TLS\n"
    assert namespace["ca_file"] == str(tmp_path / "servicebus-ca.pem")


def test_the_pytest_example_passes(tmp_path: Path) -> None:
    counts, output = run_pytest(tmp_path, block_with("import pytest"))

    assert counts == {"passed": 2}, output


def test_the_context_managers_serve_without_pytest(tmp_path: Path) -> None:
    ended = run_python(tmp_path, "-c", block_with("ManualClock()"))

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("AccountEndpoint=http://127.0.0.1:")
