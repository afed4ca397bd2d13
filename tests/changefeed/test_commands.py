"""`python -m outbox_relay.changefeed`: its output and exit codes, no URL in either, and the status of feeds."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import Feed, Status, ulid
from outbox_relay.changefeed.cli import main
from outbox_relay.changefeed.numbered.status import ChangeShardStatus, SweepGroupStatus
from outbox_relay.changefeed.status import ConsumerStatus, FeedStatus, ShardStatus
from outbox_relay.command_line import python
from tests.changefeed.fed import TABLE, Shop, shop
from tests.changefeed.numbered import START, until
from tests.support.watchdog import WATCHDOG_S

__all__ = ["shop"]


def start(url: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a command as a process, with the URL in its environment."""
    return subprocess.Popen(
        [sys.executable, "-m", "outbox_relay.changefeed", *arguments],
        env={**os.environ, "CHANGEFEED_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A child of a shell's background job ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def run(url: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code, standard output and standard error of a command."""
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        try:
            code = main(arguments, {"CHANGEFEED_URL": url})
        except SystemExit as ended:
            code = int(ended.code or 0)
    assert not url or url not in output.getvalue() + errors.getvalue()
    return code, output.getvalue(), errors.getvalue()


def answer(url: str, *arguments: str) -> dict[str, Any]:
    """The JSON object of a command, whose exit code is the process's."""
    code, output, _ = run(url, *arguments, "--json")
    values: dict[str, Any] = json.loads(output)
    assert values.pop("exitCode") == code
    return {"code": code, **values}


def test_a_process_takes_the_url_from_its_environment_and_ends_with_the_code(shop: Shop) -> None:
    with start(shop.url, "status", "--json") as known, start(shop.url, "read", "app.other") as unknown:
        output, errors = known.communicate(timeout=WATCHDOG_S)
        _, refused = unknown.communicate(timeout=WATCHDOG_S)

    assert (known.returncode, errors, json.loads(output)["exitCode"]) == (0, "", 0)
    assert (unknown.returncode, refused.count("\n")) == (2, 1)
    assert "setup-feed" in refused


def test_from_an_empty_database_to_a_page(shop: Shop) -> None:
    shop.owner.execute("drop schema changefeed cascade")

    assert answer(shop.url, "install")["applied"] == ["0005_baseline.sql"]
    assert run(shop.url, "install")[:2] == (0, "the schema is up to date\n")
    assert run(shop.url, "setup-feed", TABLE, "--no-roles", "--keep", "30d")[:2] == (
        0,
        "app.item has a feed\n",
    )
    assert shop.rows("select channel from changefeed.outbox_feed") == [(None,)]
    shop.owner.execute("insert into app.item (id) values ('old')")
    assert run(shop.url, "backfill", TABLE, "--order-by", "id")[:2] == (0, "1 rows are on the feed now\n")
    shop.put(["new"])
    page = answer(shop.url, "read", TABLE, "--limit", "1")
    assert page["entries"] == [{"ulid": page["cursor"], "event": {"id": "old", "data": "{}"}}]
    code, output, _ = run(shop.url, "read", TABLE, "--cursor", page["cursor"])
    assert (code, output.splitlines()[0][27:]) == (0, "event {'id': 'new', 'data': '{}'}")
    assert output.splitlines()[1] == f"cursor {output[:26]}"
    assert run(shop.url, "wait", TABLE, "--cursor", page["cursor"])[:2] == (0, "there is something to read\n")
    assert answer(shop.url, "wait", TABLE, "--cursor", output[:26], "--timeout", "0.1") == {
        "code": 1,
        "news": False,
    }
    assert answer(shop.url, "drop-feed", TABLE, "--yes") == {"code": 0, "table": TABLE}
    assert shop.rows("select count(*) from changefeed.outbox_feed") == [(0,)]


def test_numbered_feeds_are_swept_and_read_by_their_number(shop: Shop) -> None:
    change_ids = [shop.append(), shop.append()]

    assert run(shop.url, "wait", "37", "--timeout", "0.1")[:2] == (1, "nothing came\n")
    assert answer(shop.url, "sweep", "--once")["change_count"] == 2
    assert run(shop.url, "read", "37", "--limit", "1")[1] == (
        f"{START + 1} change_id={change_ids[0]}\ncursor {START + 1}\n"
    )
    assert answer(shop.url, "read", "37", "--cursor", str(START + 1)) == {
        "code": 0,
        "changes": [{"change_id": change_ids[1], "change_sequence_number": START + 2}],
        "cursor": START + 2,
    }
    assert run(shop.url, "wait", "37", "--timeout", "0")[0] == 0


def test_a_sweeper_runs_until_it_is_interrupted(shop: Shop) -> None:
    with start(shop.url, "sweep", "--seconds", "0.2") as process:
        shop.append()
        until(shop.numbers, "the number")
        assert process.stdout is not None
        assert "changes numbered" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(WATCHDOG_S) == 130
    until(lambda: shop.sweeper() is None, "the sweeper to have gone")


def test_another_process_takes_over_from_a_sweeper_that_is_killed(shop: Shop) -> None:
    with start(shop.url, "sweep") as first:
        until(shop.sweeper, "the first sweeper")
        before = shop.append()
        until(lambda: shop.numbers() == [(before, 1)], "the first number")
        with start(shop.url, "sweep") as second:
            waiting = "select 1 from pg_locks where locktype = 'advisory' and not granted"
            until(lambda: shop.rows(waiting), "the second sweeper to wait")
            first.kill()
            after = shop.append()
            until(lambda: shop.numbers() == [(before, 1), (after, 2)], "the second number")
            second.kill()


def test_status_is_for_people_and_programs(shop: Shop) -> None:
    assert run(shop.url, "status")[1].splitlines()[0] == TABLE
    shop.put(["a"])
    _, cursor = shop.read()
    shop.put(["b"])
    shop.append()
    shop.consume("relay", 0, cursor)

    code, output, _ = run(shop.url, "status")
    found = answer(shop.url, "status")

    assert code == 0
    lines = output.splitlines()
    assert lines[1].endswith(
        "nobody has decided how long positions are kept, so all are "
        f"({python()} -m outbox_relay.changefeed keep schema.Table 30d)"
    )
    assert lines[2].startswith("  shard 0: 1 in the outbox, the oldest ")
    assert f"last position {ulid.to_text(cursor)} of 2" in lines[2]
    assert lines[3:5] == [f"    relay: owner a process, cursor {ulid.to_text(cursor)}, 0 behind", "sweep group 0"]
    assert lines[5].startswith(f"  feed 37 shard 0: numbered to {START}; 1 waiting, the oldest for ")
    (shard,) = found["feeds"][0]["shards"]
    assert shard["consumers"] == [
        {"consumer": "relay", "owner": "a process", "cursor": ulid.to_text(cursor), "behind": 0, "ahead": False}
    ]
    assert found["sweep_groups"][0]["shards"][0]["waiting"] == 1


def test_prune_says_what_holds_it(shop: Shop) -> None:
    shop.put(["a"], time_hint=changefeed.ulid.time_of(changefeed.START))
    shop.read()
    changefeed.Consumer(shop.session, TABLE, "audit").claims([0])

    held = run(shop.url, "prune", TABLE, "--keep", "1d")
    shop.owner.execute('delete from changefeed."claim:app.item"')

    assert held[:2] == (0, "shard 0: 0 rows deleted; audit has not read all of the older ones\n")
    assert answer(shop.url, "prune", TABLE, "--days", "1") == {
        "code": 0,
        "shards": [{"shard_id": 0, "rows": 1, "held_by": None}],
    }


def test_what_has_to_be_changed_is_exit_code_2(shop: Shop) -> None:
    for arguments, message in (
        (["read", "app.other"], "setup-feed"),
        (["read", TABLE, "--cursor", "nonsense"], "no ULID"),
        (["read", "37", "--cursor", "nonsense"], "change_sequence_number"),
        (["read", "37", "--cursor", "9" * 18], "ahead of the last number"),
        (["read", "38"], "the feed 38 has no shard 0"),
        (["setup-feed", "app.other", "--keep", "forever"], "there is no table app.other"),
        (["setup-feed", "app.other"], "--keep requires an argument"),
        (["drop-feed", TABLE], "--yes"),
        (["prune", TABLE, "--days", "1e9"], "calendar"),
        (["nonsense"], "Unknown command"),
    ):
        code, output, errors = run(shop.url, *arguments)

        assert (code, output, message in errors) == (2, "", True), (arguments, errors)


def test_what_may_be_tried_again_is_exit_code_1(shop: Shop) -> None:
    shop.owner.execute("alter function changefeed.sweep(int) set lock_timeout = '100ms'")
    shop.append()
    with shop.connect() as other:
        other.execute("select 1 from changefeed.shard for no key update")
        busy = answer(shop.url, "sweep", "--once")
    gone = run(shop.url.replace("/test_", "/gone_"), "status")

    assert busy["code"] == 1
    assert "Try again" in busy["error"]
    assert gone[0] == 1
    assert "does not exist" in gone[2]


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://user:s3cret@[::1", 2),
        ("postgresql://user:s3c%zzret@localhost/x", 2),
        ("s3cret", 2),
        ("", 2),
    ],
)
def test_a_connection_string_is_never_shown(url: str, code: int) -> None:
    result = run(url, "status")

    assert result[0] == code
    assert result[2].startswith("error: ")
    assert "s3c" not in result[1] + result[2]


