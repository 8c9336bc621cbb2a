"""The files that a branch has changed, told by git."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from git import Actor, Repo

from rocm_wheels.ci import matrix_report
from rocm_wheels.cli import matrix
from rocm_wheels.core import errors

pytestmark = pytest.mark.contract


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


def test_a_commit_that_is_not_there_is_said() -> None:
    result = CliRunner().invoke(matrix.matrix_command, ["--since", "no-such-ref"])
    assert isinstance(result.exception, errors.UsageError)
