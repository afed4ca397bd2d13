"""Objects that others put into `public`, or into a name, change nothing that runs with more rights than theirs."""

from __future__ import annotations

import psycopg
import pytest

from outbox_relay import changefeed
from outbox_relay.changefeed import START, BackfillPlan, Feed
from outbox_relay.changefeed.install import migrations
from outbox_relay.changefeed.statements import Migration, Statement, run
from tests.changefeed.fed import TABLE, Shop, shop
from tests.changefeed.numbered import FEED

__all__ = ["shop"]

# Each would be preferred to the one of pg_catalog where `public` is searched: it takes its arguments as they are.
_SHADOWS = """
create table public.shadowed (who text, what text);
grant insert on public.shadowed to public;
create function public.format(text, text) returns text language plpgsql as
    $$ begin insert into public.shadowed values (current_user, 'format 2');
    return pg_catalog.format($1, $2); end $$;
create function public.format(text, text, text) returns text language plpgsql as
    $$ begin insert into public.shadowed values (current_user, 'format 3');
    return pg_catalog.format($1, $2, $3); end $$;
create function public.least(int, int) returns int language plpgsql as
    $$ begin insert into public.shadowed values (current_user, 'least'); return $1; end $$;
create function public.pg_sleep(int) returns void language plpgsql as
    $$ begin insert into public.shadowed values (current_user, 'pg_sleep'); end $$;
create function public.greatest(int, int) returns int language plpgsql as
    $$ begin insert into public.shadowed values (current_user, 'greatest'); return $1; end $$;
create function public.times(int, interval) returns interval language plpgsql as
    $$ begin insert into public.shadowed values (current_user, 'times');
    return $2 operator(pg_catalog.*) $1::float8; end $$;
create operator public.* (leftarg = int, rightarg = interval, function = public.times);
create function public.joined(text, text) returns text language plpgsql as
    $$ begin insert into public.shadowed values (current_user, 'concatenation'); return concat($1, $2); end $$;
create function public.joined(text, int) returns text language plpgsql as
    $$ begin insert into public.shadowed values (current_user, 'concatenation'); return concat($1, $2); end $$;
create operator public.|| (leftarg = text, rightarg = int, function = public.joined);
create function public.pg_total_relation_size(oid) returns bigint language plpgsql as
    $$ begin insert into public.shadowed values (current_user, 'size'); return 0; end $$;
create function public.checked(pg_catalog.timestamptz) returns boolean language plpgsql as
    $$ begin insert into public.shadowed values (current_user, 'type'); return true; end $$;
create domain public.timestamptz as pg_catalog.timestamptz check (public.checked(value));
"""

# As the extension has it, which not every server brings.
CITEXT = (
    """
create type public.citext;
create function public.citextin(cstring) returns public.citext immutable strict language internal as 'textin';
create function public.citextout(public.citext) returns cstring immutable strict language internal as 'textout';
create type public.citext (input = public.citextin, output = public.citextout, internallength = variable,
    storage = extended, collatable = true, category = 'S');
create cast (public.citext as text) without function as implicit;
create cast (text as public.citext) without function as assignment;
create function public.citext_cmp(public.citext, public.citext) returns int immutable strict language sql as
    $$ select pg_catalog.bttextcmp(lower($1::text), lower($2::text)) $$;
create function public.citext_hash(public.citext) returns int immutable strict language sql as
    $$ select pg_catalog.hashtext(lower($1::text)) $$;
"""
    + "".join(
        f"""
create function public.citext_{name}(public.citext, public.citext) returns boolean immutable strict language sql
    as $$ select public.citext_cmp($1, $2) {operator} 0 $$;
create operator public.{operator} (leftarg = public.citext, rightarg = public.citext,
    function = public.citext_{name}{", hashes, merges, commutator = operator(public.=)" if name == "eq" else ""});
"""
        for name, operator in (("lt", "<"), ("le", "<="), ("eq", "="), ("ge", ">="), ("gt", ">"))
    )
    + """
create operator class public.citext_ops default for type public.citext using btree as
    operator 1 public.<, operator 2 public.<=, operator 3 public.=, operator 4 public.>=, operator 5 public.>,
    function 1 public.citext_cmp(public.citext, public.citext);
create operator class public.citext_hash_ops default for type public.citext using hash as
    operator 1 public.=, function 1 public.citext_hash(public.citext);
"""
)


@pytest.fixture
def attacked(shop: Shop) -> Shop:
    """A shop in whose schema `public` a writer has put functions and operators."""
    shop.owner.execute("create role writer login; grant create on schema public to writer")
    with psycopg.connect(shop.url, user="writer", autocommit=True) as writer:
        writer.execute(_SHADOWS.encode())
    return shop


