"""Names that must agree between Bicep, the emulators' files, the samples, the relay and the documentation."""

from __future__ import annotations

import re
from typing import Any

import pytest

from relay.config.settings import Settings
from relay.core.times import parse_duration
from tests.infra.checks.settings import CONNECTION_STRINGS, ON_REQUEST, known_settings
from tests.infra.deployment import Deployment
from tests.infra.project import (
    CONTAINERS,
    COSMOS,
    RULES,
    SERVICE_BUS,
    STORAGE,
    SUBSCRIPTIONS,
    TOPICS,
    Project,
    app_settings,
    check,
    check_each,
    worker_settings,
)

ABBREVIATIONS = {
    "Microsoft.ManagedIdentity/userAssignedIdentities": "id-",
    "Microsoft.OperationalInsights/workspaces": "log-",
    "Microsoft.Insights/components": "appi-",
    "Microsoft.Insights/dataCollectionRules": "dcr-",
    "Microsoft.Insights/actionGroups": "ag-",
    STORAGE: "st",
    COSMOS: "cosmos-",
    SERVICE_BUS: "sbns-",
    "Microsoft.Web/serverfarms": "asp-",
    "Microsoft.Web/sites": "func-",
    "Microsoft.Network/virtualNetworks": "vnet-",
    "Microsoft.Network/privateEndpoints": "pep-",
}
"""https://learn.microsoft.com/azure/cloud-adoption-framework/ready/azure-best-practices/resource-abbreviations"""


def entities(project: Project) -> Any:
    """The one topic of the emulators' entities file."""
    [namespace] = project.json("infra/emulators/Config.json")["UserConfig"]["Namespaces"]
    [topic] = namespace["Topics"]
    return topic


@check
def names_follow_the_cloud_adoption_framework(project: Project) -> None:
    for kind, prefix in ABBREVIATIONS.items():
        found = project.production.of(kind)
        assert found, kind
        for resource in found:
            assert resource.name.startswith(prefix), resource.name
    assert re.fullmatch(r"[a-z0-9]{3,24}", project.trial.one(STORAGE).name)
    assert len(project.trial.one(COSMOS).name) <= 44


_HYPHENS = r"[a-z][a-z0-9-]*[a-z0-9]"
LIMITS = {
    STORAGE: (3, 24, r"[a-z0-9]+"),
    COSMOS: (3, 44, r"[a-z0-9][a-z0-9-]+"),
    f"{COSMOS}/sqlDatabases": (1, 255, r"[^/\\#?]+"),
    CONTAINERS: (1, 255, r"[^/\\#?]+"),
    SERVICE_BUS: (6, 50, _HYPHENS),
    TOPICS: (1, 260, r"[A-Za-z0-9._~-]+"),
    f"{SERVICE_BUS}/queues": (1, 260, r"[A-Za-z0-9._~-]+"),
    SUBSCRIPTIONS: (1, 50, r"[A-Za-z0-9._-]+"),
    RULES: (1, 50, r"[A-Za-z0-9._$-]+"),
    "Microsoft.ManagedIdentity/userAssignedIdentities": (3, 128, r"[A-Za-z0-9][A-Za-z0-9_-]+"),
    "Microsoft.OperationalInsights/workspaces": (4, 63, r"[A-Za-z0-9][A-Za-z0-9-]+"),
    "Microsoft.Insights/components": (1, 260, r"[^%&\\?/]+"),
    "Microsoft.Insights/dataCollectionRules": (3, 64, r"[A-Za-z0-9._-]+"),
    "Microsoft.Insights/actionGroups": (1, 260, r"[^:<>+/&%\\?]+"),
    "Microsoft.Insights/scheduledQueryRules": (1, 260, r"[^*<>%&{}\\?/#:]+"),
    "Microsoft.Insights/metricAlerts": (1, 260, r"[^*#&+:<>?@%{}\\/]+"),
    "Microsoft.Insights/activityLogAlerts": (1, 260, r"[^<>*%{}&:\\?+/#@]+"),
    "Microsoft.Web/serverfarms": (1, 60, r"[A-Za-z0-9-]+"),
    "Microsoft.Web/sites": (2, 60, r"[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9]"),
    "Microsoft.Network/virtualNetworks": (2, 64, r"[A-Za-z0-9][\w.-]*\w"),
    "Microsoft.Network/privateEndpoints": (2, 64, r"[A-Za-z0-9][\w.-]*\w"),
    "Microsoft.App/containerApps": (2, 32, _HYPHENS),
    "Microsoft.App/managedEnvironments": (1, 60, r"[A-Za-z0-9][A-Za-z0-9-]*"),
    "Microsoft.DBforPostgreSQL/flexibleServers": (3, 63, _HYPHENS),
    "Microsoft.DBforPostgreSQL/flexibleServers/firewallRules": (1, 128, r"[\w-]+"),
    "Microsoft.Sql/servers": (1, 63, _HYPHENS),
    "Microsoft.Sql/servers/databases": (1, 128, r"[^<>*%&:\\/?]+"),
    "Microsoft.Sql/servers/firewallRules": (1, 128, r"[^<>*%&:;\\/?]+"),
    f"{STORAGE}/blobServices/containers": (3, 63, r"[a-z0-9]+(?:-[a-z0-9]+)*"),
    "Microsoft.Authorization/locks": (1, 90, r"[\w.()-]+"),
}
"""The shortest and the longest name of a resource, and its characters.

https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
"""

