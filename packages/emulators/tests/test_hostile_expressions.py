"""Queries and rules that are to run for ever, or to fill the memory."""

from __future__ import annotations

import asyncio
import json
import re
import struct
import sys
import zlib
from typing import Any

import aiohttp
import pytest
import regex

from outbox_relay.emulators.cosmos import hybridrow
from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.query.evaluation import Scope, compile_expression
from outbox_relay.emulators.cosmos.query.parsing import parse_query
from outbox_relay.emulators.cosmos.query.values import UNDEFINED
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.patterns import InvalidPatternError, Pattern, PatternTooLargeError, like_pattern
from outbox_relay.emulators.servicebus.message import MAX_PROPERTY_BYTES, Message
from outbox_relay.emulators.servicebus.sql import EvaluationError, SqlError, parse_action, parse_filter
from outbox_relay.emulators.testing import Answer, RawClient
from packages.emulators.tests.servicebus.fakes import a_message
from tests.support.watchdog import WATCHDOG_S

pytestmark = pytest.mark.slow

DOCS = "/dbs/shop/colls/orders/docs"
MANY_ANYTHINGS = "%a" * 30 + "%b"
# Of an exponential search, each further character doubles the time.
NEARLY = "a" * 60


async def within_bounds(code: str) -> str:
    """The output of a separate program, which is killed at 2 GB of memory or at its time limit."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n{code}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", limited, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(WATCHDOG_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode().strip()


def value_of(expression: str, item: Any = None) -> Any:
    """The result of `SELECT VALUE` for an item in the container `c`."""
    [selected] = parse_query(f"SELECT VALUE {expression} FROM c").selected
    return compile_expression(selected.expression, {})(Scope(item))


async def answer_to(query: str) -> Answer:
    """The account's answer to a query of one partition that has one item."""
    async with CosmosServer() as server, aiohttp.ClientSession() as session:
        raw = RawClient(session, server.endpoint, server.key)
        provision(server.account, [ContainerSpec.parse("shop/orders:/pk")])
        body = json.dumps({"query": query, "parameters": []})
        headers = {"content-type": "application/query+json", "x-ms-documentdb-isquery": "True"}
        partition = {"x-ms-documentdb-partitionkey": '["a"]'}
        await raw.send("POST", DOCS, headers=partition, body='{"id": "1", "pk": "a"}')
        return await raw.send("POST", DOCS, headers=headers | partition, body=body)


def message(**properties: Any) -> Message:
    return a_message(properties=properties)


def test_like_tries_no_place_twice() -> None:
    pieces = [None if each == "%" else each for each in MANY_ANYTHINGS]

    assert not like_pattern(pieces).is_all_of(NEARLY)
    assert like_pattern(pieces).is_all_of(f"{NEARLY}b")


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("", "", True),
        ("%", "", True),
        ("%%", "ab\n", True),
        ("a%a", "a", False),
        ("a%a", "aa", True),
        ("%ab%ab", "abab", True),
        ("%ab%ab", "aab", False),
        ("a%b%c", "abcbc", True),
        ("%.", "x.", True),
        ("%.", "xx", False),
    ],
)
def test_like_matches_whole_texts(pattern: str, text: str, found: bool) -> None:
    pieces = [None if each == "%" else re.escape(each) for each in pattern]

    assert like_pattern(pieces).is_all_of(text) is found


HOSTILE_PATTERNS = {
    r"^(a|aa)+\1b": NEARLY,
    "(?R)": "a",
    "((((a{1000}){1000}){1000}){1000}){1000}": "a",
    "(?i)" + "ß" * 9_990: "s" * 100_000,
    "a|" * 100_000: "b",
    "(" * 500 + ")" * 500: "b",
}


async def test_a_regular_expression_is_matched_or_refused() -> None:
    output = await within_bounds(
        "from packages.emulators.tests.test_hostile_expressions import *\n"
        "for expression, text in HOSTILE_PATTERNS.items(): print(outcome(expression, text))"
    )

    assert len(output.splitlines()) == len(HOSTILE_PATTERNS)
    assert "MemoryError" not in output


def outcome(expression: str, text: str) -> object:
    try:
        return Pattern(expression, regex.RegexFlag(0)).is_in(text)
    except (PatternTooLargeError, InvalidPatternError) as error:
        return repr(error)


async def test_a_regular_expression_that_takes_too_long_is_a_bad_request() -> None:
    answer = await answer_to(f"SELECT VALUE REGEXMATCH('a', '{'a' * 1_025}') FROM c")

    assert (answer.status, "1024 are served" in answer.text) == (400, True)


def test_a_regular_expression_has_what_the_services_has() -> None:
    assert value_of(r"REGEXMATCH('Zürich', '^\\p{L}+$')") is True
    assert value_of("REGEXMATCH('ab', '(?<=a)b')") is True
    assert value_of(f"REGEXMATCH('{'f' * 36}', '^([0-9a-f]{{4}}){{9}}$')") is True


async def test_a_join_makes_no_product_without_end() -> None:
    text = json.dumps([0] * 1_000)
    answer = await answer_to(f"SELECT VALUE COUNT(1) FROM c JOIN a IN {text} JOIN b IN {text} JOIN d IN {text}")

    assert (answer.status, "more than 500000 elements" in answer.text) == (400, True)


