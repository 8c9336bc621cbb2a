"""What is installed where from what is published, by programs that only note how they are called.

That the real ones take those words is asked of their commands.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from commands import find_faults

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "build_tools"))
import validate_published

DAY = date(2026, 11, 26)
FAMILIES = ("gfx110X-all", "gfx120X-all", "gfx94X-dcgpu", "gfx950-dcgpu", "gfx1151")


def make_support() -> dict[str, Any]:
    """Five families on nightly: the newest set of each for Linux counts, and another channel does not."""
    release = {"wheels": [{"pythons": ["cp311", "cp312", "cp313t"]}], "targets": [{"gfx": "gfx1100"}]}
    entry = {"os": "linux", "set": "new", "version": "2.13.0"}
    install = {"rocm_wheels": "rocm-wheels install torch==2.13.0 --index {index}"}
    sets = [{**entry, "os": "windows", "set": "win"}, {**entry, "install": install}, {**entry, "set": "old"}]
    channels = [
        {"family": one, "channel": channel, "url": None, "index": f"{one}/nightly/simple/", "sets": sets}
        for one in FAMILIES
        for channel in ("nightly", "stable")
    ]
    releases = [{"family": family, "channel": "nightly", "set": "new", **release} for family in FAMILIES]
    return {"channels": channels, "releases": releases}


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a document, and programs; `import` fails where a file says so."""
    monkeypatch.setattr(validate_published, "WORK", tmp_path / "work")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "support.json").write_text(json.dumps(make_support()))
    (tmp_path / "bin").mkdir()
    for name in ("uv", "rocm-wheels"):
        script = f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/called"\n'
        script += f'case "$*" in *" import "*) test ! -e "{tmp_path}/broken" && exit\n'
        script += 'echo "Error: no torch"; exit 16;; esac\n'
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def validate(published: Path, *words: str) -> tuple[int, list[str]]:
    """Return the exit code, and how programs were called."""
    env = {"PATH": os.pathsep.join([str(published / "bin"), "/usr/bin:/bin"])}
    support = str(published / "store" / "support.json")
    (published / "called").write_text("")
    code = validate_published.main([support, "--image", "debian", "--date", str(DAY), *words], env)
    return code, (published / "called").read_text().splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="the programs are scripts of a shell")
def test_four_jobs_install_import_and_look_at_each_family_once(
    published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command that people are given, in a container of the image, with the newest Python."""
    calls = []
    for share in ("1/4", "2/4", "3/4", "4/4"):
        code, called = validate(published, "--share", share)
        assert code == 0
        calls += [line for line in called if line.startswith("rocm-wheels")]
    installs = [line for line in calls if " install torch==2.13.0 --index " in line]
    assert {line.partition("--index ")[2].split()[0] for line in installs} == {
        str(published / "store" / family / "nightly" / "simple") for family in FAMILIES
    }
    assert len(installs) == len(FAMILIES) and len(calls) == 3 * len(FAMILIES)
    assert all(line.startswith("rocm-wheels container run --image debian --mount ") for line in calls)
    assert [fault for line in calls for fault in find_faults(line)] == []  # inside, too
    assert all("tool-3.12" in line and "--gfx gfx1100" in line for line in installs)
    assert capsys.readouterr().out.count(", 2.13.0: installed\n") == len(FAMILIES)


@pytest.mark.skipif(sys.platform == "win32", reason="the programs are scripts of a shell")
def test_what_cannot_be_imported_fails_and_keeps_no_other_from_its_turn(
    published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (published / "broken").touch()
    code, called = validate(published)
    assert code == 16 and not [line for line in called if " doctor " in line]
    assert capsys.readouterr().out.count(", 2.13.0: failed: import: Error: no torch\n") == len(FAMILIES)


@pytest.mark.parametrize("words", [["--share", "5/4"], ["--share", "x"]])
def test_wrong_words(words: list[str], published: Path) -> None:
    assert validate(published, *words) == (2, [])
