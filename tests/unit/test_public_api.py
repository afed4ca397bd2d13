"""The public API of each library is the recorded one: `tests/unit/public_api` has the signatures of its names.

After an intended change, record it: `PUBLIC_API=record python -m pytest tests/unit/test_public_api.py`.
"""

from __future__ import annotations

import difflib
import importlib
import os
from pathlib import Path

import pytest

from docs.site.public_names import MODULES
from tests.support.signatures import describe

FOLDER = Path(__file__).with_name("public_api")
IS_RECORDED = os.environ.get("PUBLIC_API") == "record"


@pytest.mark.parametrize("module_name", MODULES)
def test_the_public_api_is_the_recorded_one(module_name: str) -> None:
    path = FOLDER / f"{module_name}.txt"
    found = describe(importlib.import_module(module_name))
    if IS_RECORDED:
        path.write_text(found, encoding="utf-8", newline="\n")

    recorded = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = difflib.unified_diff(recorded.splitlines(), found.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]

    assert changed == [], (
        f"the public API of {module_name} has changed:\n\n" + "\n".join(changed) + "\n\n"
        "If users are to have this change, write a line into CHANGELOG.md, deprecate what it removes or renames "
        "(docs/releasing.md#public-api), and record it: "
        "PUBLIC_API=record python -m pytest tests/unit/test_public_api.py"
    )


def test_no_other_public_api_is_recorded() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {*MODULES}
