"""The settings: their bounds, those of an SQL outbox, and the time that host.json leaves."""

from __future__ import annotations

import json
from operator import attrgetter
from pathlib import Path

import pytest

from outbox_relay.emulators.functions.environment import read_env_file, read_local_settings
from outbox_relay.emulators.functions.errors import HostError
from outbox_relay.emulators.functions.host_json import HostConfiguration
from outbox_relay.emulators.servicebus.entities import Entities, EntitiesError
from outbox_relay.operator.cli.options import with_files
from relay.config.clients import Connection, Identity
from relay.config.reader import function_timeout_s
from relay.config.settings import ATTEMPT_MARGIN_S, ClaimCheck, CosmosSettings, OnPoison, Settings, SqlFeed
from relay.core.errors import SettingsError, UsageError

ROOT = Path(__file__).resolve().parents[3]

COSMOS = "AccountEndpoint=https://a.documents.azure.com:443/;AccountKey=c2VjcmV0a2V5;"
SERVICEBUS = "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0"
LEAST = {"COSMOS": COSMOS, "SERVICEBUS": SERVICEBUS}


def problems_of(environment: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        Settings.from_environment(environment)
    return raised.value.problems


def test_two_connections_are_enough_and_the_rest_has_defaults() -> None:
    settings = Settings.from_environment(LEAST)

    assert settings.cosmos == CosmosSettings(
        Connection(connection_string=COSMOS), "outbox", "data", "leases", "quarantine"
    )
    assert settings.servicebus.entity == "domain-events"
    assert settings.policy.event_type == "domainEvent"
    assert settings.servicebus.send_timeout_s == 30
    assert settings.policy.cloudevents_source is None


def test_identities_are_taken_by_the_hosts_own_convention() -> None:
    settings = Settings.from_environment(
        {
            "COSMOS__accountEndpoint": "https://a.documents.azure.com:443/",
            "COSMOS__credential": "managedidentity",
            "COSMOS__clientId": "0000-1111",
            "SERVICEBUS__fullyQualifiedNamespace": "n.servicebus.windows.net",
        }
    )

    assert settings.in_cosmos.connection.identity == Identity(managed=True, client_id="0000-1111")
    assert settings.servicebus.connection.address == "n.servicebus.windows.net"
    assert settings.servicebus.connection.identity == Identity(managed=False, client_id=None)


def test_one_error_names_every_setting_that_is_wrong() -> None:
    problems = problems_of(
        {
            "COSMOS": "nonsense",
            "SERVICEBUS__fullyQualifiedNamespace": "sb://n/",
            "SERVICEBUS__credential": "password",
            "COSMOS_CONTAINER": "leases",
            "RELAY_MAX_ITEMS": "0",
            "RELAY_POLL_DELAY_MS": "soon",
            "RELAY_SENDERS": "1000",
            "RELAY_SEND_TIMEOUT_S": "nan",
            "RELAY_MESSAGE_FORMAT": "xml",
            "RELAY_SENDER": "3",
        }
    )

    named = (
        "COSMOS is no connection string: it lacks AccountEndpoint and AccountKey",
        "SERVICEBUS__fullyQualifiedNamespace is 'sb://n/'",
        "SERVICEBUS__credential is 'password'",
        "COSMOS_CONTAINER, COSMOS_LEASE_CONTAINER, COSMOS_QUARANTINE_CONTAINER must name three different",
        "RELAY_MAX_ITEMS is '0'",
        "RELAY_POLL_DELAY_MS is 'soon'",
        "RELAY_SENDERS is '1000'",
        "RELAY_SEND_TIMEOUT_S is 'nan'",
        "RELAY_MESSAGE_FORMAT is 'xml'",
        "RELAY_SENDER is not a setting: did you mean RELAY_SENDERS?",
    )
    for words in named:
        assert [problem for problem in problems if problem.startswith(words)], words
    assert len(problems) == len(named)


def test_nothing_set_names_both_connections_and_their_alternatives() -> None:
    assert [problem.partition(" ")[0] for problem in problems_of({"COSMOS": "  "})] == ["COSMOS", "SERVICEBUS"]


def test_a_connection_string_and_an_address_together_are_refused() -> None:
    assert problems_of(LEAST | {"SERVICEBUS__fullyQualifiedNamespace": "n.servicebus.windows.net"}) == [
        "SERVICEBUS and SERVICEBUS__fullyQualifiedNamespace are both set: keep one of them"
    ]


def test_no_error_and_no_representation_contains_a_secret() -> None:
    broken = {"COSMOS": COSMOS.replace("AccountKey", "Key"), "SERVICEBUS": SERVICEBUS}

    assert "c2VjcmV0" not in "".join(problems_of(broken))
    assert "c2VjcmV0" not in repr(Settings.from_environment(LEAST))


def test_cloudevents_need_a_source() -> None:
    assert "RELAY_CLOUDEVENTS_SOURCE" in problems_of(LEAST | {"RELAY_MESSAGE_FORMAT": "cloudevents"})[0]

    chosen = LEAST | {"RELAY_MESSAGE_FORMAT": "cloudevents", "RELAY_CLOUDEVENTS_SOURCE": "/contacts"}
    assert Settings.from_environment(chosen).policy.cloudevents_source == "/contacts"


def test_a_foreign_name_that_only_shares_the_prefix_is_left_alone() -> None:
    Settings.from_environment(LEAST | {"RELAY_SERVICE_PORT_8080_TCP": "x", "COSMOS__preferredLocations": "y"})


def test_the_sample_settings_are_accepted() -> None:
    sample = json.loads((ROOT / "local.settings.sample.json").read_text())

    Settings.from_environment(sample["Values"])


@pytest.mark.parametrize(
    ("name", "least", "most", "step", "attribute"),
    [
        ("RELAY_MAX_ITEMS", 1, 100_000, 1, "policy.max_items"),
        ("RELAY_POLL_DELAY_MS", 1, 3_600_000, 1, "policy.poll_delay_ms"),
        ("RELAY_SENDERS", 1, 256, 1, "servicebus.senders"),
        ("RELAY_DUPLICATE_WINDOW_S", 20, 604_800, 0.5, "servicebus.duplicate_window_s"),
        ("RELAY_ATTEMPT_TIMEOUT_S", 60, 3600, 0.5, "policy.attempt_timeout_s"),
    ],
)
def test_a_number_is_taken_from_its_least_to_its_most_and_none_beyond(
    name: str, least: float, most: float, step: float, attribute: str
) -> None:
    for value in (least, most):
        assert attrgetter(attribute)(Settings.from_environment(LEAST | {name: str(value)})) == value
    beyond = [most + step] if name == "RELAY_ATTEMPT_TIMEOUT_S" else [least - step, most + step]
    for value in beyond:
        (problem,) = problems_of(LEAST | {name: str(value)})
        assert problem.startswith(f"{name} is '{value}': set a")


@pytest.mark.parametrize("name", ["/orders", "a b", "orders."])
def test_the_topic_has_a_name_that_the_service_takes(name: str) -> None:
    (problem,) = problems_of(LEAST | {"SERVICEBUS_TOPIC": name})

    assert problem.startswith(f"SERVICEBUS_TOPIC is '{name}': set it to the name of a topic or a queue")


@pytest.mark.parametrize(("value", "pipelined"), [("true", True), ("False", False), (" TRUE ", True), ("", True)])
def test_true_and_false_are_written_in_any_case(value: str, pipelined: bool) -> None:
    assert Settings.from_environment(LEAST | {"RELAY_PIPELINED": value}).servicebus.pipelined is pipelined


def test_a_number_of_seconds_may_be_a_millisecond_and_not_less() -> None:
    assert Settings.from_environment(LEAST | {"RELAY_SEND_TIMEOUT_S": "0.001"}).servicebus.send_timeout_s == 0.001
    for value in ("0", "0.0009", "-1", "inf", "nan", "soon"):
        assert problems_of(LEAST | {"RELAY_SEND_TIMEOUT_S": value}) == [
            f"RELAY_SEND_TIMEOUT_S is '{value}': set a number of seconds from 0.001 to 3600"
        ]


def test_what_is_no_whole_number_is_refused_with_its_bounds() -> None:
    assert problems_of(LEAST | {"RELAY_SENDERS": "many"}) == [
        "RELAY_SENDERS is 'many': set a whole number from 1 to 256"
    ]


def test_the_numbers_have_the_documented_defaults() -> None:
    settings = Settings.from_environment(LEAST)

    assert (settings.policy.max_items, settings.policy.poll_delay_ms) == (1000, 500)
    assert settings.servicebus.senders is None
    assert (settings.servicebus.send_timeout_s, settings.policy.attempt_timeout_s) == (30, 480)
    assert (settings.servicebus.duplicate_window_s, settings.policy.on_poison) == (600, OnPoison.SKIP)


def test_a_send_may_take_half_an_attempt_and_no_more() -> None:
    Settings.from_environment(LEAST | {"RELAY_SEND_TIMEOUT_S": "50", "RELAY_ATTEMPT_TIMEOUT_S": "100"})

    assert problems_of(LEAST | {"RELAY_SEND_TIMEOUT_S": "50.5", "RELAY_ATTEMPT_TIMEOUT_S": "100"}) == [
        "RELAY_SEND_TIMEOUT_S is 50.5: set at most half of RELAY_ATTEMPT_TIMEOUT_S (100)"
    ]


def test_an_attempt_ends_a_minute_before_the_host_would_end_the_process() -> None:
    Settings.from_environment(LEAST, function_timeout_s=540)

    with pytest.raises(SettingsError, match="RELAY_ATTEMPT_TIMEOUT_S is 480: set at most 479"):
        Settings.from_environment(LEAST, function_timeout_s=539)


@pytest.mark.parametrize("policy", ["skip", "park", "block"])
def test_what_follows_a_poisoned_event_is_one_of_three(policy: str) -> None:
    assert Settings.from_environment(LEAST | {"RELAY_ON_POISON": policy}).policy.on_poison == policy


def test_another_policy_is_refused() -> None:
    assert problems_of(LEAST | {"RELAY_ON_POISON": "stop"}) == [
        "RELAY_ON_POISON is 'stop': set 'skip', 'park' or 'block'"
    ]


@pytest.mark.parametrize("source", ["", "a b", "/a\tb"])
def test_a_source_of_cloudevents_is_one_word(source: str) -> None:
    chosen = LEAST | {"RELAY_MESSAGE_FORMAT": "cloudevents", "RELAY_CLOUDEVENTS_SOURCE": source}

    (problem,) = problems_of(chosen)
    assert problem.startswith("RELAY_CLOUDEVENTS_SOURCE must be a URI-reference")


def test_a_source_without_cloudevents_has_no_effect() -> None:
    for chosen in ({}, {"RELAY_MESSAGE_FORMAT": "plain"}):
        settings = Settings.from_environment(LEAST | chosen | {"RELAY_CLOUDEVENTS_SOURCE": "/contacts"})
        assert settings.policy.cloudevents_source is None


@pytest.mark.parametrize(
    "address", ["a.documents.azure.com", "ftp://a/", "https://", "https://[", "http:/a", "https://a:0/"]
)
def test_the_account_is_an_address_of_http(address: str) -> None:
    problems = problems_of({"COSMOS__accountEndpoint": address, "SERVICEBUS": SERVICEBUS})

    assert problems == [
        f"COSMOS__accountEndpoint is {address!r}: set it as https://<account>.documents.azure.com:443/"
    ]


@pytest.mark.parametrize("address", ["http://127.0.0.1:8081/", "https://a.documents.azure.com:443/"])
def test_the_account_may_be_local(address: str) -> None:
    settings = Settings.from_environment({"COSMOS__accountEndpoint": address, "SERVICEBUS": SERVICEBUS})

    assert settings.in_cosmos.connection.address == address


@pytest.mark.parametrize("address", ["namespace", "sb://n.servicebus.windows.net", "n.servicebus.windows.net/"])
def test_the_namespace_is_a_host_name(address: str) -> None:
    assert problems_of({"COSMOS": COSMOS, "SERVICEBUS__fullyQualifiedNamespace": address}) == [
        f"SERVICEBUS__fullyQualifiedNamespace is {address!r}: set it as <namespace>.servicebus.windows.net"
    ]


def test_a_connection_string_is_missing_only_what_it_lacks() -> None:
    assert problems_of({"COSMOS": COSMOS, "SERVICEBUS": "Endpoint=sb://n/;SharedAccessKeyName=;Shared=x"}) == [
        "SERVICEBUS is no connection string: it lacks SharedAccessKeyName and SharedAccessKey"
    ]
    # The SDKs take the spaces for a part of a name.
    assert problems_of({"COSMOS": COSMOS, "SERVICEBUS": SERVICEBUS.replace(";", " ; ")}) == [
        "SERVICEBUS is no connection string: it has a space, a character that is not ASCII, or a part without ="
    ]


@pytest.mark.parametrize(
    ("first", "second"), [("CONTAINER", "LEASE_CONTAINER"), ("LEASE_CONTAINER", "QUARANTINE_CONTAINER")]
)
def test_two_containers_of_one_name_are_refused(first: str, second: str) -> None:
    (problem,) = problems_of(LEAST | {f"COSMOS_{first}": "same", f"COSMOS_{second}": "same"})

    assert problem.endswith("must name three different containers")


@pytest.mark.parametrize(
    "name", ["COSMOS_DATABASE", "COSMOS_CONTAINER", "COSMOS_LEASE_CONTAINER", "COSMOS_QUARANTINE_CONTAINER"]
)
@pytest.mark.parametrize("value", ["a/b", "a\\b", "a?", "#a", "a\tb", "a\nb", "100%41", "n" * 256])
def test_a_name_that_cosmos_db_does_not_take_or_find_is_refused(name: str, value: str) -> None:
    (problem,) = problems_of(LEAST | {name: value})

    assert problem.startswith(f"{name} is ")
    assert ": set a name of 1 to 255 characters without " in problem


@pytest.mark.parametrize("value", ["100%", "100%4x", "Kontakte für München", "n" * 255])
def test_other_names_of_a_database_are_taken(value: str) -> None:
    cosmos = Settings.from_environment(LEAST | {"COSMOS_DATABASE": value}).cosmos

    assert cosmos is not None
    assert cosmos.database == value


def test_problems_are_counted_and_listed() -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.from_environment({})

    lines = str(raised.value).splitlines()
    assert lines[0] == "2 setting(s) must be corrected before the relay can start:"
    assert [line[:4] for line in lines[1:]] == ["  - ", "  - "]


def test_a_representation_shows_the_address_and_the_identity() -> None:
    shown = repr(Connection(connection_string="secret", address="a", identity=Identity(True, "c")))

    assert shown == "Connection(address='a', identity=Identity(managed=True, client_id='c'), connection_string=…)"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("SERVICEBUS_TOPICS", "SERVICEBUS_TOPIC"),
        ("COSMOS_CONTAINERS", "COSMOS_CONTAINER"),
        ("RELAY_MAXITEMS", "RELAY_MAX_ITEMS"),
        ("SERVICEBUS_ADMN", "SERVICEBUS_ADMIN"),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_right_one(name: str, near: str) -> None:
    assert problems_of(LEAST | {name: "1"}) == [f"{name} is not a setting: did you mean {near}?"]


def test_a_name_that_only_resembles_a_setting_is_left_alone() -> None:
    Settings.from_environment(LEAST | {"RELAY_ITEMS": "1", "MY_RELAY_SENDERS": "1"})


# The settings of an SQL outbox, alone or with one in Cosmos DB


POSTGRES = "postgresql://relay:hidden@db.example/shop"


def read(**environment: str) -> Settings:
    return Settings.from_environment({"SERVICEBUS": SERVICEBUS, **environment})


def problems(**environment: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(**environment)
    return caught.value.problems


def test_an_sql_outbox_needs_no_cosmos_db() -> None:
    settings = read(SQL=POSTGRES)

    assert settings.cosmos is None
    assert settings.sql == SqlFeed(
        POSTGRES, Identity(managed=False, client_id=None), "outbox.domain_event", shards=1, claim_s=10.0
    )


def test_a_process_has_64_mib_of_events_in_memory_by_default() -> None:
    feed = read(SQL=POSTGRES).sql

    assert feed is not None
    assert feed.max_bytes == 67_108_864


def test_everything_can_be_set() -> None:
    settings = read(
        SQL="Server=tcp:s.database.windows.net;Database=shop;Authentication=ActiveDirectoryMSI",
        SQL_FEED="shop.Event",
        SQL_SHARDS="8",
        SQL_CLAIM_S="5",
        SQL_MAX_BYTES="1048576",
        SQL__credential="managedidentity",
        SQL__clientId="0000-1111",
    )

    assert settings.sql is not None
    assert (settings.sql.feed, settings.sql.shards, settings.sql.claim_s) == ("shop.Event", 8, 5.0)
    assert settings.sql.max_bytes == 1048576
    assert settings.sql.identity == Identity(managed=True, client_id="0000-1111")


def test_both_outboxes_may_be_set() -> None:
    settings = read(SQL=POSTGRES, COSMOS="AccountEndpoint=https://a/;AccountKey=YQ==")

    assert settings.cosmos is not None
    assert settings.sql is not None


def test_without_sql_there_is_none_and_cosmos_db_is_required() -> None:
    assert read(COSMOS="AccountEndpoint=https://a/;AccountKey=YQ==").sql is None
    (problem,) = problems()
    assert "COSMOS" in problem
    assert "SQL" in problem


@pytest.mark.parametrize("value", ["hidden", "Server=s;User=hidden", "Database=hidden", "mysql://hidden@h/d"])
def test_what_is_no_connection_string_is_refused_without_being_shown(value: str) -> None:
    (problem,) = problems(SQL=value)

    assert problem.startswith("SQL is no connection string")
    assert "hidden" not in problem


@pytest.mark.parametrize("feed", ["domain_event", ".domain_event", "outbox."])
def test_a_feed_is_named_with_its_schema(feed: str) -> None:
    (problem,) = problems(SQL=POSTGRES, SQL_FEED=feed)

    assert problem == f"SQL_FEED is {feed!r}: set it to the event table as schema.Table"


_BOUNDS = [
    ("SQL_SHARDS", "1", "1024", "a whole number"),
    ("SQL_CLAIM_S", "2", "300", "a number of seconds"),
    ("SQL_MAX_BYTES", "1048576", "1099511627776", "a whole number"),
]


@pytest.mark.parametrize(("name", "least", "most", "what"), _BOUNDS)
def test_the_bounds_of_a_setting_are_accepted(name: str, least: str, most: str, what: str) -> None:
    attribute = name.lower().removeprefix("sql_")

    for value in (least, most):
        assert getattr(read(SQL=POSTGRES, **{name: value}).sql, attribute) == float(value)


@pytest.mark.parametrize(("name", "least", "most", "what"), _BOUNDS)
def test_values_out_of_bounds_are_refused(name: str, least: str, most: str, what: str) -> None:
    for value in (str(int(least) - 1), str(int(most) + 1), "-1", "nan", "inf", "many", "0x10", "1e999"):
        (problem,) = problems(SQL=POSTGRES, **{name: value})

        assert problem == f"{name} is {value!r}: set {what} from {least} to {most}"


@pytest.mark.parametrize("value", ["2.5", "1.0", "1e3"])
@pytest.mark.parametrize("name", ["SQL_SHARDS", "SQL_MAX_BYTES"])
def test_what_is_counted_is_a_whole_number(name: str, value: str) -> None:
    (problem,) = problems(SQL=POSTGRES, **{name: value})

    assert problem.startswith(f"{name} is {value!r}: set a whole number from ")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (
            "SQL__credential",
            "clientsecret",
            "SQL__credential is 'clientsecret': set 'managedidentity', or leave it out",
        ),
        ("SQL_SHARD", "2", "SQL_SHARD is not a setting: did you mean SQL_SHARDS?"),
        ("SQL_MAX_BYTE", "2", "SQL_MAX_BYTE is not a setting: did you mean SQL_MAX_BYTES?"),
        ("SQL_CLAIMS_S", "2", "SQL_CLAIMS_S is not a setting: did you mean SQL_CLAIM_S?"),
    ],
)
def test_misspelt_names_and_other_credentials_are_refused(name: str, value: str, problem: str) -> None:
    assert problems(SQL=POSTGRES, **{name: value}) == [problem]


