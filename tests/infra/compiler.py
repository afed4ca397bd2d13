"""The Bicep compiler, where one is installed: it evaluates templates as Azure Resource Manager would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.infra.deployment import BicepError, DeploymentFailure

MISSING = (
    "the Bicep compiler is not installed: run az bicep install, or put bicep in PATH, or set BICEP to its path "
    "(https://learn.microsoft.com/azure/azure-resource-manager/bicep/install)"
)
SUBSCRIPTION_ID = "00000000-0000-0000-0000-00000000abcd"
RESOURCE_GROUP = "rg-relay"
METADATA = {
    "tenantId": "00000000-0000-0000-0000-0000000000ff",
    "subscriptionId": SUBSCRIPTION_ID,
    "resourceGroup": RESOURCE_GROUP,
    "location": "westeurope",
    "deploymentName": "outbox-relay",
}
"""The deployment target of the snapshots."""

Snapshot = dict[str, Any]


def find_compiler() -> str | None:
    """The path of the compiler: from BICEP, from PATH, or the one that `az bicep install` has installed."""
    of_az = Path(os.environ.get("AZURE_CONFIG_DIR", Path.home() / ".azure")) / "bin/bicep"
    return os.environ.get("BICEP") or shutil.which("bicep") or (str(of_az) if of_az.is_file() else None)


def run_compiler(
    *arguments: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one command of the compiler.

    Raises:
        BicepError: There is no compiler.
    """
    program = find_compiler()
    if program is None:
        raise BicepError(MISSING)
    return subprocess.run(
        [program, *arguments],
        env={**_environment(), **(environment or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


_KEPT = ("PATH", "HOME", "TMPDIR", "DOTNET_BUNDLE_EXTRACT_BASE_DIR")
_DOTNET = {
    # Without libicu, it formats in the same way everywhere.
    "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1",
    # Profile-guided optimisation took a third of the processor time of 40 snapshots.
    "DOTNET_TieredPGO": "0",
}


def _environment() -> dict[str, str]:
    """Return the compiler's environment, in which the variables of parameter files have their defaults."""
    return {**{name: value for name, value in os.environ.items() if name in _KEPT}, **_DOTNET}


def read_parameters(file: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """The parameters that a .bicepparam file sets; `readEnvironmentVariable` reads `environment`.

    Raises:
        BicepError: The compiler rejects the file.
    """
    ended = run_compiler("build-params", str(file), "--stdout", environment=environment)
    if ended.returncode:
        raise BicepError(ended.stderr)
    return _values(json.loads(ended.stdout)["parametersJson"])


def _values(parameters: str) -> dict[str, Any]:
    """Return the values of a JSON parameter file of Azure Resource Manager."""
    return {name: each["value"] for name, each in json.loads(parameters)["parameters"].items()}


class Compiler:
    """A compiler that stays in memory, which takes a third of the time. A context manager.

    It speaks JSON-RPC: `bicep jsonrpc --help`, and `ICliJsonRpcProtocol.cs` in Azure/bicep.
    """

    def __init__(self) -> None:
        program = find_compiler()
        if program is None:
            raise BicepError(MISSING)
        self._calls = 0
        self._parameters: dict[tuple[str, ...], dict[str, Any]] = {}
        self._process = subprocess.Popen(
            [program, "jsonrpc", "--stdio"],
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            self._process.kill()

    def build(self, file: Path) -> str:
        """Return the JSON template of a Bicep file.

        Raises:
            BicepError: The compiler rejects the file.
        """
        result = self._call("bicep/compile", path=str(file.resolve()))["result"]
        if not result["success"]:
            raise BicepError(self._problems(file, result))
        return str(result["contents"])

    def snapshot(self, template: str, parameters: Mapping[str, Any]) -> Snapshot:
        """Return the resources that a JSON template would deploy with these parameters, and its outputs.

        Raises:
            BicepError: The compiler rejects a parameter.
            DeploymentFailure: The template itself rejects the parameters.
        """
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder).resolve() / "main.bicepparam"
            lines = ["using 'main.json'"]
            lines += [f"param {name} = {to_bicep(value)}" for name, value in sorted(parameters.items())]
            file.with_suffix(".json").write_text(template, encoding="utf-8")
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return self.snapshot_of(file)

    def snapshot_of(self, file: Path) -> Snapshot:
        """Return the resources that the template of a parameter file would deploy, and its outputs.

        Raises:
            BicepError: The compiler rejects the template or a parameter.
            DeploymentFailure: The template itself rejects the parameters.
        """
        answer = self._call("bicep/getSnapshot", path=str(file.resolve()), metadata=METADATA)
        if error := answer.get("error"):
            if error["message"] == "Compilation failed":
                raise BicepError(self._problems(file, self._compile(file)))
            raise DeploymentFailure(error["message"].partition(" Please see https://aka.ms/")[0])
        snapshot: Snapshot = json.loads(answer["result"]["snapshot"])
        if snapshot["diagnostics"]:
            raise BicepError(str(snapshot["diagnostics"]))
        return snapshot

    def parameters(self, file: Path) -> dict[str, Any]:
        """Return the parameters that a .bicepparam file sets without environment variables.

        It compiles each content once.

        Raises:
            BicepError: The compiler rejects the file.
        """
        read = (file, file.parent / "relay.json")
        content = tuple(each.read_text(encoding="utf-8") for each in read if each.exists())
        if content not in self._parameters:
            result = self._compile(file)
            if not result["success"]:
                raise BicepError(self._problems(file, result))
            self._parameters[content] = _values(result["parameters"])
        return dict(self._parameters[content])

    def parameters_of(self, text: str) -> dict[str, Any]:
        """The parameters that the text of a parameter file sets, of whichever template.

        Raises:
            BicepError: The compiler rejects the text.
        """
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "text.bicepparam"
            of_any = re.sub(r"^using .*$", "", text, count=1, flags=re.MULTILINE)
            file.write_text(f"using none\n{of_any}", encoding="utf-8")
            return self.parameters(file)

    def _compile(self, file: Path) -> dict[str, Any]:
        answer = self._call("bicep/compileParams", path=str(file.resolve()), parameterOverrides={})
        compiled: dict[str, Any] = answer["result"]
        return compiled

    def _problems(self, file: Path, compiled: Mapping[str, Any]) -> str:
        """Each error, with the line that it is in."""
        found = [each for each in compiled["diagnostics"] if each["level"] == "Error"]
        lines = file.read_text(encoding="utf-8").splitlines()
        return "\n".join(
            f"{each['code']}: {each['message']} {lines[each['range']['start']['line']]}"
            if Path(each["source"]) == file.resolve()
            else f"{Path(each['source']).name}: {each['code']}: {each['message']}"
            for each in found
        )

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        self._calls += 1
        body = json.dumps({"jsonrpc": "2.0", "id": self._calls, "method": method, "params": parameters}).encode()
        requests.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        requests.flush()
        while True:
            length = 0
            while header := answers.readline().strip():
                name, _, value = header.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            if not length:
                raise BicepError(f"the compiler ended: it needs version 0.41 or later, {MISSING}")
            answer: dict[str, Any] = json.loads(answers.read(length))
            if answer.get("id") == self._calls:
                return answer


def to_bicep(value: Any) -> str:
    """A value as Bicep writes it."""
    match value:
        case bool() | None:
            return json.dumps(value)
        case int():
            return str(value)
        case dict():
            entries = (f"{to_bicep(name)}: {to_bicep(each)}" for name, each in value.items())
            return "{\n" + "\n".join(entries) + "\n}"
        case list() | tuple():
            return "[\n" + "\n".join(map(to_bicep, value)) + "\n]"
    text = str(value).replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${").replace("\n", "\\n")
    return f"'{text}'"
