"""Files of what commands say, one a command group, and what all failures have in common.

An entry begins with ``$ `` and a command line, or ``# `` and a title or a test; below is what was printed,
stdout before stderr, and the exit code where it is not 0. ``ROCM_WHEELS_WRITE_MESSAGES=1`` has entries
written anew.
"""

from __future__ import annotations

import difflib
import os
import platform
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rocm_wheels.core import errors

CLONE = Path(__file__).resolve().parents[2]
FOLDER = CLONE / "tests" / "data" / "messages"
WRITES = bool(os.environ.get("ROCM_WHEELS_WRITE_MESSAGES"))

OTHERWISE_EACH_TIME = {
    r"((?:^Usage: |^Try '))(?:python -m pytest|pytest|-c)(?= )": r"\1PROGRAM",  # a command that tests call
    r"(\d{8}T\d{6}Z)-[0-9a-f]{12}": r"\1-ID",  # of evidence, which names this machine
    r"(\$BASE/\w+?)\d+\b": r"\1N",  # folders that fixtures share
    r"(?<=char )\d+|(?<=column )\d{3,}|(?<=table at )\d+|(?<=\()\d{3,}(?= bytes\))": "N",  # places in files
}


def read_entries(group: str) -> dict[str, str]:
    """Return the texts of a group's file by what they begin with."""
    entries: dict[str, str] = {}
    file = FOLDER / f"{group}.txt"
    for part in re.split(
        r"^(?=[$#] )", file.read_text(encoding="utf-8") if file.exists() else "", flags=re.M
    ):
        if part:
            title, _, text = part.partition("\n")
            assert title not in entries, f"{file} has two entries {title}"
            entries[title] = text.strip("\n")
    return entries


def write_entries(group: str, entries: Mapping[str, str]) -> None:
    text = "\n".join(f"{title}\n{text}\n" if text else f"{title}\n" for title, text in entries.items())
    (FOLDER / f"{group}.txt").write_text(text, encoding="utf-8")


def require_entries(group: str, printed: Mapping[str, str]) -> None:
    """Require that a group's file has these texts, or write them."""
    entries = read_entries(group)
    if WRITES:
        write_entries(group, entries | printed)
        return
    known = {title: entries.get(title, "") for title in printed}
    changes = difflib.unified_diff(
        _list_lines(known), _list_lines(printed), f"{group}.txt", "now", lineterm=""
    )
    assert known == printed, "\n".join(changes)


_taken: list[tuple[Sequence[object], int, str]] = []  # in the test that runs


def take_down(words: Sequence[object], code: int, printed: str) -> None:
    """Have a command and what it printed be in the transcript of this test."""
    _taken.append((words, code, printed))


@contextmanager
def refused(kind: type[errors.RocmWheelsError] | tuple[type[errors.RocmWheelsError], ...]) -> Iterator[Any]:
    """Require that what is done raises an error of this kind, and take down what a user would read."""
    with pytest.raises(kind) as caught:
        yield caught
    take_down([type(caught.value).__name__], caught.value.exit_code, errors.explain_error(caught.value))


@pytest.fixture(autouse=True)
def transcript(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Compare what a test took down with the entry of its name, in the file of its module's MESSAGES."""
    _taken.clear()
    yield
    places = {"TMP": str(tmp_path), "BASE": str(tmp_path_factory.getbasetemp()), "HOST": platform.node()}
    lines: list[str] = []
    for words, code, printed in _taken:
        text = generalize(printed, code, places)
        lines += [f"> {generalize(shlex.join(map(str, words)), 0, places)}", *text.splitlines()]
    if lines:
        require_entries(request.module.MESSAGES, {f"# {request.node.name}": "\n".join(lines)})


def _list_lines(entries: Mapping[str, str]) -> list[str]:
    return [line for title, text in entries.items() for line in (title, *text.splitlines())]


def generalize(printed: str, code: int, places: Mapping[str, str]) -> str:
    """Put names for places, take out what other versions of git say in other words, and add the exit code."""
    for name, place in sorted({**places, "CLONE": str(CLONE)}.items(), key=lambda item: -len(item[1])):
        printed = re.sub(rf"(?<!\w){re.escape(place)}(?!\w)", f"${name}", printed)
    for pattern, text in OTHERWISE_EACH_TIME.items():
        printed = re.sub(pattern, text, printed, flags=re.MULTILINE)
    printed = re.sub(r"(^ *\| ).*\n(?:^ *\| .*\n)*", r"\1…\n", printed, flags=re.MULTILINE)
    return f"{printed.rstrip()}\nexit code: {code}".lstrip() if code else printed.strip("\n")


def require_good_failure(line: str, printed: str) -> None:
    """Require what all failures have in common: an error, a tip, no traceback."""
    for pattern in ("^(?:error|Error): ", "^ *tip: |^Try '"):
        assert re.search(pattern, printed, re.MULTILINE), (line, printed)
    assert "Traceback" not in printed, (line, printed)