FIXED = {
    "Microsoft.Authorization/roleAssignments",
    f"{COSMOS}/sqlRoleAssignments",
    f"{COSMOS}/sqlRoleDefinitions",
    "Microsoft.Insights/workbooks",
    "Microsoft.Insights/diagnosticSettings",
    "Microsoft.Network/privateDnsZones",
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
    "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
    "Microsoft.Web/sites/config",
    "Microsoft.Web/sites/basicPublishingCredentialsPolicies",
    f"{STORAGE}/blobServices",
    f"{STORAGE}/managementPolicies",
    "Microsoft.App/containerApps/authConfigs",
    "Microsoft.DBforPostgreSQL/flexibleServers/administrators",
    "Microsoft.DBforPostgreSQL/flexibleServers/configurations",
    "Microsoft.DBforPostgreSQL/flexibleServers/databases",
}
"""Types whose names are ids, constants, or those of other resources."""

ODD = "Größe_/\\%&?#'{}.~-😀"
LONGEST: dict[str, Any] = {
    "serviceBusSku": "Premium",
    "relayLarge": "claim-check",
    "otherNamespaces": [
        {"connection": "B" * 64, "name": "sbns-" + "b" * 45, "resourceGroup": "r" * 90},
        {"connection": "C" * 64, "name": "sbns-" + "b" * 44 + "c", "resourceGroup": "r" * 90},
    ],
    "destinations": [
        {"name": "default"},
        {"name": "b" * 24, "kind": "queue", "entity": "in/" + "b" * 257, "connection": "B" * 64},
        {"name": "c" * 24, "entity": "in/" + "c" * 257, "connection": "C" * 64},
    ],
    "subscriptions": [{"name": "s" * 50}, {"name": "s" * 50, "destination": "c" * 24}],
}
"""The longest names that Azure, and relay.toml, allow for what a deployment takes by name."""
LONGEST_CONSOLE: dict[str, Any] = {
    "name": "ca" + "x" * 30,
    "image": "example.azurecr.io/relay:1",
    "registryName": "r" * 50,
    "signInClientId": "00000000-0000-0000-0000-000000000003",
    "groupObjectIds": ["00000000-0000-0000-0000-000000000004"],
    "cosmosAccountName": "c" * 44,
    "serviceBusName": "sbns-" + "b" * 44 + "d",
    "streams": [{"name": "default"}, {"name": "a" * 24, "database": "d" * 255}],
    **{key: LONGEST[key] for key in ("destinations", "otherNamespaces")},
}
CONSUMERS: dict[str, Any] = {
    "workspaceId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.OperationalInsights/workspaces/w",
    "applicationInsightsId": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Insights/components/c",
    "operatorEmails": ["ops@example.com"],
    "runbook": "https://example.com/docs/runbook.md",
}


