"""The pages name the source of what they say of Azure, where they say it."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import ROOT

LEARN = "https://learn.microsoft.com/azure"
ORDER = f"{LEARN}/cosmos-db/change-feed#sort-order-of-items-in-change-feed"
DUPLICATES = f"{LEARN}/service-bus-messaging/duplicate-detection"
BUS = f"{LEARN}/service-bus-messaging"
QUOTAS = f"{BUS}/service-bus-quotas"
DEAD_LETTERS = f"{LEARN}/service-bus-messaging/service-bus-dead-letter-queues"
HOST = "https://github.com/Azure/azure-functions-host"
EXTENSIONS = "https://github.com/Azure/azure-webjobs-sdk-extensions"
REAL_HOST = "as observed with the Functions host 4.1037"
LOCKS = f"{LEARN}/templates/microsoft.servicebus/namespaces/queues"
ROLES = f"{LEARN}/role-based-access-control/troubleshooting"
SQL = "https://learn.microsoft.com/sql/t-sql"

# Each source was read, as stored at the end of November 2026.
CLAIMS = [
    ("docs/guarantees.md", "Order within a partition key", ORDER),
    ("docs/guarantees.md", "Consumers must receive with", f"{LEARN}/service-bus-messaging/message-sessions"),
    ("docs/guarantees.md", "drops a message id that it has had", DUPLICATES),
    ("docs/guarantees.md", "make the topic partitioned", f"{DUPLICATES}#how-it-works"),
    ("docs/guarantees.md", "in any order", ORDER),
    ("docs/guarantees.md", "63 levels", "https://github.com/Azure/azure-functions-dotnet-worker/issues/1226"),
    ("docs/guarantees.md", "380 characters", "`JsonTextReader` of Newtonsoft.Json"),
    ("docs/guarantees.md", "UTF-16 units", QUOTAS),
    ("docs/guarantees.md", "it can be read", "dotnet/api/microsoft.azure.documents.resource.id"),
    ("docs/guarantees.md", "answer 401", "https://github.com/Azure/azure-cosmos-dotnet-v3/issues/3507"),
    ("docs/dead-letters.md", "TTLExpiredException", f"{DEAD_LETTERS}#moving-messages-to-the-dlq"),
    ("docs/dead-letters.md", "$DeadLetterQueue", f"{DEAD_LETTERS}#path-to-the-dead-letter-queue"),
    ("docs/dead-letters.md", "Within the duplicate detection window", DUPLICATES),
    ("docs/settings.md", "from 20 to 604 800", f"{DUPLICATES}#duplicate-detection-window-size"),
    ("docs/settings.md", "functionTimeout", "WebJobs.Script.WebHost/WebScriptHostExceptionHandler.cs"),
    ("docs/telemetry.md", "waits 10 seconds", "ProcessManagement/WorkerProcessCountOptions.cs"),
    (
        "docs/operators.md",
        "Roles of [Service Bus]",
        f"{LEARN}/role-based-access-control/built-in-roles/integration",
    ),
    (
        "docs/operators.md",
        "whole seconds",
        "https://learn.microsoft.com/dotnet/api/microsoft.azure.documents.resource.timestamp",
    ),
    ("docs/recovery.md", "a manual", "write-scripts-for-azure-cosmos-db-sql-api/7-initiate-failovers"),
    ("docs/writing-from-any-language.md", "is 207", "`TransactionalBatchResponse.cs`"),
    ("docs/writing-from-any-language.md", "424", f"{LEARN}/cosmos-db/transactional-batch"),
    (
        "docs/consumers.md",
        "without a pause",
        f"{LEARN}/azure-functions/functions-bindings-service-bus-trigger#peeklock-behavior",
    ),
    ("docs/writing-events.md", "256 KiB", QUOTAS),
    ("docs/writing-events.md", "With `ttl=`", f"{LEARN}/cosmos-db/time-to-live"),
    ("docs/writing-events.md", "100 operations", f"{LEARN}/cosmos-db/transactional-batch#limitations"),
    ("docs/writing-events.md", "128", QUOTAS),
    ("docs/telemetry.md", "The host has no setting", f"{HOST}/issues/11540"),
    ("docs/telemetry.md", "4.1048.100", f"{HOST}/pull/11568"),
    ("docs/telemetry.md", "Nothing was exported", "`_storage.py`"),
    (
        "infra/README.md",
        "duplicate detection, partitioning",
        f"{BUS}/enable-duplicate-detection",
    ),
    (
        "infra/README.md",
        "duplicate detection, partitioning",
        f"{BUS}/enable-message-sessions",
    ),
    (
        "infra/README.md",
        "duplicate detection, partitioning",
        f"{BUS}/service-bus-partitioning",
    ),
    ("infra/README.md", "partition key and its version", f"{LEARN}/cosmos-db/large-partition-keys"),
    ("infra/README.md", "101 bytes", f"{LEARN}/cosmos-db/large-partition-keys"),
    ("infra/README.md", "serverless to provisioned", f"{LEARN}/cosmos-db/how-to-change-capacity-mode"),
    ("infra/README.md", "not back to periodic", f"{LEARN}/cosmos-db/migrate-continuous-backup"),
    ("docs/runbook.md", "Data is on average", f"{LEARN}/azure-monitor/logs/data-ingestion-time"),
    ("docs/runbook.md", "`DataPlaneRequests5M`", f"{LEARN}/cosmos-db/monitor-aggregated-logs"),
    ("docs/runbook.md", "A host without functions", REAL_HOST),
    ("docs/runbook.md", "5 000 request units", f"{LEARN}/cosmos-db/serverless-performance"),
    ("docs/runbook.md", "no way back", f"{LEARN}/cosmos-db/how-to-change-capacity-mode"),
    ("docs/runbook.md", "5120 on Standard", QUOTAS),
    ("docs/runbook.md", "16 partitions", f"{BUS}/service-bus-partitioning"),
    ("docs/runbook.md", "the lock never expires", REAL_HOST),
    ("docs/runbook.md", "does not recover when it is created", REAL_HOST),
    ("docs/runbook.md", "until events flow again", "with Functions host 4.1037"),
    ("docs/capacity.md", "on Premium 1 MB", QUOTAS),
    ("docs/capacity.md", "which has a lease", REAL_HOST),
    ("docs/capacity.md", "16 partitions of 5 GB", f"{BUS}/service-bus-partitioning"),
    ("docs/capacity.md", "for each 64 KB", "https://azure.microsoft.com/pricing/details/service-bus/"),
    ("docs/sql.md", "port 6432", f"{LEARN}/postgresql/flexible-server/concepts-pgbouncer"),
    ("docs/sql.md", "unsupported startup parameter", "https://www.pgbouncer.org/config.html"),
    (
        "docs/sql.md",
        "pgaadauth_create_principal",
        f"{LEARN}/postgresql/flexible-server/how-to-manage-azure-ad-users",
    ),
    ("docs/sql.md", "On [Azure SQL]", f"{LEARN}/azure-sql/database/authentication-aad-configure"),
    ("docs/sql.md", "one instance", f"{LEARN}/azure-functions/functions-bindings-timer"),
    ("docs/sql.md", "SQL Server leaves", f"{SQL}/statements/set-transaction-isolation-level-transact-sql"),
    ("docs/receiving-events.md", "`requiresSession`", f"{BUS}/enable-message-sessions"),
    (
        "docs/receiving-events.md",
        "after `MaxDeliveryCount` deliveries",
        f"{DEAD_LETTERS}#moving-messages-to-the-dlq",
    ),
    ("docs/receiving-events.md", "100 operations or 2 MB", f"{LEARN}/cosmos-db/transactional-batch#limitations"),
    ("docs/receiving-events.md", "half a second", "as observed with azure-servicebus 7.15.0"),
    ("docs/receiving-events.md", "killed process's locks", LOCKS),
    ("docs/receiving-events.md", "for several sessions", "Without `inbox`, as observed with this version"),
    ("docs/guarantees.md", "by U+FFFD", "as observed with 4.1037"),
    ("docs/guarantees.md", "delivers a message again", f"{BUS}/message-transfers-locks-settlement"),
    ("docs/guarantees.md", "three such changes", "as observed with Microsoft.Azure.Cosmos 3.64"),
    ("docs/operators.md", "262 144 bytes", QUOTAS),
    ("docs/large-events.md", "A Standard topic takes", QUOTAS),
    ("docs/large-events.md", "100 MB", f"{BUS}/service-bus-premium-messaging#large-messages-support"),
    ("docs/telemetry.md", "825 120 rows", "as observed with 4.1037"),
    ("docs/telemetry.md", "Dropped by Application Insights' exporter", "`_exporter.py` of 1.0.0b58"),
    ("docs/settings.md", "the official Service Bus emulator", f"{BUS}/overview-emulator#usage-quotas"),
    (
        "docs/deployment.md",
        "Without `Microsoft.App`",
        f"{LEARN}/azure-functions/flex-consumption-plan#considerations",
    ),
    ("docs/deployment.md", "the role Owner", f"{LEARN}/azure-resource-manager/management/lock-resources"),
    ("docs/deployment.md", "UnmatchedPrincipalType", "https://github.com/Azure/azure-dev/issues/3581"),
    ("docs/deployment.md", "A new role", ROLES),
    ("docs/deployment.md", "is `~` in", "https://github.com/Azure/azure-resource-manager-schemas/issues/230"),
    ("docs/deployment.md", "cannot change its tier", f"{BUS}/service-bus-migrate-standard-premium"),
    (
        "docs/deployment.md",
        "the identity's credentials",
        "managed-identities-azure-resources/managed-identities-faq",
    ),
    ("docs/deployment.md", "5 000 connections", QUOTAS),
    ("docs/tutorials/deploy.md", "A new role", ROLES),
    ("docs/dead-letters.md", "five minutes", LOCKS),
    ("docs/mapping.md", "A scheduled message", f"{BUS}/message-sequencing#scheduled-messages"),
    (
        "docs/recovery.md",
        "any second of the retention",
        f"{LEARN}/postgresql/flexible-server/concepts-backup-restore",
    ),
    (
        "docs/recovery.md",
        "further regions",
        f"{LEARN}/cosmos-db/continuous-backup-restore-introduction#what-isnt-restored",
    ),
    ("docs/recovery.md", "switches it off", "https://learn.microsoft.com/cli/azure/cosmosdb#az-cosmosdb-restore"),
    ("docs/recovery.md", "every 13 seconds", "FeedManagement/EqualPartitionsBalancingStrategy.cs"),
    (
        "docs/consumers.md",
        "5 minutes by default",
        f"{LEARN}/azure-functions/functions-bindings-service-bus#hostjson-settings",
    ),
    ("docs/contacts.md", "functionAppScaleLimit", f"{LEARN}/azure-functions/event-driven-scaling#limit-scale-out"),
    (
        "docs/console.md",
        "suffices to count messages",
        f"{LEARN}/role-based-access-control/built-in-roles/integration#azure-service-bus-data-receiver",
    ),
    ("docs/local-stack.md", "needs no storage account", REAL_HOST),
    ("docs/local-stack.md", "bundle 4.23.1", f"{EXTENSIONS}/pull/923"),
    ("docs/inbox-tables.md", "trailing spaces", f"{SQL}/language-elements/string-comparison-assignment"),
    ("docs/writing-events.md", "9, or 30 s", "`_retry_options.py` of 4.17.1"),
    ("docs/writing-events.md", "(the default)", f"{LEARN}/cosmos-db/consistency-levels#session-consistency"),
    (
        "docs/writing-from-any-language.md",
        "that look like dates",
        "P_Newtonsoft_Json_JsonReader_DateParseHandling.htm",
    ),
    ("packages/emulators/docs/functions-host.md", "checkpointed and lost", f"{EXTENSIONS}/issues/716"),
    ("packages/emulators/docs/functions-host.md", "date-like strings", f"{EXTENSIONS}/pull/923"),
    (
        "packages/emulators/docs/functions-host.md",
        "withholds the whole page",
        "azure-functions-dotnet-worker/issues/1226",
    ),
    (
        "packages/emulators/docs/functions-host.md",
        "13 s, 17 s, 60 s",
        f"{LEARN}/azure-functions/functions-bindings-cosmosdb-v2-trigger",
    ),
    ("packages/emulators/docs/functions-host.md", "Both have these traps", REAL_HOST),
    ("packages/emulators/docs/functions-host.md", "That happens", REAL_HOST),
    ("packages/emulators/docs/functions-host.md", "309 to 380 characters", f"{REAL_HOST} and Python worker 4.34"),
    (
        "packages/emulators/docs/functions-host.md",
        "gives a lease up",
        f"{REAL_HOST} and Microsoft.Azure.Cosmos 3.64",
    ),
    ("packages/emulators/docs/functions-host.md", "The last column", f"{REAL_HOST} and trigger extension 4.8.2"),
    (
        "packages/emulators/docs/functions-host.md",
        "last read position",
        "as observed with Microsoft.Azure.Cosmos 3.64",
    ),
    ("packages/emulators/docs/functions-host.md", "divides it", "azure-cosmos-dotnet-v3/pull/6079"),
    ("packages/emulators/docs/edges.md", "where the service allows", f"{BUS}/service-bus-amqp-troubleshoot"),
    ("packages/emulators/docs/edges.md", "All but `parent-lease-left`", REAL_HOST),
    (
        "packages/emulators/docs/connecting.md",
        "Direct mode",
        f"{LEARN}/cosmos-db/nosql/performance-tips-dotnet-sdk-v3",
    ),
    (
        "packages/emulators/docs/connecting.md",
        "Direct mode",
        f"{LEARN}/cosmos-db/nosql/tune-connection-configurations-java-sdk-v4",
    ),
    ("packages/emulators/docs/connecting.md", "rules of 1,024 characters", QUOTAS),
    ("packages/emulators/docs/connecting.md", "ten JOINs", f"{LEARN}/cosmos-db/concepts-limits"),
    (
        "packages/emulators/docs/query-functions.md",
        "The service's are",
        f"{LEARN}/cosmos-db/nosql/query/regexmatch",
    ),
]


def parts(page: str) -> list[str]:
    """Return the paragraphs, rows and bullets of a page, each in one line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [" ".join(part.split()) for part in re.split(r"\n\n|\n(?=[|-])", text)]


@pytest.mark.parametrize(("page", "claim", "source"), CLAIMS, ids=lambda value: str(value).rpartition("/")[2][:40])
def test_a_claim_about_azure_names_its_source(page: str, claim: str, source: str) -> None:
    where = [part for part in parts(page) if claim in part]

    assert where, f"{page} does not say {claim!r} any more"
    assert any(source in part for part in where), f"{page} names no source of {claim!r}"