def shadows(shop: Shop) -> list[tuple[str, str]]:
    return shop.rows("select who, what from public.shadowed")


def test_administrative_functions_call_none_of_them(attacked: Shop) -> None:
    with PublicFirst(attacked) as session:
        changefeed.drop_feed(session, TABLE)
        changefeed.setup_feed(session, TABLE, roles=False, keep="30d")
        attacked.owner.execute("insert into app.item (id) values ('a')")
        changefeed.backfill(session, TABLE, BackfillPlan(["id"], shard_column="id", shards=1))
        Feed(session, TABLE).read(0)
        Feed(session, TABLE).carry_out_retention()
        changefeed.prune(session, TABLE, changefeed.status(session).feeds[0].shards[0].last_time)  # type: ignore[arg-type]
        session.execute(Statement("select changefeed.shard_of('a', 3)"))

    assert shadows(attacked) == []


def test_an_installation_calls_none_of_them(attacked: Shop) -> None:
    changefeed.drop_feed(attacked.session, TABLE)
    attacked.owner.execute("drop schema changefeed cascade")

    with PublicFirst(attacked) as session:
        assert changefeed.install(session)

    assert shadows(attacked) == []


def test_an_upgrade_calls_none_of_them(attacked: Shop) -> None:
    changefeed.drop_feed(attacked.session, TABLE)
    known = migrations("postgresql")
    text = f"select changefeed.setup_feed(format('%s', '{TABLE}'::text), outbox => true)"
    another = Migration(known[-1].version + 1, "another.sql", text)

    with PublicFirst(attacked) as session:
        assert run(session, session.dialect.install([*known, another])) == ["another.sql"]
        assert [feed.table for feed in changefeed.status(session).feeds] == [TABLE]

    assert shadows(attacked) == []


def test_sweeping_calls_none_of_them(attacked: Shop) -> None:
    attacked.append()
    with PublicFirst(attacked) as session:
        session.execute(Statement("call changefeed.sweep_loop(0, 100, 200, 10)"))
        changefeed.sweep_loop(session, duration_s=0.1)
        assert len(changefeed.Changes(session).read(FEED, 0).changes) == 1

    assert shadows(attacked) == []


class PublicFirst:
    """A session of the owner that searches `public` before the catalog."""

    def __init__(self, shop: Shop) -> None:
        self._session = changefeed.connect(shop.url)
        self._session.execute(Statement("set search_path = public, pg_catalog"))

    def __enter__(self) -> changefeed.Session:
        return self._session

    def __exit__(self, *_: object) -> None:
        self._session.close()


def test_a_name_cannot_end_the_text_of_a_function(shop: Shop) -> None:
    name = "app.x$read$; create table public.pwned(); --"
    shop.owner.execute('create table app."x$read$; create table public.pwned(); --" ("$read$" text primary key)')

    changefeed.setup_feed(shop.session, name, roles=False)
    Feed(shop.session, name).read(0)

    assert shop.rows("select to_regclass('public.pwned')") == [(None,)]


def test_keys_are_compared_as_their_index_does(shop: Shop) -> None:
    """With citext in `public`, `=` in another search path compares them as text, and so with their case."""
    shop.owner.execute(CITEXT.encode())
    shop.owner.execute(
        "create table app.loud (id public.citext primary key); insert into app.loud values ('one'), ('two')"
    )
    changefeed.setup_feed(shop.session, "app.loud", roles=False)
    shop.owner.execute("insert into changefeed.\"outbox:app.loud\" (shard_id, id) values (0, 'ONE')")

    rows = changefeed.backfill(shop.session, "app.loud", BackfillPlan(["id"]), anyway=True)
    page = Feed(shop.session, "app.loud").read(0, START)

    assert rows == 1
    assert [entry.row and entry.row["id"] for entry in page.entries] == ["one", "two"]


def test_every_function_with_more_rights_or_for_administrators_sets_its_search_path(shop: Shop) -> None:
    without = shop.rows(
        "select proname from pg_proc where pronamespace = 'changefeed'::regnamespace "
        "and not coalesce(array_to_string(proconfig, ',') like '%%search_path=%%', false) and 1 = %s order by 1",
        1,
    )

    # A procedure with a setting may not commit. shard_of qualifies all names. The others compute, and are called
    # by functions that have a path; the short read_events calls the long one by its qualified name.
    assert {name for (name,) in without} == {
        "sweep_loop",
        "shard_of",
        "ulid",
        "ulid_part",
        "random_bits",
        f"read_events:{TABLE}",
    }
