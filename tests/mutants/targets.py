"""Which tests judge the mutants of which file: those that cover it, the quick ones first."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_OPERATOR = "packages/operator/src/outbox_relay/operator"


def _file(module: str) -> str:
    """Return the path of a module of the relay or, where that has none of the name, of its operator's package."""
    folder = "relay" if (_ROOT / "relay" / f"{module}.py").exists() else _OPERATOR
    return f"{folder}/{module}.py"


_PIPELINED = ("pipelined_deliveries", "pipelined_states", "pipelined_lanes", "pipelined_link")

# By module of relay/, the test files of tests/unit/relay.
_RELAY = {
    "__main__": ("main",),
    "config/clients": ("connections", "libraries", "settings", "secrets", "check_findings", "check_command"),
    "console/backlog": ("console_observer", "console_freshness", "console_removals"),
    "console/history": ("console_observer", "console_history"),
    "console/truncation": ("console_bounds", "console_texts"),
    "console/counts": ("console_counts", "console_freshness", "console_bounds"),
    "console/freshness": ("console_freshness",),
    "console/status": ("console_texts",),
    "console/observer": ("console_observer", "console_freshness"),
    "console/ports": ("console_observer",),
    "console/progress": ("console_observer", "console_freshness", "console_bounds"),
    "console/timeline": (
        "console_timeline",
        "console_observer",
        "console_counts",
        "console_texts",
        "console_bounds",
    ),
    "backends/cosmos/containers": ("containers",),
    "backends/cosmos/effective_keys": ("effective_keys", "leases"),
    "backends/cosmos/leases": ("leases",),
    "deadletters/letter": ("dead_letter",),
    "deadletters/sections": ("dead_letter",),
    "core/deadline": ("deadline",),
    "core/errors": ("errors",),
    "core/events": ("events",),
    "core/evidence": ("evidence",),
    "core/fence": ("fence",),
    "core/holds": ("holds", "plan", "orders"),
    "core/jsontext": ("jsontext",),
    "core/orders": ("orders", "pipeline", "pipeline_in_memory"),
    "core/place": ("plan", "orders"),
    "core/plan": ("plan",),
    "outcomes": ("removals",),
    "quarantine/parking": ("parking", "quarantine_races", "quarantine"),
    "quarantine/record": (
        *("quarantine_record", "parking", "quarantine_races", "opaque_documents"),
        "release_command",
    ),
    "core/results": ("outcome", "plan"),
    "routes/conditions": ("streams", "relay_file", "decisions"),
    "examples": ("stream_commands", "smoke_layouts"),
    "routes/file": ("relay_file", "streams", "mapping"),
    "routes/mapping": ("mapping", "relay_file"),
    "routes/pointers": ("relay_file", "streams"),
    "routes/selection": ("streams", "relay_file"),
    "servicebus/encoding": ("messages",),
    "servicebus/messages": ("messages",),
    "servicebus/pipelined/credit": ("pipelined_credit", "pipelined_states", "pipelined_link"),
    "servicebus/pipelined/deliveries": _PIPELINED,
    "servicebus/pipelined/frames": ("pipelined_values", "pipelined_states", "pipelined_link"),
    "servicebus/pipelined/link": _PIPELINED,
    "servicebus/pipelined/outgoing": _PIPELINED,
    "servicebus/pipelined/states": ("pipelined_states",),
    "servicebus/pool": ("pool", "publisher", "turn", "messages"),
    "servicebus/refusals": ("errors",),
    "servicebus/link_suspects": ("suspects", "pool", "pipelined_lanes", "publisher", "pipelined_link"),
    "servicebus/transfers": ("messages", "turn"),
    "config/reader": ("settings", "secrets"),
    "config/settings": ("settings", "streams", "secrets", "publisher", "console_command", "stream_telemetry"),
    "config/streams": ("streams", "mapping"),
    "core/verdict": ("verdict", "plan", "turn", "suspects"),
    "backends/sql/install": ("sql_items",),
    "telemetry/attempt": ("attempt",),
    "telemetry/stream": ("stream_telemetry",),
    "telemetry/gauges": ("gauges", "telemetry"),
    "telemetry/instruments": ("telemetry",),
}