@check
def every_name_stays_within_the_limits_of_its_service(project: Project) -> None:
    stream = f"{'a' * 24}-{'c' * 24}"
    deployments = [
        project.deploy(environmentName="x" * 32, privateNetworking=True, streams=[{"name": stream}], **LONGEST),
        project.deploy(environmentName=ODD),
    ]
    for engine in ("PostgreSQL", "AzureSQL"):
        name = "x" * 32 if engine == "PostgreSQL" else ODD
        given: dict[str, Any] = {
            "engine": engine,
            "environmentName": name,
            "clientIpAddresses": ["192.168.100.100"],
        }
        deployments.append(project.deploy_sql(**given, **LONGEST))
    deployments.append(project.deploy_template("console.bicep", **LONGEST_CONSOLE))
    deployments.append(project.deploy_template("consumers.bicep", **CONSUMERS))
    for deployment in deployments:
        for resource in deployment.resources:
            if resource.type in FIXED:
                continue
            shortest, longest, characters = LIMITS[resource.type]
            own = resource.name.rpartition("/")[2]
            assert shortest <= len(own) <= longest, resource.id
            assert re.fullmatch(characters, own), resource.id
        # Two with one name would be one.
        assert not [each for each in deployment.repeated if each.partition("/privateEndpoints/")[1]]
    # Azure Resource Manager keeps a deployment of each module, whose name has at most 64 characters.
    for file, text in project.files.items():
        for module in re.findall(r"^module .*\n  name: (.*)$", text, re.MULTILINE):
            for text_of_name in re.findall(r"'((?:[^'$]|\$\{(?:[^{}']|'[^']*')*\})*)'", module):
                assert longest_name_of_module(file, text_of_name) <= 64, f"{file}: {text_of_name}"


def longest_name_of_module(file: str, text: str) -> int:
    """Return the characters of a module's name, with the longest value of each variable."""
    lengths = {"each.name": 24, "entry.name": 50, "target.name": 50, "namespace.name": 50}
    if file == "console.bicep":
        lengths["name"] = 32
    # Other variables are a uniqueString.
    return len(re.sub(r"\$\{([^}]*)\}", lambda found: "x" * lengths.get(found[1], 13), text))


@check
def everything_that_can_have_tags_has_them(project: Project) -> None:
    tags = {"azd-env-name": "trial", "application": "outbox-relay", "owner": "me"}
    deployment = project.deploy(tags={"owner": "me"}, privateNetworking=True, serviceBusSku="Premium")
    for resource in deployment.resources:
        if "location" in resource.body:
            assert (resource.at("tags") or {}).items() >= tags.items(), resource.name
    for kind in ABBREVIATIONS:
        assert all("location" in resource.body for resource in deployment.of(kind)), kind


@check
def the_emulators_have_the_deployed_topic_and_subscriptions(project: Project) -> None:
    topic = entities(project)
    own = project.trial.one(TOPICS)
    labels = {}
    for rule in project.trial.of(RULES):
        filtered = rule.at("properties.correlationFilter") or {}
        labels[rule.name.split("/")[-2]] = filtered.get("label")

    assert own.name.rpartition("/")[2] == topic["Name"]
    assert topic["Properties"]["RequiresDuplicateDetection"] is own.at("properties.requiresDuplicateDetection")
    assert labels == {
        each["Name"]: next(
            (rule["Properties"]["CorrelationFilter"]["Label"] for rule in each.get("Rules", [])), None
        )
        for each in topic["Subscriptions"]
    }
    for each in topic["Subscriptions"]:
        subscription = project.trial.one(SUBSCRIPTIONS, each["Name"])
        for emulated, deployed in (
            ("RequiresSession", "requiresSession"),
            ("DeadLetteringOnMessageExpiration", "deadLetteringOnMessageExpiration"),
            ("LockDuration", "lockDuration"),
            ("MaxDeliveryCount", "maxDeliveryCount"),
        ):
            assert each["Properties"][emulated] == subscription.at(f"properties.{deployed}"), emulated


