"""A newcomer's entry in the tables of the matrix, in a copy of the project; files that a branch changed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from git import Actor, Repo

from rocm_wheels.ci import matrix_report
from rocm_wheels.cli import matrix
from rocm_wheels.core import errors

CLONE = Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(CLONE / "build_tools", tmp_path / "build_tools", ignore=compiled)
    (tmp_path / "repos").mkdir()
    for recipe in (CLONE / "repos").glob("*.yaml"):
        shutil.copy2(recipe, tmp_path / "repos")
    shutil.copy2(CLONE / "pyproject.toml", tmp_path)
    return tmp_path


def ours(copy: Path, *words: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(copy / "build_tools")}
    argv = [sys.executable, "-m", "rocm_wheels", *words]
    return subprocess.run(argv, env=env, cwd=copy, capture_output=True, text=True, check=True).stdout


def rows(copy: Path, *words: str) -> list[dict[str, Any]]:
    given = ("matrix", "--platform", "linux", *words)
    found: list[dict[str, Any]] = json.loads(ours(copy, *given))["include"]
    return found


def edit(copy: Path, table: str, old: str, new: str) -> None:
    path = copy / "build_tools" / "rocm_wheels" / "data" / table
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.contract_slow
def test_one_entry_each(copy: Path) -> None:
    before = {row["name"] for row in rows(copy, "--rows", "lines")}
    lines = (copy / "build_tools" / "rocm_wheels" / "data" / "release_lines.yaml").read_text(encoding="utf-8")
    newest = max(before, key=lambda name: tuple(map(int, re.findall(r"\d+", name)))).split("-")[0]
    fresh = f"{newest.split('.')[0]}.99"
    entry = re.search(rf'^  - name: "{newest}"\n(?:(?!  - name).*\n)*', lines, re.MULTILINE)
    assert entry is not None
    edit(copy, "release_lines.yaml", entry[0], entry[0] + entry[0].replace(f'"{newest}"', f'"{fresh}"'))
    edit(copy, "ci.yaml", "  gfx1152: {fact: *families, since: nightly, linux: {}",
         "  gfx1152: {fact: *families, since: presubmit, linux: {runners: [{label: my-gpu}]}")  # fmt: skip
    policy = (copy / "build_tools" / "rocm_wheels" / "data" / "ci.yaml").read_text(encoding="utf-8")
    pythons = re.search(r"  nightly:\n(?:    .*\n)*?    pythons: (\[.*\])\n", policy)
    assert pythons is not None
    edit(copy, "ci.yaml", pythons[0], pythons[0].replace(pythons[1], '["3.12", "3.14t"]'))

    assert {row["name"] for row in rows(copy, "--rows", "lines")} - before == {f"{fresh}-linux"}
    cells = rows(copy, "--line", fresh, "--rows", "cells")
    assert {row["python"] for row in cells} == {"3.12", "3.14t"}
    assert {row["tester"] for row in cells if row["family"] == "gfx1152"} == {"my-gpu"}
    assert "gfx1152" in {row["family"] for row in rows(copy, "--trigger", "presubmit", "--rows", "cells")}


@pytest.mark.contract
def test_files_that_a_branch_changed(tmp_path: Path) -> None:
    repo, who = Repo.init(tmp_path), Actor("a", "a@example.org")
    for name in ("kept", "moved", "edited"):
        (tmp_path / name).write_text(name * 20)
    repo.index.add(["kept", "moved", "edited"])
    base = repo.index.commit("first", author=who, committer=who)
    repo.index.move(["moved", "away"])
    repo.index.commit("second", author=who, committer=who)
    (tmp_path / "edited").write_text("now")
    (tmp_path / "new ü").write_text("new")
    assert matrix_report.list_changed_since(tmp_path, base.hexsha) == ["away", "edited", "moved", "new ü"]
    assert matrix_report.list_changed_since(tmp_path, "0" * 40) == [
        "away",
        "edited",
        "kept",
        "new ü",
    ]  # GitHub's "no commit"
    with pytest.raises(errors.UsageError, match="is no git repository"):
        matrix_report.list_changed_since(tmp_path / "kept", "HEAD")
    with pytest.raises(errors.UsageError, match="there is no commit no-such-ref"):
        matrix_report.list_changed_since(tmp_path, "no-such-ref")
    with pytest.raises(errors.UsageError, match="there is no commit '' in"):
        matrix_report.list_changed_since(tmp_path, "")


@pytest.mark.contract
def test_a_commit_that_is_not_there_is_said() -> None:
    result = CliRunner().invoke(matrix.matrix_command, ["--since", "no-such-ref"])
    assert isinstance(result.exception, errors.UsageError)