# By module of relay/, the test files of tests/.
_COMMANDS = {
    "core/pipeline": (
        *("unit/relay/test_pipeline", "unit/relay/test_pipeline_in_memory", "unit/relay/test_telemetry"),
        *("integration/test_telemetry", "integration/test_operators_parked", "integration/test_refusals"),
    ),
    "backends/sql/memory": ("integration/test_sql_memory", "integration/test_sql_worker"),
    "backends/sql/missing": ("integration/test_sql_missing_rows",),
    "backends/sql/rows": ("unit/relay/test_sql_rows", "unit/relay/test_mapping", "integration/test_sql_types"),
    "backends/sql/shard": (
        "unit/relay/test_sql_pauses",
        "integration/test_sql_shard",
        "integration/test_sql_worker",
        "integration/test_sql_missing_rows",
    ),
    "backends/sql/source": (
        *("unit/relay/test_sql_ownership", "unit/relay/test_changed_rules", "contracts/test_source"),
        *("integration/test_sql_shard", "integration/test_fence"),
    ),
    "backends/sql/worker": (
        *("unit/relay/test_sql_balance", "unit/relay/test_sql_retention", "unit/relay/test_sql_pauses"),
        *("integration/test_sql_worker", "integration/test_sql_tick", "integration/test_sql_shard"),
    ),
    "servicebus/publisher": (
        *("unit/relay/test_publisher", "unit/relay/test_turn", "unit/relay/test_large"),
        "contracts/test_publisher",
    ),
    "servicebus/key_sender": (
        *("unit/relay/test_turn", "unit/relay/test_probe", "unit/relay/test_publisher"),
        *("unit/relay/test_large", "contracts/test_publisher"),
    ),
    "cli/check": (
        *("unit/relay/test_check_findings", "unit/relay/test_check_command"),
        *("unit/relay/test_cli", "integration/test_operators_scan"),
    ),
    "backends/cosmos/ages": ("integration/test_lease_ages",),
    "backends/backend": ("unit/relay/test_quarantine_store", "unit/relay/test_console_command"),
    "backends/cosmos/backend": (
        *("unit/test_function_app", "unit/relay/test_quarantine_store"),
        *("unit/relay/test_stream_commands", "unit/relay/test_smoke_command"),
    ),
    "backends/sql/backend": (
        *("unit/test_function_app", "unit/relay/test_quarantine_store", "unit/relay/test_stream_commands"),
        *("integration/test_sql_install", "integration/test_sql_smoke", "integration/test_sql_replay"),
    ),
    "backends/cosmos/check": ("unit/relay/test_cosmos_check", "unit/relay/test_holdups"),
    "backends/scans": (
        "unit/relay/test_cosmos_check",
        "integration/test_operators_scan",
        "integration/test_sql_check",
    ),
    "backends/cosmos/scan": ("unit/relay/test_cosmos_check", "integration/test_operators_scan"),
    "cli/blocked_keys": ("unit/relay/test_holdups",),
    "core/remedy": ("unit/relay/test_remedy", "unit/relay/test_outcome", "unit/relay/test_console_texts"),
    "backends/findings": ("unit/relay/test_check_findings",),
    "cli/routes_report": ("unit/relay/test_stream_commands",),
    "cli/servicebus_checks": ("unit/relay/test_check_findings", "unit/relay/test_check_command"),
    "backends/cosmos/quarantine": ("unit/relay/test_cosmos_items", "contracts/test_items"),
    "backends/sql/quarantine": ("unit/relay/test_sql_items", "unit/relay/test_sql_texts", "contracts/test_items"),
    "backends/sql/backlog": ("unit/relay/test_sql_findings", "integration/test_sql_check"),
    "backends/sql/catalog": ("unit/relay/test_sql_findings", "integration/test_sql_check"),
    "backends/cosmos/feed": (
        *("unit/relay/test_replay_order", "contracts/test_outboxes"),
        "integration/test_operators_replay",
    ),
    "backends/cosmos/reader": (
        *("unit/relay/test_successors", "unit/relay/test_smoke_command"),
        "contracts/test_outboxes",
    ),
    "backends/outbox": ("contracts/test_outboxes",),
    "backends/sql/reader": (
        "contracts/test_outboxes",
        *("integration/test_sql_replay", "integration/test_console_sql"),
    ),
    "backends/sql/check": ("unit/relay/test_sql_findings",),
    "cli/terminal": ("unit/relay/test_terminal", "unit/relay/test_cli"),
    "cli/main": (
        *("unit/relay/test_cli", "unit/relay/test_program"),
        *("unit/relay/test_main", "unit/relay/test_libraries"),
    ),
    "cli/sender": ("unit/relay/test_sender",),
    "cli/quarantine": (
        *("unit/relay/test_quarantine_commands", "unit/relay/test_release_command"),
        "unit/relay/test_operations_inputs",
    ),
    "cli/quarantine_admin": (
        *("unit/relay/test_records", "integration/test_operators_quarantine"),
        *("integration/test_operators_holdings", "integration/test_operators_parked"),
        "integration/test_operators_set_aside",
    ),
    "cli/deadletters": ("integration/test_operators_deadletters",),
    "cli/deadletter_selection": ("integration/test_operators_deadletters",),
    "cli/deadletters_resubmit": ("integration/test_operators_resubmit",),
    "deadletters/lookout": ("integration/test_operators_resubmit",),
    "deadletters/queue": ("integration/test_operators_deadletters", "integration/test_operators_resubmit"),
    "deadletters/resubmission": ("integration/test_operators_resubmit",),
    "deadletters/sdk": ("integration/test_operators_deadletters", "integration/test_operators_resubmit"),
    "cli/release": ("unit/relay/test_release_command", "unit/relay/test_parked_release"),
    "cli/replay": ("unit/relay/test_replay_command", "integration/test_sql_replay"),
    "cli/replay_run": (
        *("unit/relay/test_replay_state", "unit/relay/test_replay_command"),
        "integration/test_sql_replay",
    ),
    "backends/canary": ("unit/relay/test_smoke_comparison",),
    "cli/smoke": ("unit/relay/test_smoke_command", "integration/test_sql_smoke"),
    "cli/smoke_diff": ("unit/relay/test_smoke_comparison",),
    "backends/sql/canary": ("integration/test_sql_smoke",),
    "cli/smoke_receiver": ("unit/relay/test_smoke_command",),
    "core/times": ("unit/relay/test_operations_inputs",),
    "cli/options": (
        *("unit/relay/test_operations_inputs", "unit/relay/test_console_command"),
        "unit/relay/test_cli",
    ),
}

