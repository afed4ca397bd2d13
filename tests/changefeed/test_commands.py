"""`python -m changefeed`: what it prints, its exit codes, and that it never shows the URL.

Where nothing depends on the process, the command runs in this one.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest

import changefeed
from changefeed import ulid
from changefeed.cli import main
from tests.changefeed.fed import TABLE, Shop, shop
from tests.changefeed.numbered import START, until

__all__ = ["shop"]

_TIMEOUT_S = 50


def start(url: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a command as a process, with the URL in its environment."""
    return subprocess.Popen(
        [sys.executable, "-m", "changefeed", *arguments],
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
        output, errors = known.communicate(timeout=_TIMEOUT_S)
        _, refused = unknown.communicate(timeout=_TIMEOUT_S)

    assert (known.returncode, errors, json.loads(output)["exitCode"]) == (0, "", 0)
    assert (unknown.returncode, refused.count("\n")) == (2, 1)
    assert "Set up the feed" in refused


def test_from_an_empty_database_to_a_page(shop: Shop) -> None:
    shop.owner.execute("drop schema changefeed cascade")

    assert answer(shop.url, "install")["applied"][0] == "0001_feeds.sql"
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
        assert process.wait(_TIMEOUT_S) == 130
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
        "nobody has decided how long positions are kept, so all are (python -m changefeed keep)"
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

    held = run(shop.url, "prune", TABLE, "--days", "1")
    shop.owner.execute('delete from changefeed."claim:app.item"')

    assert held[:2] == (0, "shard 0: 0 rows deleted; audit has not read all of the older ones\n")
    assert answer(shop.url, "prune", TABLE, "--days", "1") == {
        "code": 0,
        "shards": [{"shard_id": 0, "rows": 1, "held_by": None}],
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["read", "app.other"], "Set up the feed"),
        (["read", TABLE, "--cursor", "nonsense"], "no ULID"),
        (["read", "37", "--cursor", "nonsense"], "change_sequence_number"),
        (["read", "37", "--cursor", "9" * 18], "ahead of the last number"),
        (["read", "38"], "the feed 38 has no shard 0"),
        (["setup-feed", "app.other", "--keep", "forever"], "there is no table app.other"),
        (["setup-feed", "app.other"], "required: --keep"),
        (["drop-feed", TABLE], "--yes"),
        (["prune", TABLE, "--days", "1e9"], "calendar"),
        (["nonsense"], "invalid choice"),
    ],
)
def test_what_has_to_be_changed_is_exit_code_2(shop: Shop, arguments: list[str], message: str) -> None:
    code, output, errors = run(shop.url, *arguments)

    assert (code, output) == (2, "")
    assert message in errors


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
    code, _, errors = run("x", "read", TABLE, "postgresql://user:s3cret@host/x")

    assert code == 2
    assert "s3cret" not in errors


def test_the_url_may_be_an_argument(shop: Shop) -> None:
    code, output, errors = run("", "status", "--url", shop.url)

    assert (code, errors) == (0, "")
    assert shop.url not in output
