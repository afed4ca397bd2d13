"""The findings of `check` for given answers of an account; test_operators_check.py asks an emulator."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError

from outbox_relay.operator.backends.cosmos.check import check
from outbox_relay.operator.backends.cosmos.scan import MAX_DEPTH, MAX_INTEGER_CHARACTERS, measure, scan
from relay.backends.findings import Finding, Level
from relay.config.settings import Settings
from relay.core.errors import ServiceError
from tests.unit.relay.commands import ENVIRONMENT, cosmos_error
from tests.unit.relay.deployments import Account, serve_account

SETTINGS = Settings.from_environment(ENVIRONMENT)
NAMES = {
    "COSMOS_CONTAINER": "data",
    "COSMOS_LEASE_CONTAINER": "leases",
    "COSMOS_QUARANTINE_CONTAINER": "quarantine",
}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account()
    serve_account(monkeypatch, account)
    return account


def definition(*paths: str, ttl: int | None = None) -> dict[str, Any]:
    return {"partitionKey": {"paths": list(paths)}, "_rid": "coll", **({} if ttl is None else {"defaultTtl": ttl})}


async def trouble() -> list[Finding]:
    return [finding for finding in await check(SETTINGS) if finding.level is not Level.OK]


async def test_a_sound_account_gives_nothing_but_ok(account: Account) -> None:
    findings = await check(SETTINGS)

    assert account.closed == 1
    assert {finding.level for finding in findings} == {Level.OK}
    assert [finding.what.partition(" ")[0] for finding in findings] == [
        "COSMOS_DATABASE",
        *(setting for setting in NAMES for _ in range(2)),
    ]


@pytest.mark.parametrize(
    ("setting", "answer", "level", "says"),
    [
        ("COSMOS_CONTAINER", definition("/id", ttl=-1), Level.ERROR, "the partition key /id, not /partitionKey"),
        ("COSMOS_CONTAINER", definition(ttl=-1), Level.ERROR, "the partition key none, not /partitionKey"),
        (
            "COSMOS_CONTAINER",
            definition("/partitionKey", "/id", ttl=-1),
            Level.ERROR,
            "/partitionKey, /id, not",
        ),
        ("COSMOS_CONTAINER", definition("/partitionKey"), Level.WARNING, "time to live off"),
        ("COSMOS_CONTAINER", definition("/partitionKey", ttl=9), Level.ERROR, "of 9 s, after which business"),
        ("COSMOS_LEASE_CONTAINER", definition("/partitionKey", ttl=-1), Level.ERROR, "not /id"),
        ("COSMOS_LEASE_CONTAINER", definition("/id"), Level.ERROR, "never expires"),
        ("COSMOS_LEASE_CONTAINER", definition("/id", ttl=60), Level.ERROR, "loses its checkpoint"),
        ("COSMOS_QUARANTINE_CONTAINER", definition("/partitionKey", ttl=60), Level.ERROR, "events are lost"),
        ("COSMOS_QUARANTINE_CONTAINER", definition("/partitionKey", ttl=-1), Level.WARNING, "without a default"),
        ("COSMOS_CONTAINER", cosmos_error(404), Level.ERROR, "'data' does not exist"),
        ("COSMOS_CONTAINER", cosmos_error(403), Level.UNKNOWN, "with these rights: "),
    ],
)
async def test_a_container_that_is_not_as_it_should_be(
    account: Account, setting: str, answer: object, level: Level, says: str
) -> None:
    account.containers[NAMES[setting]] = answer

    (finding,) = await trouble()

    assert (finding.level, finding.unavailable) == (level, False)
    assert says in finding.what
    assert finding.what.startswith(f"{setting} '{NAMES[setting]}'")
    assert finding.remedy


@pytest.mark.parametrize(("age_s", "stale"), [(0.0, False), (60.0, False), (61.0, True)])
async def test_a_lock_that_is_older_than_any_host_holds_it_is_an_error_that_names_it(
    account: Account, monkeypatch: pytest.MonkeyPatch, age_s: float, stale: bool
) -> None:
    account.items["leases"] = [{"id": "host_db_coll.lock", "_ts": 1000}]
    monkeypatch.setattr("outbox_relay.operator.backends.cosmos.reader.time.time", lambda: 1000 + age_s)

    found = await trouble()

    assert [finding.level for finding in found] == ([Level.ERROR] if stale else [])
    assert all("the lock 'host_db_coll.lock', 61 s old" in finding.what and finding.remedy for finding in found)


@pytest.mark.parametrize(
    ("error", "level", "unavailable", "says"),
    [
        (cosmos_error(404), Level.ERROR, False, "COSMOS_DATABASE 'outbox' does not exist"),
        (cosmos_error(401), Level.ERROR, True, "refused the credentials"),
        (cosmos_error(500), Level.ERROR, True, "cannot be reached"),
        (ClientAuthenticationError("no token"), Level.ERROR, True, "refused the credentials"),
        (OSError("no way"), Level.ERROR, True, "cannot be reached"),
        (TimeoutError(), Level.ERROR, True, "cannot be reached"),
        (ValueError("no answer of this kind"), Level.ERROR, True, "cannot be reached"),
    ],
)
async def test_an_account_without_its_database_is_one_finding(
    account: Account, error: Exception, level: Level, unavailable: bool, says: str
) -> None:
    account.database = error

    (finding,) = await check(SETTINGS)

    assert (finding.level, finding.unavailable) == (level, unavailable)
    assert says in finding.what
    assert finding.remedy


async def test_an_identity_that_may_not_read_the_database_may_still_read_its_containers(account: Account) -> None:
    account.database = cosmos_error(403)

    (finding,) = await trouble()

    assert (finding.level, len(await check(SETTINGS))) == (Level.UNKNOWN, 7)


async def test_an_account_that_cannot_be_reached_is_one_finding(account: Account) -> None:
    account.refuses = ClientAuthenticationError("no token")

    (finding,) = await check(SETTINGS)

    assert (finding.level, finding.unavailable) == (Level.ERROR, True)


async def test_locks_that_cannot_be_read_are_unknown_unless_the_container_says_so(account: Account) -> None:
    account.items["leases"] = cosmos_error(403)
    (locks,) = await trouble()
    account.containers["leases"] = cosmos_error(404)
    (container,) = await trouble()

    assert (locks.level, "the locks in COSMOS_LEASE_CONTAINER 'leases'" in locks.what) == (Level.UNKNOWN, True)
    assert container.what == "COSMOS_LEASE_CONTAINER 'leases' does not exist"


# The leases of the partitions 0 to 20 and 20 to FF, after the changes that each name says.
OVERLAPPING: dict[str, tuple[list[tuple[str, int | None, str, str]], str]] = {
    "the lease of a split partition has remained": (
        [("0", None, "", "20"), ("2", 5, "", "10"), ("3", 5, "10", "20"), ("1", 5, "20", "FF")],
        "'host.test_db_coll..0' at the beginning, 'host.test_db_coll..2' at 5, 'host.test_db_coll..3' at 5.",
    ),
    "split 1, merge 0 and its child": (
        [("-20", 3, "", "20"), ("4", 30, "", "30"), ("3", 30, "30", "FF")],
        "'host.test_db_coll..-20' at 3, 'host.test_db_coll..4' at 30.",
    ),
}


@pytest.mark.parametrize("name", OVERLAPPING)
async def test_leases_that_cover_the_same_keys_are_named_with_their_positions(account: Account, name: str) -> None:
    given, named = OVERLAPPING[name]
    leases = [lease(token, lsn, (minimum, maximum)) for token, lsn, minimum, maximum in given]
    account.items["leases"] = leases

    (finding,) = await trouble()

    assert finding.level is Level.WARNING
    assert f"'leases' has leases that cover the same keys: {named} A split or merge has left" in finding.what
    account.items["leases"] = [{**each, "id": f"other-function-{each['id']}"} for each in leases]
    assert await trouble() == []


@pytest.mark.parametrize(
    ("behind", "ranges", "is_told"),
    [
        # Split 1, merge 0 and its child: lease 1 may make the lease of the merged partition.
        (3, [("", "30"), ("30", "FF")], True),
        (30, [("", "30"), ("30", "FF")], False),
        # Two splits and a merge of the inner children.
        (3, [("", "10"), ("10", "30"), ("30", "FF")], True),
        # A merge alone, and splits alone.
        (3, [("", "FF")], False),
        (3, [("", "10"), ("10", "20"), ("20", "FF")], False),
        # A merge and a split at the same bound: the old partitions have new names.
        (3, [("", "20"), ("20", "FF")], False),
        # A merge and a split at another one.
        (3, [("", "10"), ("10", "FF")], True),
    ],
)
async def test_changes_that_no_host_has_noticed_are_told_where_leases_will_meet(
    account: Account, behind: int, ranges: list[tuple[str, str]], is_told: bool
) -> None:
    account.items["leases"] = [lease("0", behind, ("", "20")), lease("1", 30, ("20", "FF"))]
    account.ranges = ranges

    found = await trouble()

    assert [finding.level for finding in found] == [Level.WARNING] * is_told
    assert all("no host has noticed" in finding.what for finding in found)
    assert all("python -m relay replay --from" in str(finding.remedy) for finding in found)


# the scan


def lease(token: str, lsn: int | None, bounds: tuple[str, str] = ("", "FF")) -> dict[str, Any]:
    return {
        "id": f"host.test_db_coll..{token}",
        "FeedRange": {"Range": {"min": bounds[0], "max": bounds[1]}},
        "ContinuationToken": None if lsn is None else f'"{lsn}"',
    }


def nested(levels: int, kind: type = dict) -> Any:
    """A container with this many levels."""
    value: Any = kind()
    for _ in range(levels - 1):
        value = {"x": value} if kind is dict else [value]
    return value


def item(identifier: str, lsn: int | None, **changes: Any) -> dict[str, Any]:
    found = {"id": identifier, "partitionKey": "k", "type": "contact", **changes}
    return found if lsn is None else {**found, "_lsn": lsn}


async def test_what_the_host_cannot_hand_over_is_named(account: Account) -> None:
    account.items["leases"] = [lease("0", 5)]
    account.items["data"] = [
        *(item("passed", 5, data=nested(63)), item("flat", 6, data=nested(62)), item("deep", 7, data=nested(63))),
        *(
            item("long", 8, number=10**380),
            item("short", 9, number=10**379),
            item("nowhere", None, data=nested(70)),
            item("just", 10, data=nested(62), number=10**380),
        ),
    ]

    found = await scan(SETTINGS)

    obstacles = found.data["obstacles"]
    assert (found.data["scanned"], account.closed) == (6, 1)
    assert [(each["id"], each["depth"], each["integerCharacters"], each["lsn"]) for each in obstacles] == [
        ("deep", 64, 0, 7),
        ("long", 1, 381, 8),
        ("nowhere", 71, 0, None),
        ("just", 63, 381, 10),
    ]
    assert {each["lease"] for each in obstacles} == {"host.test_db_coll..0"}
    assert {finding.level for finding in found.findings} == {Level.ERROR}
    deep, long, _, just = [finding.what for finding in found.findings]
    assert "document 'deep' with the partition key 'k' (type 'contact', _lsn 7) is nested 64 levels deep" in deep
    assert "document 'long' with the partition key 'k' (type 'contact', _lsn 8) has an integer of 381" in long
    assert "document 'just' with the partition key 'k' (type 'contact', _lsn 10) has an integer of 381" in just
    assert account.reads_any_length
    assert sys.get_int_max_str_digits() > 0


async def test_each_lease_is_read_from_where_it_stands(account: Account) -> None:
    account.items["leases"] = [
        *(lease("0", 5, ("", "10")), lease("1", None, ("10", "20")), lease("0-1-2", 5, ("20", "FF"))),
    ]
    account.items["data"] = [item("e", 6)]

    found = await scan(SETTINGS)

    (finding,) = found.findings
    assert (found.data, finding.level) == ({"scanned": 3, "obstacles": [], "rejected": []}, Level.OK)
    assert "can deliver all 3 document(s)" in finding.what
    shown, beginning, epk = account.read_from
    assert (shown["continuation"], list(shown["headers"].values())) == ('"5"', ["0"])
    for reading, bounds in ((beginning, ("10", "20")), (epk, ("20", "FF"))):
        assert reading["feed_range"] == {
            "Range": {"min": bounds[0], "max": bounds[1], "isMinInclusive": True, "isMaxInclusive": False}
        }
        assert (reading["start_time"], "continuation" in reading) == ("Beginning", False)


@pytest.mark.parametrize(
    ("policy", "fate", "command"),
    [
        ("skip", "would be quarantined", "quarantine discard ID"),
        ("park", "would be quarantined, and park its partition key", "quarantine discard ID"),
        ("block", "would block its partition key", "quarantine add k"),
    ],
)
async def test_invalid_events_are_named_and_many_are_counted(
    account: Account, policy: str, fate: str, command: str
) -> None:
    account.items["leases"] = [lease("0", 5)]
    account.items["data"] = [item(f"e{lsn}", lsn, type="domainEvent", data=7) for lsn in range(5, 28)]

    found = await scan(Settings.from_environment(ENVIRONMENT | {"RELAY_ON_POISON": policy}))

    *named, more = found.findings
    assert [each["id"] for each in found.data["rejected"]] == [f"e{lsn}" for lsn in range(6, 28)]
    assert found.data["rejected"][0] == {
        "id": "e6",
        "partitionKey": "k",
        "lease": "host.test_db_coll..0",
        "reason": "data-not-object",
        "detail": "data is a number, not an object",
    }
    assert len(named) == 20
    assert f"event 'e6' with the partition key 'k' of the lease 'host.test_db_coll..0' {fate}: " in named[0].what
    assert f"python -m relay {command}" in (named[0].remedy or "")
    assert (more.what, more.remedy) == (f"2 more event(s) {fate}", "Use --json.")


async def test_without_leases_the_feed_is_not_scanned(account: Account) -> None:
    found = await scan(SETTINGS)

    (finding,) = found.findings
    assert (found.data, finding.level) == ({"scanned": 0, "obstacles": [], "rejected": []}, Level.UNKNOWN)
    assert "has no leases for the outbox container" in finding.what
    assert account.read_from == []


@pytest.mark.parametrize("error", [cosmos_error(403), OSError("no way"), ServiceError("said")])
async def test_a_feed_that_cannot_be_read_is_unknown(account: Account, error: Exception) -> None:
    account.items["leases"] = error

    found = await scan(SETTINGS)

    assert [(finding.level, "was not scanned" in finding.what) for finding in found.findings] == [
        (Level.UNKNOWN, True)
    ]
    assert sys.get_int_max_str_digits() > 0


@pytest.mark.parametrize("kind", [dict, list])
@pytest.mark.parametrize("levels", [1, 61, 62, 63, 126])
def test_the_levels_of_a_document_count_the_document_itself(levels: int, kind: type) -> None:
    assert measure({"id": "a", "flat": [1], "data": nested(levels, kind)}) == (levels + 1 if levels > 1 else 2, 0)


def test_a_flat_document_has_one_level() -> None:
    assert measure({"id": "a", "text": "[" * 100, "number": 1.5, "none": None, "true": True}) == (1, 0)


@pytest.mark.parametrize(
    ("number", "characters"),
    [(10**18 - 1, 0), (10**18, 19), (10**379, 380), (-(10**379), 381), (10**399, 400), (1e300, 0)],
)
def test_an_integer_is_as_long_as_it_is_written(number: float, characters: int) -> None:
    assert measure({"a": [{"b": number}]}) == (3, characters)


def test_the_limits_are_those_seen_on_the_host() -> None:
    # A document of 63 levels is delivered, one of 64 is not; an integer of 379 digits is, one of 400 is not.
    assert (MAX_DEPTH, MAX_INTEGER_CHARACTERS) == (63, 380)