async def test_like_in_a_query_takes_no_exponential_time() -> None:
    assert (
        await within_bounds(
            "from packages.emulators.tests.test_hostile_expressions import *\n"
            "print(value_of(f\"c.text LIKE '{MANY_ANYTHINGS}'\", {'text': NEARLY}))"
        )
        == "False"
    )


async def test_like_in_a_filter_takes_no_exponential_time() -> None:
    assert (
        await within_bounds(
            "from packages.emulators.tests.test_hostile_expressions import *\n"
            "print(parse_filter(f\"text LIKE '{MANY_ANYTHINGS}'\").matches(message(text=NEARLY)))"
        )
        == "False"
    )


async def test_an_action_does_not_double_a_text_without_end() -> None:
    action = "; ".join(["SET x = x + x"] * 30)

    assert "more than 32768 characters" in await within_bounds(
        "from packages.emulators.tests.test_hostile_expressions import *\n"
        f"parse_action({action!r}).apply(message(x='a' * 1000))"
    )
    assert MAX_PROPERTY_BYTES == 32768


def test_numbers_of_an_action_have_64_bits() -> None:
    with pytest.raises(EvaluationError, match="overflow"):
        parse_action("; ".join(["SET x = x * x"] * 30)).apply(message(x=10))
    with pytest.raises(EvaluationError, match="overflow"):
        parse_filter("-x = 1").matches(message(x=-(2**63)))
    with pytest.raises(SqlError, match="more than 64 bits"):
        parse_filter(f"x = {2**63}")


def test_rules_are_as_short_as_the_service_wants_them() -> None:
    with pytest.raises(SqlError, match="1025 characters; the limit is 1024"):
        parse_filter("a = 1" + " " * 1020)
    with pytest.raises(SqlError, match="1025 characters; the limit is 1024"):
        parse_action("SET a = 1" + " " * 1016)
    with pytest.raises(SqlError, match="33 statements; the limit is 32"):
        parse_action("; ".join(["SET a = 1"] * 33))


@pytest.mark.parametrize(
    "expression",
    [
        "REPLACE(" * 8 + "'aaaaaaaaaa'" + ", 'a', 'aaaaaaaaaa')" * 8,
        "STRINGJOIN(STRINGSPLIT(REPLICATE(',', 10000), ','), REPLICATE('x', 10000))",
        "CONCAT(" + ", ".join(["c.text"] * 200) + ")",
        "ARRAY_CONCAT(" + ", ".join(["c.list"] * 200) + ")",
    ],
)
def test_a_function_makes_no_value_larger_than_a_response(expression: str) -> None:
    with pytest.raises(BadRequest, match="at most 4194304"):
        value_of(expression, {"text": "x" * 100_000, "list": [0] * 100_000})


LONG = f"'{'x' * 10_000}'"


@pytest.mark.parametrize(
    ("select", "seed"),
    [
        ("VALUE [s, s]", LONG),
        ("s AS a, s AS b", LONG),
        ("VALUE ARRAY(SELECT VALUE s FROM t IN s)", f"[{LONG}, {LONG}]"),
    ],
    ids=["array", "object", "subquery"],
)
async def test_a_value_in_a_value_twice_is_not_doubled_without_end(select: str, seed: str) -> None:
    query = f"SELECT VALUE {seed} FROM c"
    for _ in range(40):
        query = f"SELECT {select} FROM ({query}) s"
    answer = await answer_to(query)

    assert (answer.status, "at most 4194304" in answer.text) == (400, True)


def test_numbers_of_a_query_become_doubles() -> None:
    assert value_of("SQUARE(" * 12 + "10" + ")" * 12) is UNDEFINED
    assert value_of(" * ".join(["9000000000000000000"] * 30)) is UNDEFINED
    assert value_of("9000000000000000000 * 9") == 8.1e19
    assert value_of("SQUARE(3000000000) = 9000000000000000000") is True


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        (
            "SELECT VALUE 1 FROM c " + " ".join(f"JOIN j{n} IN c.list" for n in range(11)),
            "11 JOINs; the limit is 10",
        ),
        ("SELECT VALUE 1 --" + "x" * 524_288, "524305 characters; the limit is 524288"),
        ("SELECT VALUE " + "9" * 5000, "Syntax error"),
    ],
)
async def test_a_query_beyond_a_limit_is_a_bad_request(query: str, limit: str) -> None:
    answer = await answer_to(query)

    assert answer.status == 400
    assert limit in answer.text


def test_an_integer_of_a_row_has_64_bits() -> None:
    endless = b"\x81" + (2145473648).to_bytes(4, "little") + b"\x07" + bytes(8) + b"\xff" * 2_000_000
    with pytest.raises(hybridrow.InvalidRow, match="more than 64 bits"):
        hybridrow.operations(record_of(endless))


def record_of(row: bytes) -> bytes:
    """A batch of one row."""
    header = struct.pack("<BiBi", 0x81, 2147473648, 1, 10)
    return header + struct.pack("<BiiI", 0x81, 2147473649, len(row), zlib.crc32(row)) + row
