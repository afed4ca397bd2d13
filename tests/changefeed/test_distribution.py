"""The wheel of outbox-relay-changefeed, usable without the repository, and the examples of its README."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox_relay import changefeed
from tests.support.pages import SHELL, blocks
from tests.support.watchdog import WATCHDOG_S
from tests.support.wheels import Wheel, build

pytestmark = pytest.mark.slow

_PACKAGE = Path(changefeed.__file__).parent
_README = _PACKAGE / "README.md"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build("outbox_relay/changefeed", tmp_path_factory.mktemp("wheel"))


_COMMAND = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module('outbox_relay.changefeed', run_name='__main__', alter_sys=True)"
)


def alone(installed: Wheel, program: str, given: str = "", **environment: str) -> str:
    """Run a program that can import the wheel, but nothing of this repository; returns its output."""
    done = subprocess.run(
        installed.program(program),
        input=given,
        cwd=installed.site,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_every_module_and_migration(installed: Wheel) -> None:
    # Other distributions may have modules in the same folders.
    [record] = installed.site.glob("outbox_relay_changefeed-*.dist-info/RECORD")
    installed_files = {Path(line.split(",")[0]) for line in record.read_text(encoding="utf-8").splitlines()}
    modules = {path for path in installed_files if path.parts[0] == "outbox_relay" and path.suffix != ".pyc"}

    expected = [path for pattern in ("*.py", "*.sql", "py.typed") for path in _PACKAGE.rglob(pattern)]
    assert modules == {Path("outbox_relay/changefeed") / path.relative_to(_PACKAGE) for path in expected}
    show = "from outbox_relay.changefeed.install import migrations; print(len(migrations('postgresql')))"
    migrations = (_PACKAGE / "postgresql" / "migrations").glob("*.sql")
    assert int(alone(installed, show)) == len(list(migrations))


def test_the_installed_command_is_the_module_and_names_itself(installed: Wheel) -> None:
    done = installed.script("outbox-relay-changefeed", "--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: outbox-relay-changefeed COMMAND\n")
    assert "`outbox-relay-changefeed COMMAND --help`" in done.stdout


# The examples of changefeed's README, run in their order in one database


_WORDS = 900


# Runs the page's blocks in one database: SQL as its owner, Python with one set of names, each command on its own.
_EXAMPLES = f"""
import contextlib, io, json, os, subprocess
import psycopg

names, rows, commands = {{}}, [], []
start = [sys.executable, "-I", "-c", {_COMMAND!r}, sys.path[0]]
owner = psycopg.connect(os.environ["CHANGEFEED_URL"], autocommit=True)
with contextlib.redirect_stdout(io.StringIO()) as said, owner:
    for language, *texts in json.load(sys.stdin):
        if language == "sql":
            cursor = owner.execute(*texts)
            rows += cursor.fetchall() if cursor.description else []
        elif language == "python":
            exec(*texts, names)
        else:
            commands.append(subprocess.run(start + texts, check=True, stdout=subprocess.PIPE, text=True).stdout)
names["session"].close()
changes, used = names["changes"], names["changefeed"].__file__
found = dict(used=used, said=said.getvalue(), rows=rows, commands=commands)
found["changes"] = [each.change_id for each in changes.changes]
found["last"] = [changes.cursor, "parcel-1", names["change_id"]]
print(json.dumps(found, default=str))
"""


def steps() -> Iterator[list[str]]:
    """Yield what the page runs: a language and a text, or the arguments of a command."""
    for block in blocks(_README):
        if block.language in ("sql", "python"):
            yield [block.language, block.text]
        elif block.language == SHELL and "test_the_examples_run" in block.comment:
            for line in block.text.splitlines():
                program, option, module, *arguments = shlex.split(line)
                assert (program, option, module) == ("python", "-m", "outbox_relay.changefeed")
                yield [SHELL, *arguments]


def test_the_examples_run_in_the_order_of_the_page(installed: Wheel, postgres_database: str) -> None:
    output = alone(installed, _EXAMPLES, json.dumps([*steps()]), CHANGEFEED_URL=postgres_database)

    found = json.loads(output)
    said = found["said"].splitlines()
    assert found["used"] == str(installed.site / "outbox_relay" / "changefeed" / "__init__.py")
    assert [line.split("'version': ")[1][0] for line in said if "order-1" in line] == ["1", "2"]
    assert said[-1] == "False"
    assert found["changes"] == [found["last"][-1]]
    assert found["last"] in found["rows"]
    status = next(text for text in found["commands"] if "sweep group 0" in text)
    assert "shard 0: 0 in the outbox" in status


def test_the_page_is_short() -> None:
    prose = re.sub(r"```.*?```", "", _README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(prose.split()) < _WORDS


def test_the_names_on_the_page_exist() -> None:
    named = set(re.findall(r"changefeed\.([a-zA-Z_]+)\(", _README.read_text(encoding="utf-8")))

    assert {name for name in named if not hasattr(changefeed, name)} == set()
