"""What `dev` looks at before it runs ninja alone, and what a shell of ours changes; on real git and sh."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rocm_wheels.cli import boundary, output
from rocm_wheels.core import errors
from rocm_wheels.pipeline import edit_loop

IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")


def run_git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a submodule, each with a file."""
    for name in ("inner", "tree"):
        (tmp_path / name).mkdir()
        run_git(tmp_path / name, "init", "-q")
        (tmp_path / name / "a.cu").write_text("one\n")
        run_git(tmp_path / name, "add", ".")
        run_git(tmp_path / name, "commit", "-qm", "one")
    run_git(tmp_path / "tree", "submodule", "--quiet", "add", str(tmp_path / "inner"), "third party")
    run_git(tmp_path / "tree", "commit", "-qm", "two")
    return tmp_path / "tree"


@pytest.mark.contract
def test_each_edit_is_seen_in_submodules_too(tree: Path, tmp_path: Path) -> None:
    def read() -> edit_loop.SourceChanges:
        sources = edit_loop.SourceChanges.read(tree, {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
        assert sources is not None
        return sources

    seen = [read()]
    assert seen[0].stamps == {}
    for path, text in {
        "a.cu": "two\n",
        "new file.cu": "new\n",
        "third party/a.cu": "two\n",
        "third party/new.cu": "new\n",
    }.items():
        (tree / path).write_text(text)
        seen.append(read())
        assert path in seen[-1].list_differences(seen[-2].stamps)
    (tree / "third party/a.cu").write_text("three!\n")
    assert read().list_differences(seen[-1].stamps) == ["third party/a.cu"]
    (tree / "a.cu").unlink()
    assert "a.cu" in read().list_differences(seen[-1].stamps)
    run_git(tree, "commit", "-qam", "three")
    assert read().commit != seen[0].commit
    assert edit_loop.SourceChanges.read(tmp_path, {}) is None


def test_what_reaches_a_compiler_is_in_the_digest_and_nothing_else() -> None:
    env = {"PATH": "/bin", "CXXFLAGS": "-O1", "TERM": "xterm", "MAX_JOBS": "2"}
    digest = edit_loop.digest_build_variables(env, {"LDFLAGS": "-L/rocm"})
    assert (
        edit_loop.digest_build_variables({**env, "TERM": "vt100", "MAX_JOBS": "8"}, {"LDFLAGS": "-L/rocm"})
        == digest
    )
    for change in ({"PATH": "/usr/bin"}, {"CXXFLAGS": "-O2"}, {"LDFLAGS": "-g"}, {"USE_NCCL": "0"}):
        assert edit_loop.digest_build_variables({**env, **change}, {"LDFLAGS": "-L/rocm"}) != digest


def test_without_a_note_there_is_no_loop(tmp_path: Path) -> None:
    note = tmp_path / "develop" / "pytorch.json"
    assert isinstance(edit_loop.repeat_loop(note, {}, {}, {}, print), str)
    note.parent.mkdir()
    note.write_text(json.dumps({"format": 0}))
    assert isinstance(edit_loop.repeat_loop(note, {}, {}, {}, print), str)
    with pytest.raises(errors.UsageError) as none:
        edit_loop.read_loop_options(tmp_path, "pytorch")
    assert none.value.tip and "--work-dir: .rocm-wheels in dev's --source-dir" in none.value.tip


@pytest.mark.contract
def test_inside_a_shell_of_ours_a_build_has_the_environment_outside() -> None:
    outer = {"PATH": "/bin", "CXXFLAGS": "-O1", "HOME": "/me"}
    inner = boundary.enter_shell(
        outer, {**outer, "PATH": "/rocm:/bin", "CXXFLAGS": "-I/rocm -O1", "USE_ROCM": "ON"}
    )
    assert boundary.leave_shell(dict(inner)) == outer
    assert boundary.leave_shell({**inner, "CXXFLAGS": "-O3"}) == {**outer, "CXXFLAGS": "-O3"}
    with pytest.raises(errors.UsageError):
        boundary.leave_shell({"ROCM_WHEELS_SHELL": "[]"})


@pytest.mark.contract
def test_printed_variables_are_what_they_were_whatever_is_in_them() -> None:
    value = "a'b\"c $(touch /x) `y` \\ ;\nend"
    lines = [output.format_variable("A", value, "sh"), output.format_variable("HOME", None, "sh")]
    script = "\n".join([*lines, 'printf %s "$A${HOME-none}"'])
    answer = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == f"{value}none"
    assert output.format_variable("A", "it's \\", "fish") == "set -gx A 'it\\'s \\\\'"
    assert output.format_variable("A", "it's", "powershell") == "$Env:A = 'it''s'"
