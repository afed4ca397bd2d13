"""The examples to copy: the page has each, and what two of their files say agrees."""

from __future__ import annotations

import json
import re

from relay.config.streams import read_streams
from tests.support.pages import ROOT

SAMPLES = ROOT / "samples"
LISTS = ("requirements.txt", "package.json", "dotnet_consumer.csproj")


def test_the_page_has_every_example_and_each_lists_its_packages() -> None:
    page = (SAMPLES / "README.md").read_text(encoding="utf-8")
    folders = {path.parent.name for name in LISTS for path in SAMPLES.glob(f"*/{name}")} - {"contacts"}
    rows = dict(re.findall(r"^\| \[`(\w+)`\]\((\S+)\)", page, re.MULTILINE))

    assert rows.keys() == folders
    assert [file for file in rows.values() if not (SAMPLES / file).is_file()] == []


def test_the_consumers_in_other_languages_have_the_sdks_that_the_emulators_were_run_with() -> None:
    node = json.loads((SAMPLES / "node_consumer/package.json").read_text(encoding="utf-8"))["dependencies"]
    languages = ROOT / "packages/emulators/tests/languages/package.json"
    run = json.loads(languages.read_text(encoding="utf-8"))["dependencies"]
    project = (SAMPLES / "dotnet_consumer/dotnet_consumer.csproj").read_text(encoding="utf-8")
    conformance = (ROOT / "packages/emulators/docs/conformance/dotnet.md").read_text(encoding="utf-8")
    packages = dict(re.findall(r'<PackageReference Include="(\S+)" Version="([\d.]+)" />', project))

    assert node.items() <= run.items()
    assert packages.keys() == {"Azure.Messaging.ServiceBus", "Microsoft.Data.Sqlite"}
    assert f"Azure.Messaging.ServiceBus {packages['Azure.Messaging.ServiceBus']}" in conformance


def test_the_relay_reads_the_table_in_the_shards_that_its_trigger_writes() -> None:
    folder = SAMPLES / "debezium_table"
    table = (folder / "table.sql").read_text(encoding="utf-8")
    servicebus = "Endpoint=sb://x.example/;SharedAccessKeyName=k;SharedAccessKey=AAAA"
    environment = {"SQL": "postgresql://x.example/x", "SERVICEBUS": servicebus, "SQL_SHARDS": "7"}

    [stream] = read_streams({**environment, "RELAY_FILE": "relay.toml"}, app=folder)

    assert stream.sql is not None
    assert re.findall(r"shard_of\(new\.aggregateid, (\d+)\)", table) == [str(stream.sql.shards)]
    assert f"create table {stream.sql.feed} (" in table
    assert f'changefeed."outbox:{stream.sql.feed}"' in table
