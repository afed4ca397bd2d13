"""Which tests judge the mutants of which file: those that cover it, the quick ones first."""

from __future__ import annotations

# By module of relay/, the test files of tests/unit/relay.
_RELAY = {
    "__main__": ("main",),
    "brake": ("brake",),
    "connection_strings": ("connection_strings",),
    "cosmos/changes": ("changes",),
    "cosmos/client": ("connections",),
    "cosmos/containers": ("containers",),
    "cosmos/documents": ("documents", "poison", "headroom"),
    "cosmos/items": ("cosmos_items",),
    "cosmos/leases": ("leases",),
    "deadline": ("deadline",),
    "errors": ("errors",),
    "events": ("events",),
    "evidence": ("evidence",),
    "fence": ("fence",),
    "host": ("host",),
    "identity": ("connections",),
    "jsontext": ("jsontext",),
    "ledger": ("ledger",),
    "pipeline": ("pipeline", "pipeline_text"),
    "poison": ("poison",),
    "quarantine/holds": ("holds",),
    "quarantine/parking": ("parking",),
    "quarantine/quarantine": ("quarantine",),
    "quarantine/record": ("quarantine_record",),
    "quarantine/summaries": ("records",),
    "results": ("outcome", "poison"),
    "servicebus/client": ("connections",),
    "servicebus/messages": ("messages",),
    "servicebus/publisher": ("publisher", "turn"),
    "servicebus/refusals": ("errors",),
    "servicebus/senders": ("publisher", "turn"),
    "servicebus/turn": ("outcome", "turn", "publisher"),
    "settings": ("settings", "host"),
    "sql/install": ("sql_items",),
    "sql/item_table": ("sql_items",),
    "sql/items": ("sql_items",),
    "sql/texts": ("sql_texts",),
    "telemetry/attempt": ("attempt",),
    "telemetry/headroom": ("headroom",),
    "telemetry/instruments": ("telemetry",),
    "telemetry/logs": ("logs",),
    "telemetry/shard_ages": ("shard_ages",),
    "telemetry/tracelinks": ("tracelinks",),
}

# By module of relay/cli, the test files of tests/.
_CLI = {
    "check/administration": ("unit/relay/test_check_findings",),
    "check/command": ("unit/relay/test_check_findings", "unit/relay/test_check_command"),
    "check/cosmos_findings": ("unit/relay/test_check_findings",),
    "check/facts": ("unit/relay/test_check_findings",),
    "check/findings": ("unit/relay/test_check_findings",),
    "check/inspection": ("unit/relay/test_check_command",),
    "check/scan": ("unit/relay/test_operations_scan", "unit/relay/test_check_command"),
    "check/servicebus_findings": ("unit/relay/test_check_findings",),
    "committed": (
        *("unit/relay/test_replay_order", "unit/relay/test_replay_command"),
        *("unit/relay/test_quarantine_commands", "integration/test_operators_replay"),
    ),
    "console": ("unit/relay/test_console",),
    "containers": ("unit/relay/test_cli_containers",),
    "environment": ("unit/relay/test_operations_inputs",),
    "main": ("unit/relay/test_cli", "unit/relay/test_operations_inputs"),
    "ordered": ("unit/relay/test_ordered",),
    "quarantine/command": ("unit/relay/test_quarantine_commands", "unit/relay/test_operations_inputs"),
    "quarantine/discard": ("unit/relay/test_quarantine_commands",),
    "quarantine/holdings": (
        *("integration/test_operators_holdings", "integration/test_operators_parked"),
        "integration/test_operators_set_aside",
    ),
    "quarantine/listing": ("unit/relay/test_quarantine_commands",),
    "quarantine/parked_release": ("unit/relay/test_quarantine_commands",),
    "quarantine/records": ("unit/relay/test_records", "integration/test_operators_quarantine"),
    "quarantine/release": ("unit/relay/test_quarantine_commands",),
    "quarantine/set_aside": ("unit/relay/test_quarantine_commands", "unit/relay/test_operations_inputs"),
    "quarantine/store": ("unit/relay/test_quarantine_store", "unit/relay/test_records"),
    "quarantine/successors": ("unit/relay/test_successors",),
    "replay/command": ("unit/relay/test_replay_command", "unit/relay/test_replay_state"),
    "replay/report": ("unit/relay/test_replay_command",),
    "replay/state": ("unit/relay/test_replay_state",),
    "results": ("unit/relay/test_cli",),
    "smoke/canary": ("unit/relay/test_smoke_comparison",),
    "smoke/command": ("unit/relay/test_smoke_command",),
    "smoke/comparison": ("unit/relay/test_smoke_comparison",),
    "smoke/oversized": ("unit/relay/test_smoke_command",),
    "smoke/report": ("unit/relay/test_smoke_command",),
    "smoke/subscriptions": ("unit/relay/test_smoke_command",),
    "times": ("unit/relay/test_operations_inputs",),
}

_UNIT = "tests/unit/outbox/test_{}.py"
_INTEGRATION = "tests/integration/test_outbox_{}.py"
# The unit tests, then the integration tests.
_OUTBOX: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "batch": (("batches", "order", "relayable"), ()),
    "context": (("batches", "order"), ("commits", "lost_responses", "stale_reads")),
    "data_object": (("batches", "relayable", "order"), ()),
    "entities": (("entities", "batches", "order"), ()),
    "errors": (("errors",), ()),
    "events": (("entities", "order"), ()),
    "execution": ((), ("stale_reads", "lost_responses")),
    "failures": (("failures",), ()),
    "paging": (("paging",), ("reading",)),
    "payload": (("entities", "relayable", "batches"), ()),
    "relayable": (("relayable",), ()),
    "repositories": (("batches", "order"), ("reading", "commits")),
    "session": ((), ("stale_reads",)),
    "traceparent": (("batches",), ()),
    "unit_of_work": (("batches",), ("commits",)),
}

TARGETS: dict[str, tuple[str, ...]] = {
    **{
        f"relay/{module}.py": tuple(f"tests/unit/relay/test_{name}.py" for name in names)
        for module, names in _RELAY.items()
    },
    **{f"relay/cli/{module}.py": tuple(f"tests/{name}.py" for name in names) for module, names in _CLI.items()},
    "relay/cosmos/source.py": ("tests/contracts/test_source.py",),
    "relay/quarantine/items.py": ("tests/contracts/test_items.py",),
    "function_app.py": ("tests/unit/test_function_app.py",),
    "host.json": ("tests/unit/test_host_json.py", "tests/unit/relay/test_host.py"),
    **{
        f"outbox/src/outbox/{module}.py": (
            *(_UNIT.format(name) for name in units),
            *(_INTEGRATION.format(name) for name in integrations),
        )
        for module, (units, integrations) in _OUTBOX.items()
    },
}
