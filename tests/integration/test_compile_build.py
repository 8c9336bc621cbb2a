"""Real front ends and real compilers: small projects built with setuptools and ninja."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from small_project import Make, base, compiled, library, make, python, recipe, source, status
from source_trees import GIT

from rocm_wheels.compile import (
    BuildFailed,
    Preloads,
    ask_preloads,
    exclude_generated_files,
    write_generated_file,
)
from rocm_wheels.core import BuildError, RocmWheelsError, SdkError
from rocm_wheels.models import BuildRecipe, Project, VersionRecipe

__all__ = ["base", "make", "python", "recipe", "source"]


def test_a_failure_ends_with_the_first_error_and_a_command_that_repeats_it(
    make: Make, source: Path, base: Mapping[str, str], tmp_path: Path
) -> None:
    (source / "src/b.c").write_text("wrong\n")
    with pytest.raises(BuildFailed) as fault:
        make()
    failed = fault.value
    assert failed.failure is not None
    assert (failed.failure.file, failed.failure.line) == ("../src/b.c", 2)
    lines = str(failed).splitlines()
    assert lines[0] == "building small failed with exit code 1"
    assert lines[1] == "  first error: ../src/b.c:2: this is wrong"
    assert lines[2] == f"  log: {tmp_path / 'logs' / 'small.log'}"
    assert failed.command.startswith(f"cd {source} && ") and " HOME=" not in failed.command
    (source / "src/b.c").write_text("right\n")
    compiled(source)
    subprocess.run(["sh", "-c", failed.command], env=dict(base), check=True, capture_output=True)
    assert compiled(source) == ["b", "c"]
    assert not list((tmp_path / "out").glob(".fresh-*"))


def test_a_wheel_of_another_name_never_reaches_the_output(make: Make, source: Path, tmp_path: Path) -> None:
    setup = source / "setup.py"
    setup.write_text(setup.read_text().replace('name="small"', 'name="other"'))
    with pytest.raises(BuildError, match=r"must make a wheel of small, and made other-1\.0"):
        make()
    assert list((tmp_path / "out").iterdir()) == []


def test_a_project_that_nothing_tells_its_version_keeps_its_own(
    recipe: Project, make: Make, source: Path
) -> None:
    setup = source / "setup.py"
    setup.write_text(setup.read_text().replace('os.environ["BUILD_VERSION"]', '"1.0"'))
    keeps = recipe.model_copy(update={"version": VersionRecipe()})
    assert make(project=keeps, version=None).version == "1.0"
    suffixed = recipe.model_copy(update={"version": VersionRecipe(suffix_variable="SMALL_SUFFIX")})
    with pytest.raises(BuildError):
        make(project=suffixed, version=None)


def test_a_pep_517_build(recipe: Project, make: Make, source: Path) -> None:
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    )
    build = BuildRecipe(front_end="pep517", trees=("build",))
    wheel = make(project=recipe.model_copy(update={"build": build}))
    assert library(wheel) == "gfx942a\nb\nc\n"


def test_generated_files_do_not_make_a_checkout_look_changed(source: Path, base: Mapping[str, str]) -> None:
    path = source / "small" / "_rocm_init.py"
    name = "small/_rocm_init.py"
    assert write_generated_file(source, name, "x = 1\n", env=base) is True
    date = path.stat().st_mtime_ns
    assert write_generated_file(source, name, "x = 1\n", env=base) is False
    assert path.stat().st_mtime_ns == date
    assert status(source) == ""
    exclude = (source / ".git/info/exclude").read_text()
    assert exclude.splitlines().count("/small/_rocm_init.py") == 1
    assert write_generated_file(source, name, "x = 2\n", env=base) is True
    assert (source / ".git/info/exclude").read_text() == exclude


def test_a_submodule_and_a_plain_folder_are_fine_too(
    source: Path, tmp_path: Path, base: Mapping[str, str]
) -> None:
    linked = tmp_path / "linked"
    subprocess.run([*GIT, "worktree", "add", "-q", str(linked)], cwd=source, check=True)
    write_generated_file(linked, "small/_rocm_init.py", "x = 1\n", env=base)
    assert status(linked) == ""
    plain = tmp_path / "plain"
    plain.mkdir()
    assert write_generated_file(plain, "x.py", "x\n", env={**base, "GIT_CEILING_DIRECTORIES": str(tmp_path)})


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_build_leaves_in_a_checkout_is_not_the_users(
    source: Path, tmp_path: Path, base: Mapping[str, str], killed: bool
) -> None:
    marker, log = tmp_path / "running.json", tmp_path / "x.log"
    (source / "mine.txt").write_text("the user's own")
    blocks = [exclude_generated_files(source, marker, log, base)]
    (source / "translated").mkdir()
    (source / "translated" / "before.hip").write_text("an uncommitted translation")
    blocks[0].__enter__()
    (source / "translated" / "during.hip").write_text("of the build")
    (source / "src" / "hip [1]").mkdir()
    (source / "src" / "hip [1]" / "k.hip").write_text("translated")
    (source / "src" / "a_hip.c").write_text("translated")
    (source / "src" / "new.py").write_text("the user's own, written while it was built")
    log.write_text("the end\n")
    if killed:
        late = time.time() + 100
        (source / "later.txt").write_text("the user's own, after the build was killed")
        os.utime(source / "later.txt", (late, late))
        blocks.append(exclude_generated_files(source, marker, log, base))
        blocks[1].__enter__()
    blocks[-1].__exit__(None, None, None)
    seen = ["?? later.txt"] * killed + ["?? mine.txt", "?? src/new.py", "?? translated/before.hip"]
    assert status(source, "-uall").splitlines() == seen
    assert not marker.exists()


def test_a_killed_builds_leftovers_are_excluded_in_its_own_source(
    source: Path, tmp_path: Path, base: Mapping[str, str]
) -> None:
    marker, log = tmp_path / "running.json", tmp_path / "x.log"
    other = tmp_path / "other"
    subprocess.run([*GIT, "clone", "-q", str(source), str(other)], check=True)
    killed = exclude_generated_files(source, marker, log, base)
    killed.__enter__()
    (source / "left.hip").write_text("of the build")
    log.write_text("the end\n")
    with exclude_generated_files(other, marker, log, base):
        pass
    assert (status(source), status(other)) == ("", "")
    del killed


SDK = """
def find_libraries(*names):
    for name in names:
        if name.startswith("roc"):
            raise ModuleNotFoundError(f"Unknown rocm library '{name}'")
    return []
"""


def test_the_sdk_is_asked_for_every_library(tmp_path: Path, base: Mapping[str, str]) -> None:
    (tmp_path / "rocm_sdk.py").write_text(SDK)
    env = {**base, "PYTHONPATH": str(tmp_path)}
    preloads = ask_preloads(Path(sys.executable), "linux", env)
    assert isinstance(preloads, Preloads)
    assert preloads.libraries[:3] == ("amd_comgr", "amd_smi", "amdhip64")
    assert "rocm-openblas" in preloads.left_out and "roctx64" in preloads.left_out
    (tmp_path / "rocm_sdk.py").write_text("print('a notice')\n" + SDK)
    with pytest.raises(SdkError, match="gave no list of libraries"):
        ask_preloads(Path(sys.executable), "linux", env)
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    (tmp_path / "rocm_sdk.py").write_text("raise ImportError('broken')\n")
    with pytest.raises(RocmWheelsError, match="broken"):
        ask_preloads(Path(sys.executable), "linux", env)