@check
def the_local_settings_sample_has_the_deployed_names(project: Project) -> None:
    sample = project.json("local.settings.sample.json")["Values"]
    settings = app_settings(project.trial)
    # The Service Bus emulator accepts ten connections, and each sender takes one. Its topic has another window.
    own = {"RELAY_SENDERS", "RELAY_DUPLICATE_WINDOW_S"}
    shared = {name for name in sample if name in settings} - own
    window = parse_duration(entities(project)["Properties"]["DuplicateDetectionHistoryTimeWindow"])
    assert float(sample["RELAY_DUPLICATE_WINDOW_S"]) == window.total_seconds()

    assert {name: settings[name] for name in shared} == {name: sample[name] for name in shared}
    assert shared >= {"COSMOS_DATABASE", "COSMOS_CONTAINER", "COSMOS_LEASE_CONTAINER", "SERVICEBUS_TOPIC"}
    known = known_settings(settings) | {"FUNCTIONS_WORKER_RUNTIME", "AzureWebJobsStorage"}
    assert set(sample) <= known


@check_each
def settings_name_the_deployed_containers_and_topic(deployment: Deployment) -> None:
    settings = app_settings(deployment)
    wanted = [settings[f"COSMOS_{name}"] for name in ("CONTAINER", "LEASE_CONTAINER", "QUARANTINE_CONTAINER")]
    assert [each.name.rpartition("/")[2] for each in deployment.of(CONTAINERS)] == wanted
    assert deployment.one(f"{COSMOS}/sqlDatabases").name.rpartition("/")[2] == settings["COSMOS_DATABASE"]
    assert deployment.one(TOPICS).name.rpartition("/")[2] == settings["SERVICEBUS_TOPIC"]


@check
def every_setting_is_documented_with_the_default_that_is_deployed(project: Project) -> None:
    text = (project.root / "docs/settings.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (`[^|]+`) \| ?`?([^|`]*?)`? ?\|", text, re.MULTILINE))
    documented = {name: default for names, default in rows.items() for name in re.findall(r"`([^`]+)`", names)}
    settings = app_settings(project.trial)
    of_worker = worker_settings(project.deploy_sql())

    assert set(documented) == known_settings(settings) == known_settings(of_worker)
    # The SQL outbox's come from the worker, and those of both are the same there.
    settings = of_worker | settings
    for name, default in documented.items():
        # The relay's default window is the service's; it is deployed with the topic's.
        if default and name not in {*CONNECTION_STRINGS, *ON_REQUEST, "RELAY_DUPLICATE_WINDOW_S"}:
            assert settings[name] == default, name


@check
def every_parameter_is_described(project: Project) -> None:
    """Where it is declared, unless it is named after a setting, whose meaning docs/settings.md has."""
    settings = {name.replace("_", "").lower() for name in known_settings(app_settings(project.trial))}
    for file in ("main.bicep", "sql.bicep", "console.bicep"):
        parameters = project.declared(file)
        assert parameters, file
        for name, decorators in parameters.items():
            assert "@description('" in decorators or name.lower() in settings, f"{file}: {name}"


@check
def every_parameter_on_a_page_exists(project: Project) -> None:
    manifest = (project.infra / "kubernetes/relay.yaml").read_text(encoding="utf-8")
    declared = "\n".join((*project.files.values(), manifest))
    for page in ("docs/deployment.md", "docs/runbook.md", "docs/console.md", "infra/README.md"):
        text = (project.root / page).read_text(encoding="utf-8")
        for name in re.findall(r"`(?:param )?([a-z]+(?:[A-Z][a-z]*)+)(?: ?= ?[^`]*)?`", text):
            assert re.search(rf"\b{name}\b", declared), f"{page}: {name}"


@check
def the_parameter_files_have_what_the_page_says_to_edit(project: Project) -> None:
    page = (project.root / "docs/deployment.md").read_text(encoding="utf-8")
    [listed] = re.findall(r"First edit .*?\n\n(.*?)\n\n", page, re.DOTALL)
    named = set(re.findall(r"`([a-z]+(?:[A-Z][a-z]+)+|runbook)`", listed))
    types = re.findall(r"(trial's|Production's) (?:file )?says `(\w+)`", listed)

    assert dict(types) == {"trial's": "User", "Production's": "Group"}
    for kind, said in zip(("trial", "production"), dict(types).values(), strict=True):
        given = project.parameters(f"main.{kind}.bicepparam")
        assert given["operatorPrincipalType"] == said
        of_subscriptions = {name for each in given["subscriptions"] for name in each}
        assert named >= {"operatorPrincipalIds", "writerPrincipalIds", "operatorEmails", "runbook"}
        assert named <= given.keys() | of_subscriptions, kind
        # The worker of an SQL outbox is deployed for the same operators.
        of_sql = project.parameters(f"sql.{kind}.bicepparam")
        assert of_sql.keys() >= {"operatorPrincipalIds", "operatorPrincipalType", "operatorEmails", "runbook"}, (
            kind
        )
        assert of_sql["operatorPrincipalType"] == said


