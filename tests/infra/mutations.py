"""The changes of load-bearing lines that a check has to notice: mutations.yaml."""

from __future__ import annotations

from typing import NamedTuple

from tests.infra.project import ROOT, Project


class Mutation(NamedTuple):
    """`check` must fail if `old` is replaced by `new` in `file`, a path relative to `infra/`."""

    check: str
    file: str
    old: str
    new: str


MUTATIONS = [
    Mutation(check, *change)
    for check, changes in Project(ROOT).yaml("tests/infra/mutations.yaml").items()
    for change in changes
]