def test_nor_is_one_of_sql_server() -> None:
    code, output, errors = run("Server=127.0.0.1,1;Database=x;Uid=u;Pwd=s3cret", "status")

    # A machine may lack the libraries of the driver, which is a matter of its setup.
    assert code == (2 if "apt-get install libltdl7" in errors else 1)
    assert errors.startswith("error: ")
    assert "s3c" not in output + errors


def test_nor_is_one_that_was_passed_in_the_wrong_place() -> None:
    code, _, errors = run("zz", "read", TABLE, "postgresql://user:s3cret@host/x")

    assert code == 2
    assert "s3cret" not in errors


def test_the_url_may_be_an_argument(shop: Shop) -> None:
    code, output, errors = run("", "status", "--url", shop.url)

    assert (code, errors) == (0, "")
    assert shop.url not in output


# The status of feeds, consumers and sweep groups


_NO_CHANGES = [ChangeShardStatus(37, 0, START, 0, None), ChangeShardStatus(37, 1, START, 0, None)]


def test_a_feed_on_which_nothing_happened_has_no_shards(shop: Shop) -> None:
    found = changefeed.status(shop.session)

    empty = FeedStatus(TABLE, [], None, 0, found.feeds[0].bytes)
    assert found == Status([empty], [SweepGroupStatus(0, _NO_CHANGES)])
    assert 0 < empty.bytes < 100_000


