"""The snapshots of the Bicep compiler, which the checks read: no test of a check needs the compiler.

`infra/*.snapshot.json` are those of the parameter files, as `bicep snapshot` writes them. `tests/infra/snapshots`
has those of other parameters, each as its difference from that of a parameter file.

    python -m tests.infra.snapshots     take each snapshot anew, after a change in infra/
    SNAPSHOTS=record pytest …           take the snapshots that a new check asks for
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from tests.infra.compiler import Compiler, Snapshot, read_parameters
from tests.infra.deployment import BicepError, Deployment, DeploymentFailure, read_snapshot

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).with_suffix("")
PARAMETERS = FOLDER / "parameters.json"
SOURCES = FOLDER / "sources.json"
COMMAND = "python -m tests.infra.snapshots"

Given = Mapping[str, Any]


class Source(Protocol):
    """Answers what a template would deploy."""

    def deployment(self, infra: Path, template: str, file: str, given: Given) -> Deployment:
        """The deployment of a template with the parameters of `file` (none if empty) and those given.

        Raises:
            BicepError: The compiler rejects the template or a parameter.
            DeploymentFailure: The template itself rejects the parameters.
        """

    def parameters(self, infra: Path, file: str, environment: Mapping[str, str]) -> dict[str, Any]:
        """The parameters that a parameter file sets, with these environment variables."""

    def parameters_of(self, text: str) -> dict[str, Any]:
        """The parameters in a text, such as one of a page."""


class Compiled:
    """Asks the compiler, which builds each template once."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._templates: dict[Path, str] = {}
        self._deployments: dict[str, Deployment] = {}

    def deployment(self, infra: Path, template: str, file: str, given: Given) -> Deployment:
        key = key_of(template, file, given)
        if key not in self._deployments:
            self._deployments[key] = read_snapshot(self.snapshot(infra, template, file, given))
        return self._deployments[key]

    def snapshot(self, infra: Path, template: str, file: str, given: Given) -> Snapshot:
        """Return the compiler's snapshot of a deployment."""
        of_file = self.parameters(infra, file, {}) if file else {}
        path = infra / template
        if path not in self._templates:
            self._templates[path] = self._compiler.build(path)
        return self._compiler.snapshot(self._templates[path], {**of_file, **given})

    def parameters(self, infra: Path, file: str, environment: Mapping[str, str]) -> dict[str, Any]:
        if environment:
            return read_parameters(infra / file, environment)
        return self._compiler.parameters(infra / file)

    def parameters_of(self, text: str) -> dict[str, Any]:
        return self._compiler.parameters_of(text)


class Recorded:
    """Reads the committed snapshots. With SNAPSHOTS=record, those that are missing are taken."""

    def deployment(self, infra: Path, template: str, file: str, given: Given) -> Deployment:
        key = key_of(template, file, given)
        if key not in self._deployments:
            self._deployments[key] = self._read_deployment(template, file, given)
        found = self._deployments[key]
        if isinstance(found, Exception):
            raise found
        return found

    def parameters(self, infra: Path, file: str, environment: Mapping[str, str]) -> dict[str, Any]:
        wanted = {"file": file, "environment": dict(environment)}
        return self._parameters(wanted, f"{file} with {dict(environment)}")

    def parameters_of(self, text: str) -> dict[str, Any]:
        return self._parameters({"text": text}, f"the parameters {text}")

    def _parameters(self, wanted: dict[str, Any], name: str) -> dict[str, Any]:
        for each in read_all_parameters():
            if wanted.items() <= each.items():
                return dict(each["parameters"])
        self._record_or_fail(wanted, name)
        return self._parameters(wanted, name)

    @cached_property
    def _deployments(self) -> dict[str, Deployment | Exception]:
        return {}

    def _read_deployment(self, template: str, file: str, given: Given) -> Deployment | Exception:
        if file and not given:
            return read_snapshot(json.loads(snapshot_path(file).read_text(encoding="utf-8")))
        path = record_path(template, file, given)
        if not path.exists():
            self._record_or_fail({"template": template, "file": file, "given": given}, str(path.relative_to(ROOT)))
        record = json.loads(path.read_text(encoding="utf-8"))
        if "refused" in record:
            return (DeploymentFailure if record["by"] == "template" else BicepError)(record["refused"])
        return read_snapshot(_apply(record, _base(file)))

    def _record_or_fail(self, wanted: dict[str, Any], name: str) -> None:
        assert os.environ.get("SNAPSHOTS") == "record", (
            f"no snapshot is recorded of {name}: run this test again with SNAPSHOTS=record, which needs the Bicep "
            "compiler, and commit what it writes"
        )
        assert source_digests() == read_sources(), f"a file has changed: first run {COMMAND}"
        with Compiler() as compiler:
            source = Compiled(compiler)
            if "template" in wanted:
                write_record(source, wanted["template"], wanted["file"], wanted["given"])
            else:
                _write(PARAMETERS, [*read_all_parameters(), evaluate(source, wanted)])


