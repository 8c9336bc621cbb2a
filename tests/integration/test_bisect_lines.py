"""Bisecting where one family has sets of two platforms and of several torch lines, staged as they are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nights import FAMILY, Night
from release_world import PYTHON, rocm_wheel

from rocm_wheels.cli import boundary, main
from rocm_wheels.index import update
from rocm_wheels.release import wheel_set
from rocm_wheels.stores import folder

# for each night, in the order in which its sets are made: torch, platform, line as the lock says it
SETS = [
    (night, torch, platform, line)
    for night in range(1, 7)
    for torch, platform, line in (
        ("2.13.0", "linux", "2.13"),
        ("2.14.0" if night > 3 else "2.14.0a0", "linux", "nightly"),  # the newest line is called so
        ("2.13.0", "windows", "2.13"),
        ("2.12.1", "linux", None),
    )
]
Bisect = Callable[..., Any]


class Bench:
    """A store with nights, by (day, torch without its local part, platform)."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root, folder.FolderStore(root / "store")
        self.sets: dict[tuple[int, str, str], wheel_set.SetDocument] = {}
        for day, torch, platform, line in SETS:
            made = Night(torch, day, platform, line).stage(self.store, root / "made")
            self.sets[day, torch[:4], platform] = made

    def line(self, torch: str, platform: str = "linux", days: range = range(1, 7)) -> list[str]:
        return [self.sets[day, torch, platform].id for day in days]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        found = Bench(tmp_path_factory.mktemp("nights"))
        update.add_wheels(found.root / "rocm", [rocm_wheel(found.root)], now="2026-11-01T00:00:00Z")
        return found


@pytest.fixture
def bisect(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bisect:
    def asked(good: str, bad: str, *words: str, code: int = 0) -> Any:
        given = ["--good", good, "--bad", bad, "--gfx", "gfx1100", "--work-dir", str(tmp_path / "work")]
        assert (
            boundary.run_command(
                main.cli, ["set", "bisect", str(bench.store.folder), *given, "--json", *words]
            )
            == code
        )
        both = capsys.readouterr()
        return json.loads(both.out) if code == 0 else both.err

    return asked


@pytest.mark.parametrize(
    ("torch", "platform"), [("2.13", "linux"), ("2.13", "windows"), ("2.12", "linux"), ("2.14", "linux")]
)
def test_between_two_sets_of_a_line_is_that_line(
    torch: str, platform: str, bench: Bench, bisect: Bisect
) -> None:
    line = bench.line(torch, platform)
    said = bisect(line[0], line[-1], "--dry-run")
    assert said["sets"] == line
    assert bisect(line[1], line[3], "--dry-run")["sets"] == line[1:4]


def test_between_two_lines_are_all_of_their_platform(bench: Bench, bisect: Bisect) -> None:
    linux = [one.id for key, one in bench.sets.items() if key[2] == "linux" and 2 <= key[0] <= 3]
    made = sorted(
        (one for one in bench.sets.values() if one.id in linux), key=lambda one: (one.created, one.id)
    )
    ids = [one.id for one in made]
    good, bad = bench.sets[2, "2.12", "linux"].id, bench.sets[3, "2.14", "linux"].id
    found = bisect(good, bad, "--dry-run")["sets"]
    assert found == ids[ids.index(good) : ids.index(bad) + 1]
    assert {one[:4] for one in found} == {"2.12", "2.13", "2.14"}


def test_ends_of_two_platforms_are_refused(bench: Bench, bisect: Bisect) -> None:
    good, bad = bench.sets[1, "2.13", "linux"].id, bench.sets[6, "2.13", "windows"].id
    said = bisect(good, bad, "--dry-run", code=15)
    assert (
        f"there is no line between them: {good} is of {FAMILY}, per-family, linux and {bad} of {FAMILY}, "
        in said
    )


def test_the_answer_is_certain_although_others_were_made_in_between(
    bench: Bench, bisect: Bisect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each set that is tried is installed for real: one for Windows could not be."""
    monkeypatch.setenv("UV_CACHE_DIR", str(bench.root / "uv"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", (bench.root / "rocm").as_uri())
    script = tmp_path / "try.py"
    script.write_text("import sys, torch\nsys.exit(torch.found != '2.13.0' or torch.night >= 4)\n")
    line = bench.line("2.13")
    words = ["--python", PYTHON, "--", "python", str(script)]
    found = bisect(line[0], line[-1], *words)
    assert (found["first_bad"], found["last_good"], found["certain"]) == (line[3], line[2], True)
    assert {one["set"] for one in found["probes"]} <= set(line)
