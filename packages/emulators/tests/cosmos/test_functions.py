"""The built-in functions and operators, each by examples of what its page in Microsoft's reference says."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from outbox_relay.emulators.cosmos.errors import BadRequest
from outbox_relay.emulators.cosmos.query.evaluation import Scope, compile_expression
from outbox_relay.emulators.cosmos.query.functions import FUNCTIONS, REFUSED
from outbox_relay.emulators.cosmos.query.parsing import parse_query
from outbox_relay.emulators.cosmos.query.values import UNDEFINED

PAGE = Path(__file__).parents[2] / "docs" / "query-functions.md"
NOW = 1_700_000_000 * 10_000_000 + 1_234_567
"""2023-11-14T22:13:20.1234567Z"""
ITEM = {"id": "1", "_rid": "36ZyAPW+uN8NAAAAAAAAAA==", "none": None}


def evaluated(expression: str) -> Any:
    """The value of an expression about ITEM, at the moment NOW."""
    query = parse_query(f"SELECT VALUE {expression} FROM c")
    assert query.value is not None
    return compile_expression(query.value.expression, {})(Scope(ITEM, moment=NOW))


U = UNDEFINED
EXAMPLES: dict[str, list[tuple[str, Any]]] = {
    "ABS": [("ABS(-2.5)", 2.5), ("ABS('2')", U)],
    "ACOS": [("ACOS(-1)", math.pi), ("ACOS(2)", U)],
    "AGO": [("AGO('dd', 1)", "2023-11-13T22:13:20.1234567Z"), ("AGO('dd', 1.5)", U), ("AGO('week', 1)", U)],
    "ARRAY_AVG": [("ARRAY_AVG([1, 2, 6])", 3), ("ARRAY_AVG([1, 'a'])", U), ("ARRAY_AVG(1)", U)],
    "ARRAY_CONCAT": [("ARRAY_CONCAT([1], [], [2, [3]])", [1, 2, [3]]), ("ARRAY_CONCAT([1], 2)", U)],
    "ARRAY_CONTAINS": [
        ("ARRAY_CONTAINS(['a', 'b'], 'b')", True),
        ("ARRAY_CONTAINS([{'a': 1, 'b': 2}], {'a': 1})", False),
        ("ARRAY_CONTAINS([{'a': 1, 'b': 2}], {'a': 1}, true)", True),
    ],
    "ARRAY_CONTAINS_ALL": [
        ("ARRAY_CONTAINS_ALL([1, '2', [3]], [3], 1)", True),
        ("ARRAY_CONTAINS_ALL([1, 2], 1, 3)", False),
        ("ARRAY_CONTAINS_ALL([1, 2], 1, undefined)", U),
        ("ARRAY_CONTAINS_ALL([1, 2], 3, undefined)", False),
    ],
    "ARRAY_CONTAINS_ANY": [
        ("ARRAY_CONTAINS_ANY([1, 2], 5, 2)", True),
        ("ARRAY_CONTAINS_ANY([], 1)", False),
        ("ARRAY_CONTAINS_ANY([1], 1, undefined)", True),
        ("ARRAY_CONTAINS_ANY([1], 2, undefined)", U),
    ],
    "ARRAY_LENGTH": [("ARRAY_LENGTH([1, [2, 3]])", 2), ("ARRAY_LENGTH('ab')", U)],
    "ARRAY_MAX": [
        ("ARRAY_MAX([3, 'a', true, null, 9])", "a"),
        ("ARRAY_MAX([1, [2]])", U),
        ("ARRAY_MAX([2, 7])", 7),
    ],
    "ARRAY_MEDIAN": [
        ("ARRAY_MEDIAN([5, 1, 4, 2])", 3),
        ("ARRAY_MEDIAN([1, 9, 2])", 2),
        ("ARRAY_MEDIAN(['a'])", U),
    ],
    "ARRAY_MIN": [("ARRAY_MIN([3, 'a', false])", False), ("ARRAY_MIN([3, 1])", 1), ("ARRAY_MIN([])", U)],
    "ARRAY_SLICE": [
        ("ARRAY_SLICE([1, 2, 3, 4], 1, 2)", [2, 3]),
        ("ARRAY_SLICE([1, 2, 3, 4], -2)", [3, 4]),
        ("ARRAY_SLICE([1, 2, 3, 4], -2, 1)", [3]),
        ("ARRAY_SLICE([1, 2], 1, 9)", [2]),
        ("ARRAY_SLICE([1, 2], 0, -1)", []),
    ],
    "ARRAY_SUM": [("ARRAY_SUM([1, 2.5])", 3.5), ("ARRAY_SUM([1, null])", U)],
    "ASIN": [("ASIN(1)", math.pi / 2), ("ASIN(-2)", U)],
    "ATAN": [("ATAN(1)", math.pi / 4)],
    "ATN2": [("ATN2(1, -1)", 3 * math.pi / 4), ("ATN2(1, '1')", U)],
    "CEILING": [("CEILING(1.2)", 2), ("CEILING(-1.2)", -1)],
    "CHOOSE": [("CHOOSE(2, 'a', 'b')", "b"), ("CHOOSE(0, 'a')", U), ("CHOOSE(2, 'a')", U)],
    "CONCAT": [("CONCAT('a', 'b', 'c')", "abc"), ("CONCAT('a', 1)", U)],
    "CONTAINS": [
        ("CONTAINS('abc', 'BC')", False),
        ("CONTAINS('abc', 'BC', true)", True),
        ("CONTAINS('abc', 1)", U),
    ],
    "CONTAINS_ALL_CI": [
        ("CONTAINS_ALL_CI('Good day', 'DAY', 'good')", True),
        ("CONTAINS_ALL_CI('Good day', undefined, 'day')", U),
        ("CONTAINS_ALL_CI('Good day', undefined, 'night')", False),
    ],
    "CONTAINS_ALL_CS": [
        ("CONTAINS_ALL_CS('Good day', 'day', 'Good')", True),
        ("CONTAINS_ALL_CS('Good day', 'Day')", False),
    ],
    "CONTAINS_ANY_CI": [
        ("CONTAINS_ANY_CI('Good day', 'night', 'DAY')", True),
        ("CONTAINS_ANY_CI('Good day', undefined, 'night')", U),
    ],
    "CONTAINS_ANY_CS": [
        ("CONTAINS_ANY_CS('Good day', 'night', 'day')", True),
        ("CONTAINS_ANY_CS('Good day', 'DAY')", False),
    ],
    "COS": [("COS(0)", 1)],
    "COT": [("COT(0.5)", 1 / math.tan(0.5)), ("COT(0)", U)],
    "DATETIMEADD": [
        ("DATETIMEADD('mm', 1, '2024-01-31T10:00:00')", "2024-02-29T10:00:00.0000000Z"),
        ("DATETIMEADD('year', -1, '2024-02-29T00:00:00.5Z')", "2023-02-28T00:00:00.5000000Z"),
        ("DATETIMEADD('ss', -25, '2020-07-03')", "2020-07-02T23:59:35.0000000Z"),
        ("DATETIMEADD('ns', 200, '2020-07-03T00:00:00Z')", "2020-07-03T00:00:00.0000002Z"),
        ("DATETIMEADD('dd', 1.5, '2020-07-03')", U),
        ("DATETIMEADD('yyyy', 9000, '2020-07-03')", U),
        ("DATETIMEADD('dd', 1, '2020-02-30')", U),
    ],
    "DATETIMEBIN": [
        ("DATETIMEBIN('2021-01-08T18:35:12Z', 'hh')", "2021-01-08T18:00:00.0000000Z"),
        ("DATETIMEBIN('2021-01-08T18:35:12', 'mi', 10)", "2021-01-08T18:30:00.0000000Z"),
        ("DATETIMEBIN('2021-01-08', 'dd', 7, '2021-01-04')", "2021-01-04T00:00:00.0000000Z"),
        ("DATETIMEBIN('2021-01-08', 'dd', 7, '1600-01-04')", U),
        ("DATETIMEBIN('2021-01-08', 'dd', 0)", U),
        ("DATETIMEBIN('2021-01-08', 'mm')", U),
    ],
    "DATETIMEDIFF": [
        ("DATETIMEDIFF('yyyy', '2019-12-31T23:59:59', '2020-01-01')", 1),
        ("DATETIMEDIFF('mm', '2020-03-01', '2019-01-31')", -14),
        ("DATETIMEDIFF('hh', '2020-01-01T00:59:00', '2020-01-01T01:00:00')", 1),
        ("DATETIMEDIFF('hh', '2020-01-01T00:00:00', 'soon')", U),
    ],
    "DATETIMEFROMPARTS": [
        ("DATETIMEFROMPARTS(2017, 4, 20, 13, 15, 20, 3456789)", "2017-04-20T13:15:20.3456789Z"),
        ("DATETIMEFROMPARTS(2017, 4, 20)", "2017-04-20T00:00:00.0000000Z"),
        ("DATETIMEFROMPARTS(2017, 13, 20)", U),
        ("DATETIMEFROMPARTS(2017, 4.5, 20)", U),
    ],
    "DATETIMEPART": [
        ("DATETIMEPART('yyyy', '2016-05-29T08:30:00.1301617')", 2016),
        ("DATETIMEPART('mi', '2016-05-29T08:30:00.1301617')", 30),
        ("DATETIMEPART('ms', '2016-05-29T08:30:00.1301617')", 130),
        ("DATETIMEPART('mcs', '2016-05-29T08:30:00.1301617')", 130161),
        ("DATETIMEPART('ns', '2016-05-29T08:30:00.1301617')", 130161700),
        ("DATETIMEPART('wk', '2016-05-29')", U),
    ],
    "DATETIMETOTICKS": [("DATETIMETOTICKS('1970-01-01T00:00:01.5')", 15_000_000), ("DATETIMETOTICKS('x')", U)],
    "DATETIMETOTIMESTAMP": [("DATETIMETOTIMESTAMP('1970-01-01T00:00:01.5Z')", 1_500)],
    "DAY": [("DAY('2020-07-03')", 3), ("DAY(3)", U)],
    "DEGREES": [("DEGREES(PI())", 180)],
    "DOCUMENTID": [("DOCUMENTID(c)", 13), ("DOCUMENTID(c.none)", U)],
    "ENDSWITH": [("ENDSWITH('abc', 'BC')", False), ("ENDSWITH('abc', 'BC', true)", True)],
    "EXP": [("EXP(1)", math.e), ("EXP(10000)", U)],
    "FLOOR": [("FLOOR(1.8)", 1), ("FLOOR(-1.2)", -2)],
    "GETCURRENTDATETIME": [("GETCURRENTDATETIME()", "2023-11-14T22:13:20.1234567Z")],
    "GETCURRENTDATETIMESTATIC": [("GETCURRENTDATETIMESTATIC()", "2023-11-14T22:13:20.1234567Z")],
    "GETCURRENTTICKS": [("GETCURRENTTICKS()", NOW)],
    "GETCURRENTTICKSSTATIC": [("GETCURRENTTICKSSTATIC()", NOW)],
    "GETCURRENTTIMESTAMP": [("GETCURRENTTIMESTAMP()", 1_700_000_000_123)],
    "GETCURRENTTIMESTAMPSTATIC": [("GETCURRENTTIMESTAMPSTATIC()", 1_700_000_000_123)],
    "IIF": [("IIF(1 < 2, 'a', 'b')", "a"), ("IIF(1, 'a', 'b')", "b"), ("IIF(undefined, 'a', 'b')", "b")],
    "INDEX_OF": [("INDEX_OF('abcabc', 'c')", 2), ("INDEX_OF('abcabc', 'c', 3)", 5), ("INDEX_OF('abc', 'x')", -1)],
    "INTADD": [("INTADD(2, 3)", 5), ("INTADD(9223372036854775807, 1)", -(2**63)), ("INTADD(2, 0.5)", U)],
    "INTBITAND": [("INTBITAND(12, 10)", 8)],
    "INTBITLEFTSHIFT": [("INTBITLEFTSHIFT(16, 4)", 256), ("INTBITLEFTSHIFT(16, 0.4)", U)],
    "INTBITNOT": [("INTBITNOT(5)", -6)],
    "INTBITOR": [("INTBITOR(12, 10)", 14)],
    "INTBITRIGHTSHIFT": [("INTBITRIGHTSHIFT(-16, 2)", -4)],
    "INTBITXOR": [("INTBITXOR(12, 10)", 6)],
    "INTDIV": [("INTDIV(-7, 2)", -3), ("INTDIV(7, 0)", U), ("INTDIV(7, 0.5)", U)],
    "INTMOD": [("INTMOD(-12, 5)", -2), ("INTMOD(12, -5)", 2), ("INTMOD(12, 0)", U)],
    "INTMUL": [("INTMUL(-5, 2)", -10)],
    "INTSUB": [("INTSUB(2, 5)", -3)],
    "IS_ARRAY": [("IS_ARRAY([])", True), ("IS_ARRAY({})", False)],
    "IS_BOOL": [("IS_BOOL(false)", True), ("IS_BOOL(0)", False)],
    "IS_BOOLEAN": [("IS_BOOLEAN(false)", True), ("IS_BOOLEAN(0)", False)],
    "IS_DATETIME": [
        ("IS_DATETIME('2023-03-06')", True),
        ("IS_DATETIME('2023-03-06Z')", True),
        ("IS_DATETIME('2023-03-06 15:29:00Z')", True),
        ("IS_DATETIME('2023-03-06T15:29:59.1234567Z')", True),
        ("IS_DATETIME('2023-03-06T15:29:59.12345678Z')", False),
        ("IS_DATETIME('2023-03-06_15:29:00')", False),
        ("IS_DATETIME('2023-02-29')", False),
        ("IS_DATETIME(20230306)", False),
    ],
    "IS_DEFINED": [("IS_DEFINED(c.none)", True), ("IS_DEFINED(c.nowhere)", False)],
    "IS_FINITE_NUMBER": [("IS_FINITE_NUMBER(1.5)", True), ("IS_FINITE_NUMBER(1 / 0)", False)],
    "IS_INTEGER": [
        ("IS_INTEGER(5)", True),
        ("IS_INTEGER(5.0)", True),
        ("IS_INTEGER(5.5)", False),
        ("IS_INTEGER(18446744073709551615)", False),
        ("IS_INTEGER('5')", False),
    ],
    "IS_NULL": [("IS_NULL(c.none)", True), ("IS_NULL(c.nowhere)", False)],
    "IS_NUMBER": [("IS_NUMBER(1)", True), ("IS_NUMBER('1')", False)],
    "IS_OBJECT": [("IS_OBJECT({})", True), ("IS_OBJECT([])", False)],
    "IS_PRIMITIVE": [("IS_PRIMITIVE(null)", True), ("IS_PRIMITIVE([])", False)],
    "IS_STRING": [("IS_STRING('')", True), ("IS_STRING(1)", False)],
    "LASTINDEXOF": [
        ("LASTINDEXOF('abcabc', 'b')", 4),
        ("LASTINDEXOF('abcabc', 'b', 3)", 1),
        ("LASTINDEXOF('abc', 'x')", -1),
    ],
    "LEFT": [("LEFT('abc', 2)", "ab"), ("LEFT('abc', 9)", "abc"), ("LEFT('abc', 0)", ""), ("LEFT(1, 1)", U)],
    "LENGTH": [("LENGTH('abc')", 3), ("LENGTH([1])", U)],
    "LOG": [("LOG(8, 2)", 3), ("LOG(EXP(1))", 1), ("LOG(0)", U)],
    "LOG10": [("LOG10(1000)", 3), ("LOG10(-1)", U)],
    "LOWER": [("LOWER('AbC')", "abc")],
    "LTRIM": [("LTRIM('  a ')", "a "), ("LTRIM('--a-', '-')", "a-"), ("LTRIM('a', '')", "a")],
    "MONTH": [("MONTH('2020-07-03T01:02:03Z')", 7)],
    "NOW": [("NOW()", "2023-11-14T22:13:20.1234567Z")],
    "NUMBERBIN": [("NUMBERBIN(37.752, 10)", 30), ("NUMBERBIN(37.752)", 37), ("NUMBERBIN(37.752, 0)", U)],
    "OBJECTTOARRAY": [
        ("OBJECTTOARRAY({'a': 1})", [{"k": "a", "v": 1}]),
        ("OBJECTTOARRAY({'a': 1}, 'name')", [{"name": "a", "v": 1}]),
        ("OBJECTTOARRAY({'a': 1}, 'key', 'value')", [{"key": "a", "value": 1}]),
        ("OBJECTTOARRAY([1])", U),
    ],
    "PI": [("PI()", math.pi)],
    "POWER": [("POWER(2, 10)", 1024), ("POWER(-8, 0.5)", U)],
    "RADIANS": [("RADIANS(180)", math.pi)],
    "RAND": [("RAND() >= 0 AND RAND() < 1", True)],
    "REGEXMATCH": [
        ("REGEXMATCH('abcd', 'B')", False),
        ("REGEXMATCH('abcd', 'B.', 'i')", True),
        ("REGEXMATCH('abcd', 'b c', 'x')", True),
        ("REGEXMATCH('a\\nb', '^b', 'm')", True),
        ("REGEXMATCH('a\\nb', 'a.b', '')", False),
        ("REGEXMATCH('a\\nb', 'a.b', 's')", True),
        ("REGEXMATCH('abcd', '(')", U),
        ("REGEXMATCH('abcd', 'a', 'q')", U),
    ],
    "REPLACE": [("REPLACE('aba', 'a', 'c')", "cbc")],
    "REPLICATE": [("REPLICATE('ab', 2)", "abab"), ("REPLICATE('ab', -1)", U), ("REPLICATE('ab', 5001)", U)],
    "REVERSE": [("REVERSE('abc')", "cba")],
    "RIGHT": [("RIGHT('abc', 2)", "bc"), ("RIGHT('abc', 9)", "abc"), ("RIGHT('abc', 0)", "")],
    "ROUND": [("ROUND(2.5)", 3), ("ROUND(-6.5)", -7), ("ROUND(2.4)", 2)],
    "RTRIM": [("RTRIM(' a  ')", " a"), ("RTRIM('a--', '-')", "a")],
    "SETDIFFERENCE": [("SETDIFFERENCE([1, 1, 2, 'a'], ['a', 3])", [1, 2]), ("SETDIFFERENCE([1], 1)", U)],
    "SETEQUAL": [("SETEQUAL([1, 2, 2], [2, 1])", True), ("SETEQUAL([1], [1, 2])", False)],
    "SETINTERSECT": [("SETINTERSECT([1, 2, 2, 'a'], ['a', 2])", [2, "a"])],
    "SETUNION": [("SETUNION([1, 2, 1], [3, 2])", [1, 2, 3]), ("SETUNION([], [1, 1])", [1])],
    "SIGN": [("SIGN(-2)", -1), ("SIGN(0)", 0), ("SIGN(0.5)", 1)],
    "SIN": [("SIN(PI() / 2)", 1)],
    "SQRT": [("SQRT(9)", 3), ("SQRT(-1)", U)],
    "SQUARE": [("SQUARE(-3)", 9)],
    "STARTSWITH": [("STARTSWITH('abc', 'AB')", False), ("STARTSWITH('abc', 'AB', true)", True)],
    "STRINGEQUALS": [("STRINGEQUALS('abc', 'ABC')", False), ("STRINGEQUALS('abc', 'ABC', true)", True)],
    "STRINGJOIN": [("STRINGJOIN(['a', 'b'], '-')", "a-b"), ("STRINGJOIN(['a', 1], '-')", U)],
    "STRINGSPLIT": [("STRINGSPLIT('a_b', '_')", ["a", "b"]), ("STRINGSPLIT('ab', '')", ["ab"])],
    "STRINGTOARRAY": [("STRINGTOARRAY('[1, {\"a\": null}]')", [1, {"a": None}]), ("STRINGTOARRAY('{}')", U)],
    "STRINGTOBOOLEAN": [("STRINGTOBOOLEAN('  true ')", True), ("STRINGTOBOOLEAN('True')", U)],
    "STRINGTONULL": [("STRINGTONULL(' null ')", None), ("STRINGTONULL('nil')", U)],
    "STRINGTONUMBER": [
        ("STRINGTONUMBER('  60 ')", 60),
        ("STRINGTONUMBER('-1.5e3')", -1500),
        ("STRINGTONUMBER('six')", U),
        ("STRINGTONUMBER(6)", U),
    ],
    "STRINGTOOBJECT": [("STRINGTOOBJECT('{\"a\": [1]}')", {"a": [1]}), ("STRINGTOOBJECT(\"{'a': 1}\")", U)],
    "SUBSTRING": [("SUBSTRING('abcdef', 2, 3)", "cde"), ("SUBSTRING('abc', 0, -1)", "")],
    "TAN": [("TAN(PI() / 4)", 1)],
    "TICKSTODATETIME": [("TICKSTODATETIME(-1)", "1969-12-31T23:59:59.9999999Z"), ("TICKSTODATETIME('0')", U)],
    "TIMESTAMPTODATETIME": [("TIMESTAMPTODATETIME(1500)", "1970-01-01T00:00:01.5000000Z")],
    "TOSTRING": [
        ("TOSTRING(1.5)", "1.5"),
        ("TOSTRING(5.0)", "5"),
        ("TOSTRING([0.0, {'a': 5.0}])", '[0,{"a":5}]'),
        ("TOSTRING('a')", "a"),
        ("TOSTRING([1, {'a': true}])", '[1,{"a":true}]'),
        ("TOSTRING(null)", "null"),
        ("TOSTRING(undefined)", U),
    ],
    "TRIM": [("TRIM(' a ')", "a"), ("TRIM('-_a_-', '-_')", "a"), ("TRIM('- a -', '-')", " a ")],
    "TRUNC": [("TRUNC(2.7)", 2), ("TRUNC(-2.7)", -2)],
    "UPPER": [("UPPER('aBc')", "ABC")],
    "YEAR": [("YEAR('2020-07-03')", 2020), ("YEAR('20')", U)],
}
OPERATORS: dict[str, list[tuple[str, Any]]] = {
    "&": [("100 & 1000", 96), ("7 & '1'", U), ("(5 & 1) = 1", True), ("5 & 1 = 1", U)],
    "|": [("100 | 1000", 1004), ("1 | 2 & 2", 3)],
    "^": [("100 ^ 1000", 908)],
    "~": [("~5", -6), ("~'5'", U)],
    "<<": [("100 << 2", 400), ("1 << 31", -(2**31)), ("1 << 33", 2)],
    ">>": [("100 >> 2", 25), ("-8 >> 1", -4)],
    ">>>": [("100 >>> 0", 100), ("-1 >>> 28", 15)],
    "+": [("1 + 2 * 3", 7), ("'a' + 'b'", U)],
    "-": [("5 - 7", -2), ("-(2)", -2)],
    "*": [("2 * 2.5", 5)],
    "/": [("7 / 2", 3.5), ("1 / 0", U)],
    "%": [("-7 % 3", -1), ("7 % 0", U)],
    "||": [("'a' || 'b'", "ab"), ("'a' || 1", U)],
    "=": [("1 = 1.0", True), ("1 = '1'", U), ("{'a': [1]} = {'a': [1]}", True)],
    "!=": [("1 != 2", True), ("1 <> 1", False)],
    "<": [("1 < 2", True), ("'a' < 1", U)],
    "<=": [("2 <= 2", True)],
    ">": [("'b' > 'a'", True)],
    ">=": [("1 >= 2", False)],
    "AND": [("true AND undefined", U), ("false AND undefined", False)],
    "OR": [("true OR undefined", True), ("false OR undefined", U)],
    "NOT": [("NOT false", True), ("NOT 1", U)],
    "??": [("c.nowhere ?? 'b'", "b"), ("c.none ?? 'b'", None)],
    "?": [("1 < 2 ? 'a' : 'b'", "a"), ("1 ? 'a' : 'b'", "b")],
    "IN": [("2 IN (1, 2)", True), ("3 NOT IN (1, 2)", True)],
    "BETWEEN": [("2 BETWEEN 1 AND 3", True), ("2 NOT BETWEEN 1 AND 3", False)],
    "LIKE": [("'abc' LIKE 'a%'", True), ("'a%c' LIKE 'a!%_' ESCAPE '!'", True)],
}


def equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, int | float):
        return math.isclose(found, expected)
    if isinstance(expected, int) and not isinstance(expected, bool) and isinstance(found, float):
        return math.isclose(found, expected)
    return type(found) is type(expected) and bool(found == expected)


@pytest.mark.parametrize("name", [*EXAMPLES, *OPERATORS])
def test_a_function_or_operator_does_what_its_page_says(name: str) -> None:
    found = [
        (expression, evaluated(expression), expected) for expression, expected in (EXAMPLES | OPERATORS)[name]
    ]

    assert [each for each in found if not equal(*each[1:])] == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_function_that_is_not_served_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(BadRequest, match=rf"'{name}' \({REFUSED[name]}\) is not supported"):
        evaluated(f"{name}(c)")


def test_a_name_that_is_no_function_is_another_error() -> None:
    with pytest.raises(BadRequest, match="'NOSUCH' is not a recognized built-in function name"):
        evaluated("NOSUCH(c)")


def test_the_page_lists_what_the_code_has_and_every_entry_has_an_example() -> None:
    sections = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    named = {section.split("\n")[0]: set(re.findall(r"`([^`]+)`", section)) for section in sections}
    assert {name.upper() for name in named["Functions"]} == set(FUNCTIONS) == set(EXAMPLES)
    assert named["Operators"] == set(OPERATORS)
    assert {name.upper() for name in named["Refused"]} == set(REFUSED)
