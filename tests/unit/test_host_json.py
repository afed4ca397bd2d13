"""The settings of host.json that guarantees rest on: each on its own, so that none changes by accident."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local.stack.parts import ROOT


@pytest.fixture
def host() -> Any:
    return json.loads((ROOT / "host.json").read_text())


def test_it_is_of_the_only_version_that_current_hosts_read(host: Any) -> None:
    assert host["version"] == "2.0"


def test_dates_are_left_as_they_are_written(host: Any) -> None:
    # The other values rewrite every text that looks like a date, in payloads too.
    assert host["extensions"] == {"cosmosDB": {"serializerSettings": {"dateParseHandling": "None"}}}


def test_the_bundle_holds_only_extensions_that_heed_that_and_one_major_version(host: Any) -> None:
    # Below extension 4.9.0 the date setting is ignored in silence; bundle 4.28.0 has 4.10.0.
    assert host["extensionBundle"] == {
        "id": "Microsoft.Azure.Functions.ExtensionBundle",
        "version": "[4.28.0, 5.0.0)",
    }


def test_an_invocation_has_ten_minutes_which_is_what_the_attempts_deadline_leaves_a_margin_below(
    host: Any,
) -> None:
    assert host["functionTimeout"] == "00:10:00"


def test_what_the_alerts_read_is_exported_by_opentelemetry_and_at_information(host: Any) -> None:
    assert host["telemetryMode"] == "OpenTelemetry"
    assert host["logging"]["logLevel"] == {"default": "Information", "Azure.Core": "Warning"}
