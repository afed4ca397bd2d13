"""Tables on a terminal."""

from __future__ import annotations

import pytest

from relay.cli.columns import WIDEST, bounded, table


def test_columns_are_aligned_whatever_the_width_of_the_characters() -> None:
    assert table(("KEY", "ID"), [("鍵", "1"), ("cafe\u0301", "2"), ("a", "")]) == [
        "KEY   ID",
        "鍵    1",
        "cafe\u0301  2",
        "a",
    ]


def test_a_table_without_rows_has_no_header() -> None:
    assert table(("KEY",), []) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jkey", r"\x1b[2Jkey"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),
        ("\ud800\x9b", r"\ud800\x9b"),
        ("b5e2e7aa-4982-4735-9422-c39a7c4af5c2", "b5e2e7aa-4982-4735-9422-c39a7c4af5c2"),
        ("é 鍵", "é 鍵"),
        ("x" * 10_000_000, "x" * (WIDEST - 1) + "…"),
        ("鍵" * 30, "鍵" * 21 + "…"),
    ],
    ids=range(8),
)
def test_a_cell_is_narrow_and_has_nothing_that_a_terminal_obeys(text: str, shown: str) -> None:
    assert bounded(text) == shown
