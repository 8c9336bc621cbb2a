"""What people see of steps that run side by side."""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
from pathlib import Path

import pytest

from rocm_wheels.core import errors, log, process, progress, tables
from rocm_wheels.pipeline import status


@pytest.fixture
def printed() -> io.StringIO:
    stream = io.StringIO()
    log.configure_log({"GITHUB_ACTIONS": "true"}, stream=stream)
    return stream


def test_groups_on_github_never_nest_and_lose_no_line(printed: io.StringIO) -> None:
    """Three steps at a time: the second ends within the first, the third outlives both."""
    screen = status.StepDisplay()
    for step in ("one", "two", "three"):
        screen.begin_step(step, "no earlier result", Path("x.log"))
    for number in range(2):
        for step in ("one", "two", "three"):
            screen.show_line(step, f"{step} says {number}")
    screen.end_step("two", "failed after", "red")
    screen.show_line("one", "one says 2")
    screen.end_step("one", "done in", "green")
    screen.show_line("three", "three says 2")
    screen.end_step("three", "done in", "green")
    screen.close()
    log.configure_log({})
    lines = [re.sub(r" 0(\.\d)? s$", "", line) for line in printed.getvalue().splitlines()]
    begin = "::group::{}: starting (no earlier result)"
    assert lines == [
        *(begin.format("one"), "one says 0", "one says 1", "one says 2", "::endgroup::", "one: done in"),
        *(begin.format("two"), "two says 0", "two says 1", "::endgroup::", "two: failed after"),
        *(begin.format("three"), "three says 0", "three says 1", "three says 2", "::endgroup::"),
        "three: done in",
    ]


def test_the_last_line_of_a_log_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "step.log"
    assert status.read_last_log_line(path) == ""
    path.write_bytes(b"x" * 10_000 + b"\n[1/2] one\n[2/2] two\n\n  \n")
    assert status.read_last_log_line(path) == "[2/2] two"
    path.write_bytes(b"\xff half")
    assert status.read_last_log_line(path) == "\N{REPLACEMENT CHARACTER} half"


def test_side_by_side_an_empty_line_says_nothing() -> None:
    stream = io.StringIO()
    log.configure_log({}, stream=stream)
    screen = status.StepDisplay()
    screen.begin_step("one", "no earlier result", Path("x.log"))
    for text in ("", "  ", "flash attention: on"):
        screen.show_line("one", text)
    screen.close()
    log.configure_log({})
    assert stream.getvalue() == "one: starting (no earlier result)\n[one] flash attention: on\n"


def _read_terminal(master: int, pieces: list[bytes]) -> None:
    with contextlib.suppress(OSError), os.fdopen(master, "rb", buffering=0) as terminal:  # EIO: it was closed
        while piece := terminal.read(1 << 12):
            pieces.append(piece)


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_a_terminal_shows_every_step_below_the_lines_of_the_log() -> None:
    """Lines of the log are never broken, for commands are pasted; what is drawn is gone in the end."""
    master, slave = os.openpty()
    pieces: list[bytes] = []
    reader = threading.Thread(target=_read_terminal, args=(master, pieces))
    reader.start()
    command = "$ hipcc " + " ".join(f"-DNUMBER_{number}={number}" for number in range(40))
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        log.configure_log({"TERM": "xterm"}, stream=stream)
        try:
            progress.show_live_lines(["torch  3 s  [12/345] Building", "triton  3 s"])
            log.log_note(command)
            progress.show_live_lines([])
            log.log_note("after it")
        finally:
            log.configure_log({})
    reader.join()
    printed_text = b"".join(pieces).decode()
    assert command in printed_text
    assert "torch  3 s  [12/345] Building" in printed_text and "triton  3 s" in printed_text
    assert printed_text.endswith("after it\r\n")
    assert printed_text.rindex("\x1b[?25h") > printed_text.rindex("triton"), "the cursor is shown again"


@pytest.mark.parametrize(
    ("env", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_where_they_are_wanted(env: dict[str, str], coloured: bool) -> None:
    stream = io.StringIO()
    log.configure_log(env, stream=stream)
    log.log_warning("the disk is small")
    table = tables.format_table(("name", "size"), [("torch", "3")])
    log.configure_log({})
    assert ("\x1b[" in stream.getvalue(), "\x1b[" in table) == (coloured, coloured)


TITLE = "\x1b]0;evil\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc é 中", "a\tb\nc é 中"),
        (TITLE, "\\x1b]0;evil\\x07"),
        ("\x1b[2J\x1b[8mhidden", "\\x1b[2J\\x1b[8mhidden"),
        ("\x9b2J\x85", "\\x9b2J\\x85"),
        ("passed\rfailed", "passed\\rfailed"),
        ("a\u202eb\u2066", "a\\u202eb\\u2066"),
        ("\x00\x7f\b", "\\x00\\x7f\\x08"),
        ("\x1b[31mred\x1b[0m\x1b[1;32mok\x1b[0m", "\x1b[31mred\x1b[0m\x1b[1;32mok\x1b[0m"),
        ("\x1b[31;8mx", "\\x1b[31;8mx"),
    ],
)
def test_nothing_but_our_colours_reaches_a_terminal(text: str, shown: str) -> None:
    assert log.make_printable(text) == shown
    stream = io.StringIO()
    log.configure_log({"FORCE_COLOR": "1"}, stream=stream)
    log.log_note(text)
    log.log_warning(log.paint_text(text, "red"))
    log.configure_log({})
    escapes = re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f][^m]*m?", stream.getvalue())
    assert all(re.fullmatch(r"\x1b\[(0|1|3[1-4])(;\d+)?m", escape) for escape in escapes)


def test_what_a_program_prints_is_shown_as_text() -> None:
    stream = io.StringIO()
    log.configure_log({}, stream=stream)
    with pytest.raises(errors.BuildError):
        process.run_command(
            ["sh", "-c", "printf '\\033]0;evil\\007\\n'; exit 3"], env={"PATH": "/bin"}, on_line=log.log_note
        )
    log.configure_log({})
    assert stream.getvalue() == "\\x1b]0;evil\\x07\n"