def test_no_representation_shows_the_connection_string() -> None:
    assert "hidden" not in repr(read(SQL=POSTGRES))


def app(folder: Path, **content: object) -> Path:
    (folder / "host.json").write_text(json.dumps({"version": "2.0", **content}))
    return folder


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:10:00", 600), ("01:00:00.5", 3600.5), ("1.02:03:04", 93_784), ("-1", None), (None, None)],
)
def test_the_timeout_is_read_from_host_json(tmp_path: Path, text: str | None, seconds: float | None) -> None:
    content = {} if text is None else {"functionTimeout": text}

    assert function_timeout_s(app(tmp_path, **content), {}) == seconds


def test_a_setting_overrides_it(tmp_path: Path) -> None:
    folder = app(tmp_path, functionTimeout="00:10:00")

    assert function_timeout_s(folder, {"AzureFunctionsJobHost__functionTimeout": "00:05:00"}) == 300


@pytest.mark.parametrize("text", ["ten minutes", "600", ""])
def test_what_is_no_time_span_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="functionTimeout"):
        function_timeout_s(app(tmp_path, functionTimeout=text), {})


def test_a_missing_host_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"host\.json"):
        function_timeout_s(tmp_path, {})


def test_the_projects_own_leaves_room_for_an_attempt() -> None:
    connections = {
        "COSMOS": "AccountEndpoint=https://a/;AccountKey=YQ==;",
        "SERVICEBUS": "Endpoint=sb://n;SharedAccessKeyName=k;SharedAccessKey=k",
    }
    timeout_s = function_timeout_s(ROOT, {})

    assert timeout_s == 600
    settings = Settings.from_environment(connections, function_timeout_s=timeout_s)
    assert settings.policy.attempt_timeout_s + ATTEMPT_MARGIN_S < timeout_s


