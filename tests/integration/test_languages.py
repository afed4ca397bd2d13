"""docs/writing-from-any-language.md: its programs write events that arrive as written, and receive them in order.

The JavaScript SDK is a client of the Cosmos DB emulator that no other test has.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from packages.emulators.tests.languages import compiled
from tests.integration.conftest import ROOT
from tests.support.contract import WRITTEN, check_message
from tests.support.stacks import RunningStack, running_stack
from tests.support.subscriber import body, properties, received
from tests.support.watchdog import WATCHDOG_S

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("languages")]

PAGE = (ROOT / "docs" / "writing-from-any-language.md").read_text(encoding="utf-8")
PACKAGES = ROOT / "packages" / "emulators" / "tests" / "languages" / "node_modules"

Ended = tuple[int | None, str, str]
"""The exit code, the output and the errors of a program."""


@dataclass(frozen=True, slots=True)
class Language:
    """An example of the page.

    Attributes:
        section: The heading that it is under.
        block: The language of its code block.
        file: What the page calls the program.
        command: What the page runs it with.
        missing: Why it cannot be run here; None if it can.
        launch: What the test runs the program with instead; the page's command by default.
    """

    section: str
    block: str
    file: str
    command: str
    missing: Callable[[], str | None]
    launch: Callable[[Path], list[str]] | None = None

    def program(self) -> str:
        """The program's text. AssertionError if the page does not have it, or runs it in another way."""
        [section] = re.findall(rf"^## {self.section}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
        texts: list[str] = re.findall(rf"```{self.block}\n(.*?)```", section, re.DOTALL)
        [program] = [text for text in texts if re.search(rf"^(#|//) {self.file}$", text, re.MULTILINE)]
        assert f"\n{self.command} {self.file} contact-" in section
        return program


def _without_curl() -> str | None:
    return next((f"{name} is not installed" for name in ("curl", "openssl") if shutil.which(name) is None), None)


def _without_node() -> str | None:
    if shutil.which("node") is None:
        return "Node is not installed"
    return None if (PACKAGES / "@azure" / "cosmos").exists() else "make languages has not installed @azure/cosmos"


def _java(_: Path) -> list[str]:
    """Return the launcher of a single source file, with the packages that jbang would fetch."""
    # Java 17 reads sources in the encoding of the locale, and the environment has none.
    return ["java", "-Dfile.encoding=UTF-8", "-cp", compiled.java_packages()]


def _go(program: Path) -> list[str]:
    """Return the launcher of a program, with the module that `go get` would make."""
    compiled.go_module("cosmos", program)
    return ["go", "run"]


JAVA_PACKAGE = "com.azure:azure-cosmos:4.81.0"

LANGUAGES = [
    Language("curl", "sh", "write.sh", "sh", _without_curl),
    Language("Node", "js", "write.mjs", "node", _without_node),
    Language("Java", "java", "Write.java", f"jbang --deps {JAVA_PACKAGE}", lambda: None, _java),
    Language("Go", "go", "write.go", "go run", lambda: None, _go),
]


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of the page.

    Attributes:
        section: The heading that it is under.
        block: The language of its code block.
        file: What the page calls the program.
        launch: Return the command that runs the program.
    """

    section: str
    block: str
    file: str
    launch: Callable[[Path], list[str]]

    def program(self) -> str:
        """The program's text. AssertionError if the page does not have it, or runs it in another way."""
        [section] = re.findall(rf"^### {self.section}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
        assert re.search(rf"^(jbang --deps \S+|go run) {self.file}$", section, re.MULTILINE)
        [program] = re.findall(rf"```{self.block}\n(// {self.file}\n.*?)```", section, re.DOTALL)
        return str(program)


def _go_consumer(program: Path) -> list[str]:
    """Return the program that `go run` would run, which ends at a signal, as `go run` does not."""
    compiled.go_module("servicebus", program)
    built = program.with_suffix("")
    subprocess.run(["go", "build", "-o", built, program.name], cwd=program.parent, timeout=WATCHDOG_S, check=True)
    return [str(built)]


CONSUMERS = [
    Consumer("Receive in Java", "java", "Receive.java", lambda program: [*_java(program), program.name]),
    Consumer("Receive in Go", "go", "receive.go", _go_consumer),
]


def parameters(examples: Sequence[Language] | Sequence[Consumer]) -> list[Any]:
    """Return examples as parameters; those of Go, whose library may take half a minute to compile, are weekly."""
    return [
        pytest.param(each, marks=[pytest.mark.weekly] if each.block == "go" else [], id=each.section)
        for each in examples
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningStack]:
    async with running_stack(tmp_path_factory.mktemp("stack") / "logs") as running:
        yield running


@pytest.mark.parametrize("language", parameters(LANGUAGES))
async def test_what_an_example_writes_arrives_exactly_as_written(
    stack: RunningStack, language: Language, tmp_path: Path
) -> None:
    if reason := language.missing():
        pytest.skip(reason)
    contact = f"contact-{language.section}"

    code, printed, errors = await run(language, contact, stack, tmp_path)
    assert code == 0, errors
    identifier = printed.strip()
    before = await stored(stack, contact)
    code, printed, errors = await run(language, contact, stack, tmp_path)
    after = await stored(stack, contact)
    subscriber = await received(stack.stack.settings["SERVICEBUS"], 1, receivers=1)

    assert before.keys() == {contact, identifier}
    event, document = before[identifier], before[contact]
    WRITTEN.validate(event)
    assert event == {
        "id": identifier,
        "partitionKey": contact,
        "type": "domainEvent",
        "order": 0,
        "sequence": 1,
        "ttl": 864000,
        "traceparent": event["traceparent"],
        "data": {
            "action": "ContactCreatedEvent",
            "contactId": contact,
            "name": "Zoë",
            "bornOn": "1990-07-01",
            "balance": "12.50",
            "rating": 4.5,
            "createdAt": event["data"]["createdAt"],
        },
    }
    assert (document["type"], document["data"]) == ("contact", {"name": "Zoë", "bornOn": "1990-07-01"})
    # The contact existed already: neither document was written.
    assert (code, printed) == (1, "")
    assert "The batch failed: " in errors
    assert "409" in errors
    assert after == before

    [message] = subscriber.messages[contact]
    check_message(message, "event")
    assert message.message_id == identifier
    assert json.loads(body(message)) == event["data"]
    assert {name: value for name, value in properties(message).items() if name != "cosmosTimestamp"} == {
        "type": "domainEvent",
        "createdAt": event["data"]["createdAt"],
        "traceparent": event["traceparent"],
        "sequence": 1,
    }


async def test_the_consumer_in_node_has_each_effect_once(stack: RunningStack, tmp_path: Path) -> None:
    if reason := _without_node():
        pytest.skip(reason)
    node = next(each for each in LANGUAGES if each.section == "Node")
    events = {}
    for contact in ("received-first", "received-again"):
        code, printed, errors = await run(node, contact, stack, tmp_path)
        assert code == 0, errors
        events[contact] = printed.strip()
    [program] = re.findall(r"```js\n(// receive\.mjs\n.*?)```", PAGE, re.DOTALL)
    (tmp_path / "receive.mjs").write_text(program, encoding="utf-8")
    # As if the process had died between the effect and the completion of the second one.
    names = await stack.create_container("contact-names", "/partitionKey")
    await names.create_item({"id": f"handled-{events['received-again']}", "partitionKey": "received-again"})

    process = await asyncio.create_subprocess_exec(
        *("node", "receive.mjs"), cwd=tmp_path, env=environment(stack), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        lines = {(await asyncio.wait_for(process.stdout.readline(), WATCHDOG_S)).decode().strip() for _ in events}
    finally:
        process.kill()
        await process.wait()
    effects = [item async for item in names.query_items("SELECT * FROM c WHERE c.id = 'contact'")]

    assert lines == {f"handled {events['received-first']}", f"repeated {events['received-again']}"}
    assert [(each["partitionKey"], each["name"]) for each in effects] == [("received-first", "Zoë")]


@pytest.mark.parametrize("consumer", parameters(CONSUMERS))
async def test_a_consumer_handles_a_session_in_order_and_leaves_it_after_a_failure(
    stack: RunningStack, consumer: Consumer, tmp_path: Path
) -> None:
    program = tmp_path / consumer.file
    program.write_text(consumer.program(), encoding="utf-8")
    command = await asyncio.to_thread(consumer.launch, program)
    key = f"received-{consumer.file}"
    # The second one cannot be handled.
    names = {f"{key}-1": "Zoë", f"{key}-2": 2, f"{key}-3": "Zoë"}
    events = [
        ("create", (_event(key, event, number, name),)) for number, (event, name) in enumerate(names.items(), 1)
    ]
    await stack.container("data").execute_item_batch(events, key)

    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=tmp_path,
        env=environment(stack),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        lines = await _lines_until(process, f"handled {key}-3")
        process.terminate()
        await asyncio.wait_for(process.wait(), WATCHDOG_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    said = [found[0] for line in lines if (found := re.search(rf"(handled|failed) {key}-\d", line))]
    # After ten deliveries it is a dead letter. A message may come again.
    assert said.count(f"failed {key}-2") == 10
    assert [each for each, _ in itertools.groupby(said)] == [
        f"handled {key}-1",
        f"failed {key}-2",
        f"handled {key}-3",
    ]


def _event(key: str, identifier: str, sequence: int, name: object) -> dict[str, Any]:
    return {
        "id": identifier,
        "partitionKey": key,
        "type": "domainEvent",
        "data": {"action": "ContactCreatedEvent", "name": name},
        "order": sequence - 1,
        "sequence": sequence,
        "ttl": 864000,
    }


async def _lines_until(process: asyncio.subprocess.Process, last: str) -> list[str]:
    """Return the lines that a process prints up to one that begins with `last`."""
    assert process.stdout is not None
    lines = []
    async with asyncio.timeout(WATCHDOG_S):
        async for line in process.stdout:
            lines.append(line.decode().rstrip())
            if lines[-1].startswith(last):
                return lines
    raise AssertionError("\n".join(lines))


async def test_the_page_has_the_versions_of_the_sdks_that_the_tests_run() -> None:
    pom = (compiled.JAVA / "pom.xml").read_text(encoding="utf-8")
    java = re.findall(r"^jbang --deps (\S+):(\S+):(\S+) ", PAGE, re.MULTILINE)
    go = re.findall(r"^go get (\S+)@(\S+)$", PAGE, re.MULTILINE)

    assert [artifact for _, artifact, _ in java] == ["azure-cosmos", "azure-messaging-servicebus"]
    for group, artifact, version in java:
        assert re.search(
            rf"<groupId>{group}</groupId>\s*<artifactId>{artifact}</artifactId>\s*<version>{version}</version>",
            pom,
        )
    assert [module.rpartition("/")[2] for module, _ in go] == ["azcosmos", "azservicebus"]
    for module, version in go:
        folder = compiled.GO / module.rpartition("/")[2].removeprefix("az")
        assert f"\t{module} {version}\n" in (folder / "go.mod").read_text(encoding="utf-8")


async def test_the_javascript_sdk_is_answered_as_by_cosmos_db(stack: RunningStack, tmp_path: Path) -> None:
    package = json.loads((ROOT / "packages/emulators/tests/languages/package.json").read_text(encoding="utf-8"))
    versions = [f"{name}@{package['dependencies'][name]}" for name in ("@azure/cosmos", "@azure/service-bus")]
    assert f"npm install {versions[0]}\n" in PAGE
    assert f"npm install {' '.join(versions)}\n" in PAGE
    if reason := _without_node():
        pytest.skip(reason)

    code, printed, errors = await started(
        "node", ROOT / "packages/emulators/tests/languages/operations.mjs", stack=stack, folder=tmp_path
    )

    assert code == 0, errors
    assert json.loads(printed) == {
        "created": 201,
        "createdAgain": 409,
        "read": 1,
        "missing": 404,
        "batch": [200, 200],
        "staleBatch": [207, 424, 412],
        "staleReplace": 412,
        "upserted": 201,
        "patched": 2,
        "bulk": [201, 201, 201],
        "inPartition": ["c", "a"],
        "parameters": ["x", "y", "z"],
        "sorted": ["a", "c", "x", "y", "z"],
        "sortedWithPlan": ["z", "y", "x", "c", "a"],
        "counted": [5],
        "changes": ["a", "c"],
        "deleted": 204,
    }


async def run(language: Language, contact: str, stack: RunningStack, folder: Path) -> Ended:
    """Run the page's program for a contact."""
    (folder / language.file).write_text(language.program(), encoding="utf-8")
    packages = folder / PACKAGES.name
    if not packages.is_symlink():
        packages.symlink_to(PACKAGES)
    launch = (
        [language.command]
        if language.launch is None
        else await asyncio.to_thread(language.launch, folder / language.file)
    )
    return await started(*launch, language.file, contact, stack=stack, folder=folder)


def environment(stack: RunningStack) -> dict[str, str]:
    """Return the variables that `source .local/stack.env` sets, as far as programs need them, and that of Java."""
    return {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},  # HOME has Go's modules
        "COSMOS_HTTP_CONNECTION_WITHOUT_TLS_ALLOWED": "true",
        **{name: stack.stack.settings[name] for name in ("COSMOS", "SERVICEBUS")},
    }


async def started(*command: str | Path, stack: RunningStack, folder: Path) -> Ended:
    """Run a command in a folder until it ends, with the connection string of the stack's Cosmos DB."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environment(stack),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(), WATCHDOG_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode(), errors.decode()


async def stored(stack: RunningStack, contact: str) -> dict[str, dict[str, Any]]:
    """The documents of a contact by id, without what Cosmos DB adds. By a query: a point read can be stale."""
    items = stack.container("data").query_items("SELECT * FROM c", partition_key=contact)
    return {
        item["id"]: {name: value for name, value in item.items() if not name.startswith("_")}
        async for item in items
    }
