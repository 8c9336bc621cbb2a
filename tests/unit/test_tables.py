"""Tables as people and programs read them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from rocm_wheels.core import tables

HEADER = ("wheel", "size", "why")
DIGEST = "7" * 64
ROWS = [
    ("torch-2.9.0-cp312-cp312-linux_x86_64.whl", "9", f"sha256 {DIGEST} is that of the lock"),
    ("triton", "12", ""),
]


def test_a_file_gets_whole_cells_and_a_line_a_row() -> None:
    head, torch, triton = tables.format_table(HEADER, ROWS, right=[1]).splitlines()
    assert (head.split(), torch.split()[0], torch.split()[3]) == (list(HEADER), ROWS[0][0], DIGEST)
    assert torch.index(" 9  ") + 1 == triton.index("12") + 1, "numbers end in one column"
    assert triton == triton.rstrip()


@pytest.mark.parametrize("width", [200, 128, 80, 40, 10])
def test_a_terminal_gets_no_broken_word(width: int) -> None:
    """What does not fit goes on in the next line, or is a block a row; names and digests stay whole."""
    lines = tables.format_table(HEADER, ROWS, width=width).splitlines()
    assert sorted(" ".join(lines).split()).count(DIGEST) == 1
    assert any(ROWS[0][0] in line.split() for line in lines)
    if width >= 80:
        assert max(map(len, lines)) <= width


def test_lines_may_be_cut_on_a_terminal() -> None:
    lines = tables.format_table(HEADER, ROWS, width=60, cut=True).splitlines()
    assert (len(lines), len(lines[1]), lines[1][-1]) == (3, 60, "…")


def test_rows_without_a_header_have_a_line_each() -> None:
    rows = [("torch", "", "two\nlines"), ("日本", "", "3")]
    assert tables.align_rows(rows) == ["torch  two lines", "日本   3"]  # each of the two takes two columns
    assert tables.align_rows([]) == []


@pytest.mark.parametrize(
    "text", ["a|b", "`a", "<img src=x>", "[a](http://b)", "**a**", "__init__", "a\r\nb", "a&lt;"]
)
def test_text_is_shown_in_markdown_as_it_is(text: str) -> None:
    """By the rules of CommonMark: a backslash before a mark is that mark."""
    escaped = tables.escape_markdown(text)
    assert re.sub(r"\\(\W|_)", r"\1", escaped) == " ".join(text.split())
    assert re.findall(r"(?<!\\)[|`<&*\[\]]", escaped) == [] and "\n" not in escaped
    assert tables.escape_markdown("a plain_word of 2.13: 3 passed") == "a plain_word of 2.13: 3 passed"


def test_no_fence_ends_a_block() -> None:
    assert tables.fence_markdown("a\n````\nb") == "`````\na\n````\nb\n`````\n"


def test_planning_does_not_wait_for_what_reads_wheels_and_gpus() -> None:
    """Each step of a run is a process of its own, which plans itself: what it imports, it imports often."""
    code = "import sys, rocm_wheels.pipeline.run; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names_of_targets = {"rocm_wheels.gpus", "rocm_wheels.gpus.gpu"}  # one module that imports nothing
    loaded = {
        name.split(".")[1]
        for name in set(done.stdout.split()) - names_of_targets
        if name.startswith("rocm_wheels.")
    }
    assert {"audit", "gpus", "package", "variants", "wheels"} & loaded == set()


def test_names_that_begin_so_are_nearer_than_names_alike() -> None:
    assert (
        tables.suggest_name("gfx11", ["gfx1201", "gfx1100", "gfx1151"])
        == "; did you mean gfx1100 or gfx1151?"
    )
    assert tables.suggest_name("bilud", ["build", "audit"]) == "; did you mean build?"
    assert tables.suggest_name("", ["build"]) == tables.suggest_name("qqq", ["build"]) == ""


def test_sizes() -> None:
    sizes = [0, 1023, 1024, 3_500_000, 3 << 30, 5 << 40, 5 << 50]
    words = "0 B, 1023 B, 1.0 KiB, 3.3 MiB, 3.0 GiB, 5.0 TiB, 5120.0 TiB"
    assert [tables.format_size(size) for size in sizes] == words.split(", ")
    assert tables.format_size(None) == "unknown size"
    assert tables.format_size(None, unknown="") == ""


def test_durations() -> None:
    seconds = [0, 0.44, 9.97, 59.4, 59.7, 125, 7200, 7380, 71 * 3600, 72 * 3600, 14.5 * 86400]
    words = "0 s, 0.4 s, 10 s, 59 s, 1 min, 2 min 5 s, 2 h, 2 h 3 min, 71 h, 3 d, 14 d 12 h"
    assert [tables.format_duration(each) for each in seconds] == words.split(", ")


def test_counts() -> None:
    counts = [tables.format_count(number, "wheel") for number in (0, 1, 2, 1234)]
    assert counts == ["0 wheels", "1 wheel", "2 wheels", "1,234 wheels"]
    assert tables.format_count(2, "line is", "lines are") == "2 lines are"