_UNIT = "tests/unit/outbox/test_{}.py"
_INTEGRATION = "tests/integration/test_outbox_{}.py"
# The unit tests, then the integration tests.
_OUTBOX: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "attrs": (("classes",), ()),
    "batch": (("batches", "relayable"), ()),
    "context": (("batches",), ("commits", "lost_responses", "stale_reads")),
    "data_object": (("batches", "relayable"), ()),
    "entities": (("entities", "batches"), ()),
    "errors": (("failures",), ()),
    "events": (("entities", "batches"), ()),
    "execution": ((), ("stale_reads", "lost_responses")),
    "failures": (("failures",), ()),
    "fields": (("mapping", "classes", "entities", "relayable"), ()),
    "mapping": (("mapping", "classes", "recorded_documents", "relayable", "entities"), ()),
    "paging": (("failures",), ("reading",)),
    "pydantic": (("classes",), ()),
    "reading": (("mapping", "classes", "recorded_documents"), ()),
    "relayable": (("relayable",), ()),
    "repositories": (("batches",), ("reading", "commits")),
    "traceparent": (("batches",), ()),
    "unit_of_work": (("batches",), ("commits",)),
    "versions": (("entities", "mapping"), ("reading",)),
}

# By module of inbox's stores, the test files of tests/.
_INBOX = {
    "cosmos": ("contracts/test_inbox_stores", "integration/test_inbox_cosmos"),
    "cosmos_parking": ("integration/test_inbox_cosmos", "contracts/test_inbox_parking"),
    "memory": ("contracts/test_inbox_stores", "contracts/test_inbox_parking"),
    "opening": ("unit/inbox/test_commands", "contracts/test_inbox_parking"),
    "port": ("contracts/test_inbox_stores", "contracts/test_inbox_sqlite", "integration/test_inbox_postgres"),
    "sql/parking": ("contracts/test_inbox_parking",),
    "servers": (
        *("contracts/test_inbox_stores", "integration/test_inbox_postgres"),
        "integration/test_inbox_sqlserver",
    ),
    "sql/recording": (
        *("contracts/test_inbox_stores", "contracts/test_inbox_sqlite"),
        "contracts/test_inbox_parking",
    ),
    "sqlalchemy": ("contracts/test_inbox_stores", "integration/test_inbox_postgres"),
    "sqlite": ("unit/inbox/test_database", "contracts/test_inbox_sqlite", "contracts/test_inbox_stores"),
}