def key_of(template: str, file: str, given: Given) -> str:
    """A text that is the same for the same deployment."""
    return json.dumps([template, file, given], sort_keys=True)


def snapshot_path(file: str) -> Path:
    """Return the path to which `bicep snapshot` writes the snapshot of a parameter file."""
    return ROOT / "infra" / f"{file.removesuffix('.bicepparam')}.snapshot.json"


def record_path(template: str, file: str, given: Given) -> Path:
    """The file of a snapshot, which names its parameters."""
    stem = file.removesuffix(".bicepparam") or template.removesuffix(".bicep")
    digest = hashlib.sha256(key_of(template, file, given).encode()).hexdigest()[:8]
    return FOLDER / stem / f"{'-'.join(sorted(given))[:80]}.{digest}.json"


def records() -> Iterator[Path]:
    """The files of all snapshots with other parameters than those of a file."""
    yield from sorted(FOLDER.glob("*/*.json"))


def parameter_files() -> list[str]:
    """The names of the parameter files."""
    return [file.name for file in sorted((ROOT / "infra").glob("*.bicepparam"))]


def read_all_parameters() -> list[dict[str, Any]]:
    """The evaluated parameter files."""
    return list(json.loads(PARAMETERS.read_text(encoding="utf-8"))) if PARAMETERS.exists() else []


def read_sources() -> dict[str, str]:
    """A digest of each file that the snapshots were taken of."""
    return dict(json.loads(SOURCES.read_text(encoding="utf-8")))


def source_digests() -> dict[str, str]:
    """A digest of each file that a snapshot depends on."""
    infra = ROOT / "infra"
    read = sorted(file for file in infra.rglob("*") if file.suffix in (".bicep", ".bicepparam", ".kql"))
    return {
        str(file.relative_to(ROOT)): hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        for file in (*read, infra / "relay.json")
    }


def take(source: Compiled, template: str, file: str, given: Given) -> dict[str, Any]:
    """Take the snapshot of a deployment, as it is recorded."""
    record: dict[str, Any] = {"template": template, "file": file, "given": given}
    try:
        taken = source.snapshot(ROOT / "infra", template, file, given)
    except (DeploymentFailure, BicepError) as refused:
        by = "template" if isinstance(refused, DeploymentFailure) else "compiler"
        return {**record, "by": by, "refused": str(refused)}
    return {**record, **_difference(taken, _base(file))}


def write_record(source: Compiled, template: str, file: str, given: Given) -> None:
    """Take and write the snapshot of a deployment."""
    path = record_path(template, file, given)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, take(source, template, file, given))


def evaluate(source: Compiled, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a file or of a text, as they are recorded."""
    if "text" in wanted:
        return {"text": wanted["text"], "parameters": source.parameters_of(wanted["text"])}
    file, environment = wanted["file"], wanted["environment"]
    parameters = source.parameters(ROOT / "infra", file, environment)
    return {"file": file, "environment": environment, "parameters": parameters}


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _base(file: str) -> Snapshot:
    """The snapshot from which others differ."""
    if not file:
        return {"predictedResources": [], "outputs": {}}
    base: Snapshot = json.loads(snapshot_path(file).read_text(encoding="utf-8"))
    return base


def _by_place(snapshot: Snapshot) -> dict[str, Any]:
    """The resources by id; the second one with an id by the id and its number."""
    seen: Counter[str] = Counter()
    found = {}
    for each in snapshot["predictedResources"]:
        seen[each["id"]] += 1
        found[each["id"] if seen[each["id"]] == 1 else f"{each['id']}#{seen[each['id']]}"] = each
    return found


def _difference(taken: Snapshot, base: Snapshot) -> dict[str, Any]:
    own, others = _by_place(taken), _by_place(base)
    return {
        "resources": {place: each for place, each in own.items() if others.get(place) != each},
        "without": [place for place in others if place not in own],
        "outputs": {name: each for name, each in taken["outputs"].items() if base["outputs"].get(name) != each},
    }


def _apply(record: dict[str, Any], base: Snapshot) -> Snapshot:
    kept = {place: each for place, each in _by_place(base).items() if place not in record["without"]}
    resources = {**kept, **record["resources"]}
    return {"predictedResources": [*resources.values()], "outputs": {**base["outputs"], **record["outputs"]}}


def main() -> None:
    """Take each snapshot anew."""
    with Compiler() as compiler:
        for file in parameter_files():
            snapshot_path(file).write_text(json.dumps(compiler.snapshot_of(ROOT / "infra" / file), indent=2))
        source = Compiled(compiler)
        _write(PARAMETERS, [evaluate(source, each) for each in read_all_parameters()])
        for path in records():
            known = json.loads(path.read_text(encoding="utf-8"))
            write_record(source, known["template"], known["file"], known["given"])
    _write(SOURCES, source_digests())


if __name__ == "__main__":
    main()