BLOBS = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=c2VjcmV0a2V5;EndpointSuffix=core.windows.net"
CLAIM_CHECK = LEAST | {"RELAY_LARGE": "claim-check"}


def test_large_events_are_quarantined_by_default_whatever_the_account() -> None:
    assert Settings.from_environment(LEAST).policy.claim_check is None
    assert (
        Settings.from_environment(LEAST | {"BLOBS": BLOBS, "RELAY_LARGE": "quarantine"}).policy.claim_check is None
    )


def test_large_events_go_to_a_container_by_a_connection_string_or_an_identity() -> None:
    whole = Settings.from_environment(CLAIM_CHECK | {"BLOBS": BLOBS}).policy.claim_check
    identity = Settings.from_environment(
        CLAIM_CHECK
        | {
            "BLOBS__serviceUri": "https://a.blob.core.windows.net",
            "BLOBS__credential": "managedidentity",
            "BLOBS__clientId": "0000-1111",
            "RELAY_BLOB_CONTAINER": "large",
        }
    ).policy.claim_check

    assert whole == ClaimCheck(Connection(connection_string=BLOBS), "large-events")
    assert identity == ClaimCheck(
        Connection(address="https://a.blob.core.windows.net", identity=Identity(True, "0000-1111")), "large"
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "BLOBS is not set: set BLOBS to a connection string, or BLOBS__serviceUri to use an identity; or "),
        ({"RELAY_LARGE": "blobs"}, "RELAY_LARGE is 'blobs': set 'quarantine' or 'claim-check'"),
        ({"BLOBS": "AccountName=a"}, "BLOBS is no connection string: it lacks AccountKey"),
        ({"BLOBS": f"{BLOBS};BlobEndpoint=nonsense"}, "its BlobEndpoint is no address"),
        (
            {"BLOBS__serviceUri": "a.blob.core"},
            "BLOBS__serviceUri is 'a.blob.core': set it as https://<account>.blob",
        ),
        ({"BLOBS": BLOBS, "RELAY_BLOB_CONTAINER": "Large"}, "RELAY_BLOB_CONTAINER is 'Large': set 3 to 63 small"),
        ({"BLOBS": BLOBS, "RELAY_BLOB_CONTAINER": "la"}, "RELAY_BLOB_CONTAINER is 'la'"),
        ({"BLOBS": BLOBS, "RELAY_BLOB_CONTAINER": "a--b"}, "RELAY_BLOB_CONTAINER is 'a--b'"),
        (
            {"BLOBS_URI": "x", "BLOBS__serviceUrl": "x", "BLOBS": BLOBS},
            "BLOBS__serviceUrl is not a setting: did you",
        ),
    ],
)
def test_what_is_wrong_with_large_events_is_named_with_its_remedy(settings: dict[str, str], problem: str) -> None:
    [found] = problems_of(CLAIM_CHECK | settings)

    assert problem in found
    assert "c2VjcmV0" not in found


