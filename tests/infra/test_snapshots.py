"""The committed snapshots belong to the committed sources, and the expressions that they leave have values."""

from __future__ import annotations

from typing import Any

import pytest

from tests.infra import snapshots
from tests.infra.compiler import RESOURCE_GROUP, SUBSCRIPTION_ID
from tests.infra.deployment import read_snapshot
from tests.infra.runtime import resolve

GROUP = f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/{RESOURCE_GROUP}"
ACCOUNT = f"{GROUP}/providers/Microsoft.DocumentDB/databaseAccounts/cosmos-x"


def test_the_snapshots_were_taken_of_these_sources() -> None:
    recorded = snapshots.read_sources()
    own = snapshots.source_digests()
    changed = sorted(name for name in {*recorded, *own} if recorded.get(name) != own.get(name))

    assert changed == [], f"run {snapshots.COMMAND}, which needs the Bicep compiler, and look at the difference"


def test_no_snapshot_names_a_path_of_a_machine() -> None:
    for path in (
        snapshots.PARAMETERS,
        *snapshots.records(),
        *map(snapshots.snapshot_path, snapshots.parameter_files()),
    ):
        text = path.read_text(encoding="utf-8")
        for word in (str(snapshots.ROOT), "/tmp/", "/home/", "file://"):
            assert word not in text, path.name


def test_a_repeated_resource_is_as_it_was_deployed_last() -> None:
    first: dict[str, Any] = {"id": ACCOUNT, "type": "Microsoft.DocumentDB/databaseAccounts", "name": "cosmos-x"}
    deployment = read_snapshot({"predictedResources": [first, {**first, "kind": "later"}], "outputs": {}})

    [account] = deployment.resources
    assert account.at("kind") == "later"
    assert deployment.repeated == {ACCOUNT}


@pytest.mark.parametrize("own", ["a", "providers"])
def test_an_extension_resource_has_the_scope_that_it_extends(own: str) -> None:
    kind = "Microsoft.Authorization/locks"
    lock = {"id": f"{ACCOUNT}/providers/{kind}/{own}", "type": kind, "name": own}
    alone = {"id": f"{GROUP}/providers/{kind}/{own}", "type": kind, "name": own}
    deployment = read_snapshot({"predictedResources": [lock, alone], "outputs": {}})

    assert {each.id: each.scope for each in deployment.resources} == {lock["id"]: ACCOUNT, alone["id"]: None}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("plain", "plain"),
        ("[[not an expression]", "[not an expression]"),
        ("[format('{0}''s', 'it')]", "it's"),
        (f"[reference('{ACCOUNT}', '2025-04-15').documentEndpoint]", "https://cosmos-x.documents.azure.com:443/"),
        ("[replace(replace('https://x:443/', 'https://', ''), ':443/', '')]", "x"),
        ("[createObject('a', 'b', 'c', createObject())]", {"a": "b", "c": {}}),
        ("[filter(split('a//b', '/'), lambda('x', not(empty(lambdaVariables('x')))))[1]]", "b"),
        (
            f"[resourceId('{SUBSCRIPTION_ID}', 'g', 'A.B/c/d', 'x', 'y')]",
            f"/subscriptions/{SUBSCRIPTION_ID}/resourceGroups/g/providers/A.B/c/x/d/y",
        ),
        ("[uri(environment().resourceManager, '/subscriptions')]", "https://management.azure.com/subscriptions"),
    ],
)
def test_an_expression_has_its_value(expression: str, value: object) -> None:
    assert resolve({"in": [expression]}) == {"in": [value]}


@pytest.mark.parametrize(
    "expression", ["[if(equals(1, 1), 'a', 'b')]", "[parameters('x')]", "[reference('/a/providers/B.C/d/e').f]"]
)
def test_an_unknown_expression_is_an_error(expression: str) -> None:
    with pytest.raises(ValueError, match=r"add (?:it|them) to"):
        resolve(expression)
