"""Odd wheels before our judges and before the installers: none of ours passes what an installer refuses.

What the installers do was measured, and is in ``tests/data/odd_wheels.txt``: in CI a sample is asked again,
by hand all are (``-m exhaustive``, which also asks the oldest pip).
``ROCM_WHEELS_WRITE_ODD_WHEELS=1`` and the exhaustive test write the table anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
from commands import call
from pythons import OLD_PIPS, UV, get_pip
from stores import FAMILY, TAG, World, drafts

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from odd_wheels import SmallWheel, list_odd_wheels

from rocm_wheels.core import errors
from rocm_wheels.wheels import scan

pytestmark = pytest.mark.contract

TABLE = Path(__file__).resolve().parents[1] / "data" / "odd_wheels.txt"
ODD_WHEELS = list_odd_wheels()
COLUMNS = ("pip 22.3", "pip", "uv", "ours")
# pip installs all wheels in one process: its start costs more than a small wheel
INSTALL_ALL = """
import contextlib, io, sys, tempfile
from pip._internal.cli.main import main
words = ["install", "--isolated", "--disable-pip-version-check", "--no-index", "--no-cache-dir"]
words += ["--no-compile", "--ignore-installed", "--quiet"]
for wheel in sys.stdin.read().split("\\0"):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with tempfile.TemporaryDirectory() as folder:
            code = main([*words, "--target", folder, wheel])
    print("no" if code else "ok")