@check
def only_a_trial_has_the_subscription_of_the_sample(project: Project) -> None:
    """Nobody receives from it: what it has is dead-lettered in the end, and raises an alert."""
    for name in ("main", "sql"):
        [default] = re.findall(
            r"^param subscriptions array = (\[.*?^\])", project.files[f"{name}.bicep"], re.M | re.S
        )
        assert re.findall(r"^    (\w+): (.*)", default, re.M) == [("name", "'all'")], name
        of_production = project.parameters(f"{name}.production.bicepparam")["subscriptions"]
        assert [each["name"] for each in of_production] == ["all"], name
        assert not {"action", "filter"} & {key for each in of_production for key in each}, name


@check
def azd_deploys_into_a_group_that_exists(project: Project) -> None:
    """With a name in AZURE_RESOURCE_GROUP, azd creates no group."""
    page = (project.root / "docs/tutorials/deploy.md").read_text(encoding="utf-8")
    [block] = [each for each in re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S) if "\nazd up\n" in each]
    before = block.partition("\nazd up\n")[0]

    [group] = re.findall(r"^azd env set AZURE_RESOURCE_GROUP (\S+)$", before, re.M)
    assert re.search(rf"^az group create -n {group} -l \S+$", before, re.M)


@check
def the_page_names_the_versions_of_the_tools(project: Project) -> None:
    page = (project.root / "docs/deployment.md").read_text(encoding="utf-8")
    tools = dict(re.findall(r"^\| ([^|]+?) \| (.+) \|$", page.partition("| tool | version |")[2], re.M))
    workflow = (project.root / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    tested = sorted((re.findall(r'"(3\.\d+)"', workflow)), key=lambda each: int(each.partition(".")[2]))
    [of_app] = re.findall(r"^ +version: '(3\.\d+)'", project.files["modules/functions.bicep"], re.M)

    assert tools["Python"] == f"{tested[0]} to {tested[-1]}; the function app runs on {of_app}"
    assert re.match(r"1\.\d+\.\d+ or later", tools["azd"])
    assert re.match(r"4; 4\.\d+\.\d+ takes \[Python 3\.\d+ to 3\.\d+\]", tools["Azure Functions Core Tools"])
    assert re.match(r"0\.\d+ or later", tools["Bicep, of the Azure CLI"])


@check
def outputs_are_valid_settings_of_the_relay(project: Project) -> None:
    for deployment in project.both:
        outputs, settings = deployment.outputs, app_settings(deployment)
        known = known_settings(settings)
        plain = {name: value for name, value in outputs.items() if name in known}

        assert outputs["settings"] == plain
        assert all(settings[name] == value for name, value in plain.items())
        assert set(outputs) - known == {"settings", "SERVICE_RELAY_NAME", "AZURE_LOCATION", "AZURE_RESOURCE_GROUP"}
        read = Settings.from_environment(plain)
        assert (read.in_cosmos.lease_container, read.servicebus.entity) == ("leases", "domain-events")
    # An operator's release or replay sends events as the app does.
    events = project.deploy(relayMessageFormat="cloudevents", relayCloudEventsSource="/c", relayOnPoison="park")
    by_operator = Settings.from_environment(events.outputs["settings"])
    by_app = Settings.from_environment(app_settings(events))
    assert by_operator.policy == by_app.policy
    assert by_operator.servicebus.duplicate_window_s == by_app.servicebus.duplicate_window_s


@check
def an_azd_environment_contains_no_misspelled_setting(project: Project) -> None:
    read = set(re.findall(r"readEnvironmentVariable\('(\w+)'", (project.infra / "main.bicepparam").read_text()))
    kept = dict.fromkeys(read | {"AZURE_SUBSCRIPTION_ID", "AZURE_TENANT_ID"}, "x")
    outputs = {name: value for name, value in project.trial.outputs.items() if isinstance(value, str)}

    assert Settings.from_environment(kept | outputs).in_cosmos.database == "outbox"


@check
def azd_deploys_a_trial_by_default_and_reads_its_environment(project: Project) -> None:
    bare = project.parameters("main.bicepparam")
    given = project.parameters(
        "main.bicepparam",
        {
            "AZURE_ENV_NAME": "production",
            "AZURE_PRINCIPAL_ID": "me",
            "OPERATOR_EMAIL": "ops@example.org",
            "RUNBOOK": "https://example.org/docs/runbook.md",
            "PRIVATE_NETWORKING": "true",
            "MESSAGING_SKU": "Premium",
            "ALWAYS_READY_INSTANCES": "1",
        },
    )
    location = {"location": "westeurope"}

    assert project.deploy(**bare).outputs == project.deploy(**location).outputs
    assert [dict(each.body) for each in project.deploy(**bare).resources] == [
        dict(each.body) for each in project.deploy(**location).resources
    ]
    assert project.deploy(**given).one(SERVICE_BUS).at("sku.name") == "Premium"
    assert (given["operatorPrincipalIds"], given["operatorEmails"]) == (["me"], ["ops@example.org"])


@check
def the_parameter_files_name_the_costs_of_an_idle_month(project: Project) -> None:
    page = (project.root / "docs/capacity.md").read_text(encoding="utf-8")
    # The page has no price of a server and of a worker.
    for template, what in (("main", "in all"), ("sql", "Service Bus")):
        [row] = re.findall(
            rf"^### An idle month$.*?^\| {what} \| ([\d.,]+) \| ([\d.,]+) \|$", page, re.DOTALL | re.MULTILINE
        )
        for kind, cost in zip(("trial", "production"), row, strict=True):
            text = (project.infra / f"{template}.{kind}.bicepparam").read_text(encoding="utf-8")
            [said] = re.findall(r"Idle, some (\d+)(?:\n// | )dollars a month", text)
            assert float(said) == pytest.approx(float(cost.replace(",", "")), rel=0.02), (template, kind)
    for kind in ("trial", "production"):
        before, _, _ = (project.infra / f"sql.{kind}.bicepparam").read_text(encoding="utf-8").partition("using")
        assert re.search(r"The server .*two replicas of the worker .*cost money", before, re.DOTALL), kind
    # The column of production was computed with these.
    production = (project.infra / "main.production.bicepparam").read_text(encoding="utf-8")
    for name, value in (("cosmosMaxThroughput", 10_000), ("alwaysReadyInstances", 2)):
        assert f"param {name} = {value}\n" in production


@check
def the_documentation_registers_every_resource_provider(project: Project) -> None:
    text = (project.root / "docs/tutorials/deploy.md").read_text(encoding="utf-8")
    [loop] = re.findall(r"for provider in ([^;]+);", text)
    registered = {f"Microsoft.{each}" for each in loop.split()}
    deployed = {each.type.partition("/")[0] for each in project.production.resources}

    # Microsoft.App runs Flex Consumption apps without its own resource. Authorization is always registered.
    assert registered == {*deployed, "Microsoft.App"} - {"Microsoft.Authorization"}


@check
def azd_opens_a_private_app_only_on_request(project: Project) -> None:
    for environment, opened in (
        ({}, True),
        ({"FUNCTION_APP_PUBLIC_ACCESS": "false"}, False),
        ({"PRIVATE_NETWORKING": "true"}, False),
        ({"PRIVATE_NETWORKING": "true", "FUNCTION_APP_PUBLIC_ACCESS": "true"}, True),
    ):
        given = project.parameters("main.bicepparam", environment)
        assert given["functionAppPublicAccess"] is opened, environment


@check
def the_readme_lists_every_resource_type_and_version(project: Project) -> None:
    used = set()
    for text in project.files.values():
        used |= set(re.findall(r"^resource \w+ '([^']+)'", text, re.MULTILINE))
    readme = (project.infra / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d{4}-[\w-]+) \| (`Microsoft\..+`) \|$", readme, re.MULTILINE)
    listed = {f"{name}@{version}" for version, names in rows for name in re.findall(r"`([^`]+)`", names)}

    assert used == listed
