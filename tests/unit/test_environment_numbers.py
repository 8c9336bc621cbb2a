"""Variables that hold numbers: read once, at the command line, which refuses what is none by their names."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import FileServer, serving
from wheels import wheel

import rocm_wheels
from rocm_wheels.cli import boundary, main

pytestmark = pytest.mark.contract

WRONG = ["yesterday", "-1", "+5", "1.5", "1e3", " 5", "1_000", "0x10", "\u0663", "9" * 5000, "nan"]
NAMES = [
    "MAX_JOBS",
    "ROCM_WHEELS_JOBS",
    "ROCM_WHEELS_RETRIES",
    "ROCM_WHEELS_TIMEOUT",
    "SCCACHE_SERVER_PORT",
    "SOURCE_DATE_EPOCH",
]


@pytest.mark.parametrize(
    ("name", "text"), [(NAMES[0], text) for text in WRONG] + [(name, WRONG[0]) for name in NAMES[1:]]
)
def test_what_is_no_such_number_is_refused_by_name(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, text)
    path = wheel(tmp_path)
    assert boundary.run_command(main.cli, ["index", "build", str(tmp_path / "index"), str(path)]) == 2
    assert boundary.run_command(main.cli, ["wheel", "repair", str(path), "-o", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count(f"{name}=") == 2
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("name", "text"), [("MAX_JOBS", "0"), ("ROCM_WHEELS_TIMEOUT", "0"), ("SCCACHE_SERVER_PORT", "65536")]
)
def test_numbers_out_of_range(name: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(name, text)
    assert (
        boundary.run_command(main.cli, ["wheel", "repair", str(wheel(tmp_path)), "-o", str(tmp_path / "out")])
        == 2
    )


@pytest.mark.parametrize(
    ("text", "year"), [("0", "1970"), ("1700000000", "2023"), ("4354819199", "2107"), ("", "20")]
)
def test_dates_are_taken(text: str, year: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    assert (
        boundary.run_command(main.cli, ["index", "build", str(tmp_path / "index"), str(wheel(tmp_path))]) == 0
    )
    page = json.loads((tmp_path / "index/torch/index.json").read_text())
    assert page["files"][0]["upload-time"].startswith(year)


def test_an_empty_one_is_none_for_what_we_start_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")
    assert not set(NAMES) & set(boundary.read_environment())


def test_variable_of_an_option_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROCM_WHEELS_DATE", "yesterday")
    assert boundary.run_command(main.cli, ["matrix"]) == 2
    assert "ROCM_WHEELS_DATE" in capsys.readouterr().err


def test_no_other_place_makes_a_number_of_a_variable() -> None:
    """``int(env[...])`` and the like; what Slurm sets for a job is measured, and not typed by anybody."""

    def find(folder: Path) -> Iterator[str]:
        for path in folder.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            yield from re.findall(r"(?:int|float|fromisoformat|fromtimestamp)\((?:\w+\.)?env\w*[.\[].*", text)
            yield from re.findall(r".*env\w*(?:\.get\(|\[).*\.is(?:decimal|digit|numeric)\(.*", text)

    places = list(find(Path(rocm_wheels.__file__).parent))
    assert all("SLURM_" in place for place in places), places


@pytest.mark.parametrize(("retries", "asked"), [("0", 1), ("2", 3)])
def test_a_busy_server_is_asked_as_often_as_the_variable_says(
    retries: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    monkeypatch.setenv("ROCM_WHEELS_RETRIES", retries)
    with serving(FileServer({})) as server:
        server.fail(*["busy"] * 20, where="torch")
        words = ["choose", "torch", "--index", server.url, "--gfx", "gfx942", "--python", "3.12"]
        assert boundary.run_command(main.cli, words) != 0
    assert [request[0] for request in server.requests if "torch" in request[0]] == ["torch/"] * asked