TARGETS: dict[str, tuple[str, ...]] = {
    **{
        _file(module): tuple(f"tests/unit/relay/test_{name}.py" for name in names)
        for module, names in _RELAY.items()
    },
    **{_file(module): tuple(f"tests/{name}.py" for name in names) for module, names in _COMMANDS.items()},
    "relay/backends/cosmos/source.py": (
        *(
            f"tests/unit/relay/test_{name}.py"
            for name in ("cosmos_source", "changes", "documents", "changed_rules", "streams", "mapping", "gauges")
        ),
        "tests/contracts/test_source.py",
    ),
    "relay/servicebus/pipelined/lanes.py": (
        "tests/unit/relay/test_pipelined_lanes.py",
        "tests/fuzz/test_peers.py",
        "tests/integration/test_pipelined_ends.py",
    ),
    "relay/servicebus/pipelined/sdk.py": (
        *(f"tests/unit/relay/test_pipelined_{name}.py" for name in ("sdk", "values", "states", "link")),
        "tests/integration/test_pipelining.py",
    ),
    **{
        f"relay/large/{module}.py": ("tests/unit/relay/test_large.py", "tests/contracts/test_contents.py")
        for module in ("content", "claims", "blobs")
    },
    "packages/command_line/src/outbox_relay/command_line/program.py": (
        *("tests/unit/relay/test_program.py", "tests/unit/test_shell.py"),
        "tests/unit/test_commands.py",
    ),
    "packages/command_line/src/outbox_relay/command_line/output.py": (
        *("tests/unit/test_shell.py", "tests/unit/relay/test_terminal.py"),
        "tests/unit/test_windows.py",
    ),
    "packages/operator/src/outbox_relay/operator/large_check.py": (
        "tests/unit/relay/test_large_check.py",
        "tests/integration/test_operators_check.py",
    ),
    "relay/quarantine/quarantine.py": (
        *(f"tests/unit/relay/test_{name}.py" for name in ("quarantine", "quarantine_races")),
        "tests/contracts/test_quarantine.py",
    ),
    "relay/quarantine/items.py": (
        *("tests/unit/relay/test_records.py", "tests/unit/relay/test_quarantine.py"),
        "tests/contracts/test_items.py",
    ),
    "function_app.py": ("tests/unit/test_function_app.py",),
    "host.json": ("tests/unit/test_host_json.py", "tests/unit/relay/test_settings.py"),
    **{
        f"packages/inbox/src/outbox_relay/inbox/stores/{module}.py": tuple(f"tests/{name}.py" for name in names)
        for module, names in _INBOX.items()
    },
    **{
        f"packages/outbox/src/outbox_relay/outbox/{module}.py": (
            *(_UNIT.format(name) for name in units),
            *(_INTEGRATION.format(name) for name in integrations),
        )
        for module, (units, integrations) in _OUTBOX.items()
    },
}
