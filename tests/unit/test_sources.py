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
    ("packages/emulators/docs/functions-host.md", "checkpointed and lost", f"{EXTENSIONS}/issues/716"),
    ("packages/emulators/docs/functions-host.md", "date-like strings", f"{EXTENSIONS}/pull/923"),
    (
        "packages/emulators/docs/functions-host.md",
        "withholds the whole page",
        "azure-functions-dotnet-worker/issues/1226",
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