def test_what_is_in_the_outbox_is_counted_with_its_age(shop: Shop) -> None:
    shop.put(["a"], 3, datetime.now(UTC) - timedelta(hours=1))
    shop.put(["b"], 3)

    (shard,) = changefeed.status(shop.session).feeds[0].shards

    assert (shard.shard_id, shard.outbox_rows, shard.last_ulid, shard.last_time) == (3, 2, None, None)
    assert shard.oldest_s is not None
    assert 3600 <= shard.oldest_s < 3660


def test_a_time_in_the_future_has_no_age(shop: Shop) -> None:
    shop.put(["a"], 0, datetime.now(UTC) + timedelta(hours=1))

    assert changefeed.status(shop.session).feeds[0].shards[0].oldest_s == 0


# PostgreSQL has them, and Python does not.
_NO_TIMES = ("infinity", "-infinity", "4713-01-01 BC", "294276-12-31")


def test_a_time_that_python_does_not_have_is_no_age_and_hides_none(shop: Shop) -> None:
    shop.put(["a", "b", "c"], 0, datetime.now(UTC) - timedelta(hours=1))
    shop.put(["d"], 1)
    outbox = f'changefeed."outbox:{TABLE}"'
    for hint in _NO_TIMES:
        shop.owner.execute(f"update {outbox} set time_hint = '{hint}' where id in ('b', 'd')".encode())

        old, young = changefeed.status(shop.session).feeds[0].shards

        assert (old.outbox_rows, young.outbox_rows, young.oldest_s) == (3, 1, 0), hint
        assert old.oldest_s is not None, hint
        assert 3600 <= old.oldest_s < 3660, hint


