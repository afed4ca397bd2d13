"""The rows that the workspace drops before it stores and bills them."""

from __future__ import annotations

import re

from tests.infra.project import WORKSPACE, Project, check

RULES = "Microsoft.Insights/dataCollectionRules"

OPERATORS = {"where", "or", "and", "!=", "!has", "!contains", "true"}
"""Of those that a transformation may use.

https://learn.microsoft.com/azure/azure-monitor/data-collection/data-collection-transformations-kql
"""


@check
def the_workspace_drops_the_hosts_own_successful_spans(project: Project) -> None:
    written = (project.infra / "transformations/dependencies.kql").read_text(encoding="utf-8")
    for deployment in (project.bare, *project.both):
        workspace, rule = deployment.one(WORKSPACE), deployment.one(RULES)
        assert rule.at("kind") == "WorkspaceTransforms"
        assert rule.at("location") == workspace.at("location")
        [flow], [target] = rule.at("properties.dataFlows"), rule.at("properties.destinations.logAnalytics")
        assert (flow["streams"], flow["destinations"]) == (["Microsoft-Table-AppDependencies"], [target["name"]])
        assert target["workspaceResourceId"] == workspace.id
        assert flow["transformKql"] == written.strip()
        # Linked, and with everything that it was deployed with at first.
        assert workspace.at("properties.defaultDataCollectionRuleResourceId") == rule.id
        assert workspace.at("properties.retentionInDays") >= 30


@check
def a_workspace_without_the_rule_is_not_linked_to_one(project: Project) -> None:
    for deployment in (project.deploy(dropHostSpans=False), *project.sql_deployments.values()):
        assert deployment.of(RULES) == []
        assert deployment.one(WORKSPACE).at("properties.defaultDataCollectionRuleResourceId") is None
    # It may have a rule of its own, and a workspace has one.
    existing = project.deploy(existingWorkspace="logs")
    assert (existing.of(RULES), existing.of(WORKSPACE)) == ([], [])


@check
def a_transformation_is_one_line_of_what_is_supported(project: Project) -> None:
    for file in sorted((project.infra / "transformations").glob("*.kql")):
        text = file.read_text(encoding="utf-8").removesuffix("\n")
        assert "\n" not in text, file.name
        assert "//" not in text, file.name
        assert text.startswith("source | where "), file.name
        words = set(re.findall(r"!?[\w]+|!=", re.sub(r'"[^"]*"', "", text.removeprefix("source"))))
        assert words - OPERATORS <= {"Success", "DependencyType", "Target"}, file.name
