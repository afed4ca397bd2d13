"""The output of a command."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.text import Text

from outbox_relay.command_line import WIDEST, Table, console
from outbox_relay.operator.cli import check
from outbox_relay.operator.cli.terminal import ExitCode, Progress, Result, Terminal
from relay.backends.findings import Finding
from relay.core.errors import UsageError
from tests.support.operators import Keyboard


class Stream(io.TextIOWrapper):
    """A stream with a buffer: `seen` is what has left it."""

    def __init__(self, *, terminal: bool = False) -> None:
        self._seen = io.BytesIO()
        super().__init__(self._seen, encoding="utf-8", newline="")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    @property
    def seen(self) -> str:
        return self._seen.getvalue().decode()


class Clock:
    def __init__(self) -> None:
        self.now_s = time.monotonic()

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("outbox_relay.operator.cli.terminal.time", clock)
    return clock


def visible(text: str) -> list[str]:
    """Return the last state of each line that a terminal shows of a text."""
    lines = [""]
    for part in re.split(r"(\n|\r|\x1b\[\d*A|\x1b\[2K)", re.sub(r"\x1b\[(\?25[lh]|[\d;]*m)", "", text)):
        if part == "\n":
            lines.append("")
        elif part.endswith("A"):
            lines.pop()
        elif part == "\x1b[2K":
            lines[-1] = ""
        elif part != "\r":
            lines[-1] += part
    return [line for line in lines if line]


@pytest.mark.parametrize("force_color", ["", "1"])
def test_a_file_gets_a_line_now_and_then(force_color: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", force_color)
    stream = Stream()
    progress = Progress("released", 7, console(stream))
    shown = []
    for number, step_s in enumerate((5, 10, 5, 10), start=1):
        clock.now_s += step_s
        before = stream.seen
        progress.update(number)
        shown.append(stream.seen != before)

    assert shown == [False, True, False, True]
    progress.finish(5)
    assert stream.seen == "released: 2 of 7\nreleased: 4 of 7\nreleased: 5 of 7\n"


def test_a_terminal_has_one_line_with_the_last_count() -> None:
    stream = Stream(terminal=True)
    progress = Progress("read", None, console(stream))

    progress.update(1000)
    progress.update(9)
    progress.finish(10)

    [line] = visible(stream.seen)
    assert re.fullmatch(r"read \S+ 10", line)


def test_a_line_of_the_log_is_above_the_count_and_never_in_it() -> None:
    err = Stream(terminal=True)
    terminal = Terminal(as_json=False, out=Stream(), err=err)
    logger = logging.Logger("azure.servicebus")
    logger.addHandler(terminal.log_handler())

    logger.warning("before")
    progress = terminal.progress("events done", 9)
    progress.update(3)
    logger.warning("link detached %s", "twice")
    progress.finish(9)
    logger.warning("after")

    before, during, count, after = visible(err.seen)
    assert (before, during, after) == ("before", "link detached twice", "after")
    assert re.fullmatch(r"events done \S+ 9/9", count)


def test_a_log_that_cannot_be_written_stops_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    err = Stream()
    handler = Terminal(as_json=False, out=Stream(), err=err).log_handler()
    err.close()

    handler.handle(logging.makeLogRecord({"msg": "link detached"}))

    assert "--- Logging error ---" in capsys.readouterr().err


def test_a_remark_behind_a_count_that_was_not_finished_is_on_a_line_of_its_own() -> None:
    err = Stream(terminal=True)
    terminal = Terminal(as_json=False, out=Stream(), err=err)
    for _ in range(2):
        terminal.progress("read", None).update(3)
        terminal.note("error: Service Bus cannot be reached")

    assert [line.split()[0] for line in visible(err.seen)] == ["read", "error:"] * 2


def test_another_count_and_a_result_are_on_lines_of_their_own() -> None:
    err = Stream(terminal=True)
    terminal = Terminal(as_json=False, out=err, err=err)
    for what in ("read", "sent"):
        terminal.progress(what, None).update(3)
    terminal.show("check", Result(ExitCode.OK, {}, ["done"]))

    assert [line.split()[0] for line in visible(err.seen)] == ["read", "sent", "done"]


def test_a_result_for_scripts_is_one_object_on_standard_output() -> None:
    out, err = Stream(), Stream()

    Terminal(as_json=True, out=out, err=err).show("check", Result(ExitCode.FINDINGS, {"a": "é"}, ["a line"]))

    assert out.seen == '{\n  "command": "check",\n  "exitCode": 1,\n  "a": "é"\n}\n'
    assert err.seen == ""


def test_a_result_for_people_is_its_lines() -> None:
    out = Stream()

    Terminal(as_json=False, out=out, err=Stream()).show("check", Result(ExitCode.OK, {}, ["one", "two"]))

    assert out.seen == "one\ntwo\n"


def test_remarks_and_progress_go_to_standard_error() -> None:
    out, err = Stream(), Stream()
    terminal = Terminal(as_json=True, out=out, err=err)

    terminal.note("Interrupted.")
    assert err.seen == "Interrupted.\n"
    terminal.progress("released", 2).finish(2)

    assert (out.seen, err.seen) == ("", "Interrupted.\nreleased: 2 of 2\n")


def test_the_streams_are_those_of_the_process_unless_others_are_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Keyboard("yes\n"))
    terminal = Terminal(as_json=True)

    sure = terminal.confirm("Sure?")
    terminal.show("check", Result(ExitCode.OK, {}))

    printed = capsys.readouterr()
    assert (sure, json.loads(printed.out)["exitCode"]) == (True, 0)
    assert printed.err == "Sure? Type yes to continue: "


def test_only_at_a_terminal_somebody_can_be_asked() -> None:
    def terminal(stdin: io.StringIO) -> Terminal:
        return Terminal(as_json=False, stdin=stdin)

    terminal(Keyboard()).require_answers()
    with pytest.raises(UsageError, match="standard input is no terminal: add --yes"):
        terminal(io.StringIO()).require_answers()


def test_a_question_is_on_the_terminal_before_the_answer_is_read() -> None:
    err = Stream(terminal=True)

    class Somebody(Keyboard):
        def readline(self, *_: object) -> str:  # type: ignore[override]
            return "yes\n" if err.seen else "no\n"

    assert Terminal(as_json=False, err=err, stdin=Somebody()).confirm("Sure?")


@pytest.mark.parametrize(
    ("typed", "sure"),
    [("yes\n", True), ("YES", True), *((typed, False) for typed in ("", "\n", "y\n", "no\n", "yes please\n"))],
)
def test_only_a_whole_yes_is_a_yes(typed: str, sure: bool) -> None:
    assert Terminal(as_json=False, err=Keyboard(), stdin=Keyboard(typed)).confirm("Sure?") is sure


def test_columns_are_aligned_whatever_the_width_of_the_characters() -> None:
    assert Table(("KEY", "ID"), [("鍵", "1"), ("cafe\u0301", "2"), ("a", "")]).lines() == [
        "KEY   ID",
        "鍵    1",
        "cafe\u0301  2",
        "a",
    ]


def test_a_table_without_rows_has_no_header() -> None:
    assert Table(("KEY",), []).lines() == []


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
        ("鍵" * 30, "鍵" * 21 + " …"),
        ("x" * WIDEST, "x" * WIDEST),
    ],
    ids=range(9),
)
def test_a_cell_is_narrow_and_has_nothing_that_a_terminal_obeys(text: str, shown: str) -> None:
    assert Table(["A"], [[text]]).lines() == ["A", shown]


class _Unread(list[list[str]]):
    """Rows that nobody may read."""

    def __iter__(self) -> Iterator[list[str]]:
        raise AssertionError("the table is laid out")


def test_json_lays_out_no_table() -> None:
    result = Result(ExitCode.OK, {"total": 1}, [Table(["KEY"], _Unread([["k"]]))])

    Terminal(as_json=True, out=(out := io.StringIO())).show("list", result)

    assert json.loads(out.getvalue())["total"] == 1


def test_a_text_in_brackets_is_no_markup() -> None:
    out = Stream(terminal=True)
    text = "[red]k[/red] [link=https://x]:smile:"

    Terminal(as_json=False, out=out).show(
        "check", Result(ExitCode.OK, {}, [text, Text(text), Table(["KEY"], [[text]])])
    )

    assert out.seen.split("\n") == [text, text, "KEY", text, ""]


TEXTS = st.text(
    st.one_of(st.characters(), st.sampled_from("\x00\x07\x1b\x7f\x85\x9b\u2028\u202e\u2066\ud800\r\t"))
)


@given(TEXTS)
@example("\x1b]0;owned\x07\x9b2J\u202e\ud83d \x00\n")
def test_no_text_of_others_is_obeyed_by_a_terminal(text: str) -> None:
    out, err, keyboard = io.StringIO(), io.StringIO(), Keyboard("yes\n")
    terminal = Terminal(as_json=False, out=out, err=err, stdin=keyboard)
    as_json = Terminal(as_json=True, out=(json_out := io.StringIO()), err=err, stdin=keyboard)

    terminal.show("x", Result(ExitCode.OK, {}, [text, Table(["KEY"], [[text]])]))
    terminal.show("check", check.result(ExitCode.OK, [Finding.error(text, text), Finding.ok(text)]))
    terminal.note(text)
    terminal.confirm(text)
    terminal.log_handler().emit(logging.LogRecord("n", logging.ERROR, "", 0, "%s", (text,), None))
    as_json.show("x", Result(ExitCode.OK, {text: [text]}))

    for stream in (out, err, json_out):
        assert stream.getvalue().replace("\n", "").isprintable()
    assert json.loads(json_out.getvalue())[text] == [text]


@given(TEXTS)
def test_a_style_is_the_only_sequence_of_a_coloured_line(text: str) -> None:
    terminal = Terminal(as_json=False, out=(out := Stream(terminal=True)))

    terminal.show("check", check.result(ExitCode.OK, [Finding.error(text, text)]))

    [red, plain, *rest] = re.split(r"\x1b\[(?:1;31|0)m", out.seen)[1:]
    assert red == "error   "
    assert rest == []
    assert plain.replace("\n", "").isprintable()