def test_a_change_at_such_a_time_has_no_lag_and_hides_none(shop: Shop) -> None:
    shop.append()
    shop.append()
    shop.owner.execute("update changefeed.change set inserted_at = clock_timestamp() - interval '1 hour'")
    for moment in _NO_TIMES:
        shop.owner.execute(
            f"update changefeed.change set inserted_at = '{moment}' "
            "where change_id = (select min(change_id) from changefeed.change)".encode()
        )

        (shard, _) = changefeed.status(shop.session).sweep_groups[0].shards

        assert (shard.waiting, shard.lag_s is not None and 3600 <= shard.lag_s < 3660) == (2, True), moment


def test_consumers_show_their_owner_and_what_is_behind_their_cursor(shop: Shop) -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    shop.put(["a", "b", "c"], time_hint=when)
    entries = Feed(shop.session, TABLE).read(0).entries
    shop.consume("relay", 0, entries[0].ulid)
    changefeed.Consumer(shop.session, TABLE, "audit").claims([0, 1])

    found = changefeed.status(shop.session).feeds[0].shards

    assert found == [
        ShardStatus(
            0,
            0,
            None,
            entries[2].ulid,
            when,
            [
                ConsumerStatus("audit", None, changefeed.START, 3),
                ConsumerStatus("relay", "a process", entries[0].ulid, 2),
            ],
        ),
        ShardStatus(1, 0, None, None, None, [ConsumerStatus("audit", None, changefeed.START, 0)]),
    ]


def test_sweep_groups_show_numbers_and_lag(shop: Shop) -> None:
    shop.owner.execute("update changefeed.shard set sweep_group = 5 where shard = 1")
    shop.append()
    changefeed.sweep(shop.session)
    shop.append()
    shop.append()

    zero, five = changefeed.status(shop.session).sweep_groups

    assert five == SweepGroupStatus(5, [ChangeShardStatus(37, 1, START, 0, None)])
    (shard,) = zero.shards
    assert (shard.feed_id, shard.shard, shard.last_change_sequence_number, shard.waiting) == (37, 0, START + 1, 2)
    assert shard.lag_s is not None
    assert 0 <= shard.lag_s < 60


async def test_the_async_face_is_the_same(shop: Shop) -> None:
    shop.put(["a"])
    shop.read()
    session = await changefeed.connect_async(shop.url)
    try:
        assert await changefeed.status_async(session) == changefeed.status(shop.session)
    finally:
        await session.close()


def test_a_cursor_ahead_of_the_last_position_is_shown(shop: Shop) -> None:
    shop.put(["a"])
    _, cursor = shop.read()
    shop.consume("relay", 0, cursor)
    shop.consume("ahead", 0, bytes([0xFF] * 16))
    shop.consume("unread", 1, bytes([0xFF] * 16))

    found = changefeed.status(shop.session).feeds[0].shards

    ahead = {one.consumer: one.ahead for shard in found for one in shard.consumers}
    assert ahead == {"relay": False, "ahead": True, "unread": True}


def test_a_feed_shows_how_long_it_keeps_positions_and_its_size(shop: Shop) -> None:
    shop.put([str(number) for number in range(100)])
    shop.read()
    shop.owner.execute("analyze")
    changefeed.set_keep(shop.session, TABLE, "30d")

    (feed,) = changefeed.status(shop.session).feeds

    assert (feed.keep, feed.rows) == ("30d", 100)
    assert feed.bytes >= 16384