COMMENTED = """// The host takes comments.
{
  "version": "2.0", /* and these */
  "description": "http://no.comment/*",
  "functionTimeout": "00:05:00" // at most
}
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_host_json_may_have_comments_and_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "host.json").write_text(COMMENTED, encoding=encoding)

    assert function_timeout_s(tmp_path, {}) == 300
    emulated = HostConfiguration.from_directory(tmp_path)
    assert emulated.function_timeout_s == 300


@pytest.mark.parametrize("content", [b"\xff\xfe{\x00}\x00", b"[]", b"{"])
def test_host_json_that_is_no_object_in_utf_8_is_an_error_or_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "host.json").write_bytes(content)

    if content == b"[]":
        assert function_timeout_s(tmp_path, {}) is None
    else:
        with pytest.raises(SettingsError, match=r"host\.json cannot be read"):
            function_timeout_s(tmp_path, {})
    with pytest.raises(HostError, match=r"host\.json"):
        HostConfiguration.from_directory(tmp_path)


def test_other_files_of_a_user_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (env := tmp_path / "x.env").write_text("A=1\n", encoding="utf-8-sig")
    (tmp_path / "local.settings.json").write_text('{"Values": {"B": "2"}} // mine', encoding="utf-8-sig")
    (config := tmp_path / "Config.json").write_text(
        '{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "q"}]}]}} // mine', encoding="utf-8-sig"
    )

    assert with_files({}, [env]) == read_env_file(env) == {"A": "1"}
    assert read_local_settings(tmp_path) == {"B": "2"}
    assert Entities.from_file(config).names == ["q"]


def test_files_in_another_encoding_are_errors_that_name_them(tmp_path: Path) -> None:
    (file := tmp_path / "x").write_bytes("A=1".encode("utf-16"))
    (tmp_path / "local.settings.json").write_bytes("{}".encode("utf-16"))

    with pytest.raises(UsageError, match=r"/x cannot be read"):
        with_files({}, [file])
    with pytest.raises(HostError, match=r"/x is not UTF-8"):
        read_env_file(file)
    with pytest.raises(HostError, match=r"local\.settings\.json is not UTF-8"):
        read_local_settings(tmp_path)
    with pytest.raises(EntitiesError, match="not UTF-8"):
        Entities.from_file(file)
