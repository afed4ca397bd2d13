"""The mutations of mutations.yaml have lines to change: without a compiler, none of them is tried."""

from __future__ import annotations

from tests.infra.mutations import MUTATIONS
from tests.infra.project import ROOT


def test_the_line_that_a_mutation_changes_exists() -> None:
    files = {mutation.file for mutation in MUTATIONS}
    texts = {file: (ROOT / "infra" / file).read_text(encoding="utf-8") for file in files}

    assert [each for each in MUTATIONS if each.old not in texts[each.file]] == []