"""


def run(*words: object) -> int:
    """Run a command; return its exit code."""
    return call(*words, code=None).code


def write_wheels(
    names: Iterable[str], folder: Path, make: Callable[[], SmallWheel] = SmallWheel
) -> dict[str, Path]:
    """Write odd wheels, each into a folder of its own."""
    wheels = {}
    for number, name in enumerate(names):
        wheel, place = make(), folder / str(number)
        ODD_WHEELS[name](wheel)
        place.mkdir(parents=True)
        wheels[name] = wheel.write(place)
    return wheels


def read_table() -> dict[str, dict[str, bool]]:
    """Return who takes which odd wheel: name, then column."""
    rows = (re.split(r"  +", line, maxsplit=len(COLUMNS)) for line in TABLE.read_text().splitlines()[2:])
    return {
        row[-1]: {column: cell == "ok" for column, cell in zip(COLUMNS, row, strict=False)} for row in rows
    }


def is_refused(wheel: Path) -> bool:
    """Ask the judge of ``install``, ``index build`` and ``set stage``."""
    try:
        return bool(scan.scan_wheel(wheel, device_code=False).list_refusals(startup_files=("*",)))
    except errors.DataError:
        return True


def ask_pip(program: Iterable[str], wheels: Mapping[str, Path]) -> dict[str, bool]:
    """Ask a pip, started by these words but for the last, which names it."""
    *front, place = program
    environment = {**os.environ, "PYTHONPATH": str(Path(place).parent) if place != "pip" else ""}
    words = [front[0], "-W", "ignore", "-c", INSTALL_ALL]
    asked = "\0".join(map(str, wheels.values()))
    told = subprocess.run(words, input=asked, env=environment, capture_output=True, text=True, check=True)
    return dict(zip(wheels, (line == "ok" for line in told.stdout.split()), strict=True))


def ask_uv(wheels: Mapping[str, Path], folder: Path) -> dict[str, bool]:
    """Ask uv."""
    words = [*UV, "--no-index", "--quiet", "--target"]
    return {
        name: not subprocess.run(
            [*words, folder / str(number), wheel], capture_output=True, check=False
        ).returncode
        for number, (name, wheel) in enumerate(wheels.items())
    }


def test_nothing_of_ours_passes_what_an_installer_refuses(tmp_path: Path) -> None:
    table, wheels = read_table(), write_wheels(ODD_WHEELS, tmp_path)
    assert table.keys() == ODD_WHEELS.keys()
    ours = {name: not is_refused(wheel) for name, wheel in wheels.items()}
    assert ours == {name: row["ours"] for name, row in table.items()}
    assert [name for name, row in table.items() if row["ours"] and not all(row.values())] == []


@pytest.mark.parametrize("step", [7, pytest.param(1, id="all", marks=pytest.mark.exhaustive)])
def test_the_commands_judge_alike(step: int, tmp_path: Path) -> None:
    """``audit`` is stricter, ``retag`` leaves to it what harms nobody, ``show`` reads three texts alone."""
    table, names = read_table(), list(ODD_WHEELS)[::step]
    passed = []
    for name, wheel in write_wheels(names, tmp_path / "in").items():
        is_taken = table[name]["pip"] and table[name]["uv"]
        codes = {
            "audit": run("audit", wheel),
            "index build": run("index", "build", wheel.parent / "index", wheel),
            "wheel retag": run("wheel", "retag", wheel, "--local-version", "x1", "-o", tmp_path / "out"),
        }
        if name.startswith(("METADATA: ", "WHEEL: ", "RECORD: ")) and not re.search(
            "other (Name|Version)", name
        ):
            codes["wheel show"] = run("wheel", "show", wheel)
        assert set(codes.values()) <= {0, 2, 13, 14}, name
        passed += [(command, name) for command, code in codes.items() if not code and not is_taken]
        assert table[name]["ours"] == (codes["index build"] == 0), name
        for made in tmp_path.glob("out/*.whl"):
            made.unlink()
    assert passed == []


@pytest.mark.parametrize("step", [29, pytest.param(1, id="all", marks=pytest.mark.exhaustive)])
def test_no_odd_wheel_is_staged(step: int, tmp_path: Path) -> None:
    world, table = World(tmp_path / "release"), read_table()
    draft = drafts(text="x = 1\n")["torch"]
    others = [path for path in world.wheels if not path.name.startswith("torch-")]

    def make() -> SmallWheel:
        fields = "".join(f"Requires-Dist: {text}\n" for text in draft.requires) + "Requires-Python: >=3.10\n"
        return SmallWheel(draft.distribution, draft.version, TAG, fields, dict(draft.members))

    names = [name for name in ODD_WHEELS if not name.startswith("file name: ")][::step]
    for name, wheel in write_wheels(names, tmp_path / "in", make).items():
        code = run(
            "set", "stage", tmp_path / "store", *others, wheel, "--lock", world.lock, "--family", FAMILY
        )
        assert code in (0, 2, 15), name
        assert code or all(table[name].values()), name


@pytest.mark.parametrize("installer", ["uv", "newest"])
def test_a_sample_is_taken_by_whom_the_table_says(installer: str, tmp_path: Path) -> None:
    wheels = write_wheels(list(ODD_WHEELS)[::9], tmp_path / "in")
    if installer == "uv":
        asked, column = ask_uv(wheels, tmp_path / "out"), "uv"
    else:
        asked, column = ask_pip([sys.executable, "pip"], wheels), "pip"
    table = read_table()
    assert asked == {name: table[name][column] for name in wheels}


@pytest.mark.exhaustive
@pytest.mark.network
def test_all_are_taken_by_whom_the_table_says(tmp_path: Path) -> None:
    wheels = write_wheels(ODD_WHEELS, tmp_path / "in")
    oldest = get_pip(OLD_PIPS[0], tmp_path / "pip")
    asked = {
        "pip 22.3": ask_pip(oldest, wheels),
        "pip": ask_pip([sys.executable, "pip"], wheels),
        "uv": ask_uv(wheels, tmp_path / "out"),
        "ours": {name: not is_refused(wheel) for name, wheel in wheels.items()},
    }
    rows = [(*("ok" if asked[column][name] else "no" for column in COLUMNS), name) for name in wheels]
    lines = ["  ".join(cell.ljust(8) for cell in row).rstrip() for row in [(*COLUMNS, "odd wheel"), *rows]]
    text = "Who takes which odd wheel (tests/unit/odd_wheels.py): measured\n" + "\n".join(lines) + "\n"
    if os.environ.get("ROCM_WHEELS_WRITE_ODD_WHEELS"):
        TABLE.write_text(text)
    assert TABLE.read_text() == text
