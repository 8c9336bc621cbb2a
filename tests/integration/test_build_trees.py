"""Build trees of a small project: each configuration goes on in its own, whatever happened before."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from projects import Make, compiled, status
from projects import built_library as library
from sources import GIT, commit_files
from uv import find_uv_bin

from rocm_wheels.compile import build_request, build_trees, sdk_tree
from rocm_wheels.core import errors
from rocm_wheels.models import project


@pytest.mark.contract
def test_each_configuration_has_its_own_tree_and_goes_on_in_it(make: Make, source: Path) -> None:
    first = make(("gfx942",))
    assert first.path.name.startswith("small-1.0+rocm7.1.0-")
    assert (first.tree, compiled(source), library(first)) == ("new", ["a", "b", "c"], "gfx942a\nb\nc\n")
    (source / "src/b.c").write_text("b2\n")
    assert (make(("gfx942",)).tree, compiled(source)) == ("continued", ["b"])

    other = make(("gfx1100",))
    assert other.tree.startswith("new; the tree of another configuration is parked (PYTORCH_ROCM_ARCH")
    assert (compiled(source), library(other)) == (["a", "b", "c"], "gfx1100a\nb2\nc\n")

    again = make(("gfx942",))
    assert (again.tree, compiled(source)) == ("taken back from parking", [])
    assert library(again) == "gfx942a\nb2\nc\n"
    assert (source / "mine.so").read_text() == "the user's own\n"
    assert status(source) == " M src/b.c\n"


@pytest.mark.contract
def test_what_one_configuration_left_does_not_get_into_anothers_wheel(make: Make, source: Path) -> None:
    make(("gfx942",))
    (source / "small" / "leftover.so").write_text("of gfx942")  # ignored, appeared during the build
    wheel = make(("gfx1100",))
    with zipfile.ZipFile(wheel.path) as archive:
        assert "small/leftover.so" not in archive.namelist()
    assert not (source / "small" / "leftover.so").exists()
    wheel = make(("gfx942",))
    with zipfile.ZipFile(wheel.path) as archive:
        assert "small/leftover.so" in archive.namelist()


@pytest.mark.slow
def test_a_switch_that_is_killed_at_any_move_is_finished_by_the_next_build(
    make: Make, source: Path, monkeypatch: pytest.MonkeyPatch, exhaustive: bool
) -> None:
    """Whatever is built then: nothing is compiled again, and nothing gets into the wheel of another one.

    The sample kills it at every eighth move.
    """
    made = {"gfx942": "small/one.so", "gfx1100": "small/two.so", "gfx906": ""}
    for target, name in made.items():
        make((target,))
        compiled(source)
        if name:
            (source / name).write_text(f"of {target}")
            (source / f"{name}.link.so").symlink_to(source / "src")  # to a folder
    step = 1 if exhaustive else 8
    rename, unlink, kill, left = Path.rename, Path.unlink, 1 - step, 0

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    def counted_rename(path: Path, target: Path) -> Path:
        count()
        return rename(path, target)

    def counted_unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name == "moving.json":
            count()
        unlink(path, missing_ok=missing_ok)

    while True:
        make(("gfx1100",))
        compiled(source)
        kill += step
        left = kill
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(Path, "rename", counted_rename)
            patch.setattr(Path, "unlink", counted_unlink)
            make(("gfx942",))
        goal = list(made)[kill % 3]
        with zipfile.ZipFile(make((goal,)).path) as archive:
            here = {name for name in archive.namelist() if name.endswith(".so")}
        assert {name for name in here if "mine" not in name} >= ({made[goal]} - {""}), (kill, goal)
        others = {name for target, name in made.items() if target != goal and name}
        assert others.isdisjoint(here), (kill, goal)
        assert not any((source / f"{name}.link.so").is_symlink() for name in others)
        assert compiled(source) == [], (kill, goal)
        if left > 0:
            break
    assert kill > 8
    assert sorted(waiting(source / ".git/rocm-wheels/trees")) == sorted({*made} - {goal})


@pytest.mark.contract
def test_a_file_deleted_from_the_sources_leaves_the_wheel(make: Make, source: Path) -> None:
    (source / "small/extra.py").write_text("")
    with zipfile.ZipFile(make().path) as archive:
        assert "small/extra.py" in archive.namelist()
    (source / "small/extra.py").unlink()
    with zipfile.ZipFile(make().path) as archive:
        assert "small/extra.py" not in archive.namelist()


def test_another_checkout_never_gets_the_parked_tree(make: Make, source: Path, tmp_path: Path) -> None:
    make(("gfx942",))
    compiled(source)
    other = tmp_path / "other"
    subprocess.run([*GIT, "clone", "-q", str(source), str(other)], check=True)
    make(("gfx1100",))  # parks the tree of gfx942
    compiled(source)
    assert (make(("gfx942",), source=other).tree, compiled(other)) == ("new", ["a", "b", "c"])
    assert (make(("gfx942",)).tree, compiled(source)) == ("taken back from parking", [])


@pytest.mark.contract
def test_names_that_are_not_utf_8_are_no_obstacle(make: Make, source: Path) -> None:
    folder = os.fsencode(source)
    for name in (b"/mine\xff.txt", b"/mine\xff.so"):  # untracked, ignored
        Path(os.fsdecode(folder + name)).write_text("the user's own")
    setup = source / "setup.py"
    setup.write_text(
        setup.read_text() + 'open(b"left\\xff.hip", "w").write("// automatically generated by hipify")\n'
    )
    make(("gfx942",))
    assert make(("gfx1100",)).tree.startswith("new; ")
    assert b"/left\xff.hip\n" in (source / ".git/info/exclude").read_bytes()
    assert Path(os.fsdecode(folder + b"/mine\xff.so")).read_text() == "the user's own"


@pytest.mark.contract
def test_clean_starts_this_configuration_anew(make: Make, source: Path) -> None:
    make()
    compiled(source)
    assert make(clean=True).tree == "new; the old one is deleted"
    assert compiled(source) == ["a", "b", "c"]


@pytest.mark.parametrize("files", [1, 3, 5])
def test_a_clean_that_was_killed_is_finished(
    make: Make, source: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    make()
    compiled(source)
    left = [files]

    def unlink(name: Any, really: Callable[..., None] = os.unlink, **more: Any) -> None:
        left[0] -= not str(name).endswith(".part")  # these are of files that are written
        if left[0] < 0:
            raise KeyboardInterrupt
        really(name, **more)

    def unlink_path(path: Path, missing_ok: bool = False) -> None:  # Python 3.10 does not ask os here
        if os.path.lexists(path) or not missing_ok:
            unlink(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        patch.setattr(Path, "unlink", unlink_path)
        with pytest.raises(KeyboardInterrupt):
            make(clean=True)
    assert (make().tree, compiled(source)) == ("continued", ["a", "b", "c"])
    assert (make().tree, compiled(source)) == ("continued", [])
    assert (source / "mine.so").read_text() == "the user's own\n"
    assert [path.name for path in (source / ".git/rocm-wheels/trees/small").iterdir()] == []


@pytest.mark.contract
def test_a_tree_of_somebody_else_is_refused_and_never_deleted(
    make: Make, source: Path, tmp_path: Path
) -> None:
    (source / "build").mkdir()
    (source / "build" / "precious.o").write_text("hours")
    with pytest.raises(errors.BuildError, match=r"was not made by rocm-wheels") as fault:
        make()
    assert "--clean" in str(fault.value.tip)
    assert (source / "build" / "precious.o").read_text() == "hours"
    assert "set aside in" in make(clean=True).tree
    assert (source / ".git/rocm-wheels/trees/small/unnamed-1/trees/build/precious.o").read_text() == "hours"


def waiting(place: Path) -> list[str]:
    """Return for which targets trees wait in a folder, the one used last first."""
    keys = sorted(
        place.glob(f"small/*/trees/build/{build_trees.TREE_KEY_FILE}"), key=lambda key: -key.stat().st_mtime
    )
    return [json.loads(key.read_text())["parts"]["PYTORCH_ROCM_ARCH"] for key in keys]


@pytest.mark.contract
@pytest.mark.slow
def test_three_sets_of_targets_and_back_compile_nothing_again(make: Make, source: Path) -> None:
    sets = ("gfx942",), ("gfx1100",), ("gfx906", "gfx908")
    for targets in sets:
        assert (make(targets).tree[:3], compiled(source)) == ("new", ["a", "b", "c"])
    for targets in (*sets, *reversed(sets)):
        made = make(targets)
        assert library(made) == ";".join(targets) + "a\nb\nc\n"
        assert compiled(source) == []
    assert waiting(source / ".git/rocm-wheels/trees") == ["gfx1100", "gfx906;gfx908"]


def test_two_work_directories_do_not_take_the_tree_from_each_other(make: Make, source: Path) -> None:
    """Each has an environment, and so a Python, of its own; both leave an egg-info."""
    for tag in ("cp311", "cp312", "cp311", "cp312", "cp311"):
        made = make(tag=tag)
        assert (source / "small.egg-info").is_dir()
        assert compiled(source) == (["a", "b", "c"] if made.tree.startswith("new") else [])
    assert made.tree == "taken back from parking"


@pytest.fixture(params=["checkout", "worktree", "plain", "subfolder", "other file system"])
def somewhere(request: pytest.FixtureRequest, source: Path, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The source as a tree of some kind, and the place below it where its trees shall wait."""
    elsewhere = Path("/dev/shm")
    if request.param == "checkout":
        yield source, ".git/rocm-wheels/trees"
    elif request.param == "worktree":
        subprocess.run([*GIT, "worktree", "add", "-q", str(tmp_path / "linked")], cwd=source, check=True)
        yield tmp_path / "linked", "../source/.git/worktrees/linked/rocm-wheels/trees"
    elif request.param in ("plain", "subfolder"):
        tree = tmp_path / "outer" / "plain"
        shutil.copytree(source, tree, ignore=shutil.ignore_patterns(".git"))
        if request.param == "subfolder":
            subprocess.run([*GIT, "init", "-q"], cwd=tree.parent, check=True)
        yield tree, ".rocm-wheels/trees"
    elif not elsewhere.is_dir() or elsewhere.stat().st_dev == source.stat().st_dev:
        pytest.skip("there is no second file system to write to")
    else:
        with tempfile.TemporaryDirectory(dir=elsewhere) as place:
            shutil.move(source / ".git", place)
            (source / ".git").write_text(f"gitdir: {place}/.git\n")
            yield source, ".rocm-wheels/trees"


def test_trees_wait_where_no_cleaning_takes_them(make: Make, somewhere: tuple[Path, str]) -> None:
    tree, place = somewhere
    for targets in ("gfx942", "gfx1100"):
        make((targets,), source=tree)
        compiled(tree)
    assert waiting(tree / place) == ["gfx942"]
    assert [path.name for path in (tree / place).resolve().iterdir()] == ["small"]
    if (tree / ".git").exists():
        assert status(tree) == ""
    if ".git/" in place:
        subprocess.run([*GIT, "clean", "-fdxq"], cwd=tree, check=True)
    assert (make(("gfx942",), source=tree).tree, compiled(tree)) == ("taken back from parking", [])


def test_a_file_in_the_way_of_a_parked_one_is_kept(make: Make, source: Path) -> None:
    make(("gfx942",))
    (source / "small" / "made.so").write_text("by the build")
    make(("gfx1100",))
    (source / "small" / "made.so").write_text("the user's own")
    (source / "build" / build_trees.TREE_KEY_FILE).rename(source / "key")
    text = (source / "key").read_text()
    (source / "build" / build_trees.TREE_KEY_FILE).write_text(
        text.replace('"before": [', '"before": [ "small/made.so",')
    )
    with pytest.raises(errors.BuildError, match=r"made\.so is there already"):
        make(("gfx942",))
    assert (source / "small" / "made.so").read_text() == "the user's own"
    (source / "small" / "made.so").write_text("by the build")  # the same file is not in the way
    assert make(("gfx942",)).tree == "taken back from parking"
    assert (source / "small" / "made.so").read_text() == "by the build"


def test_a_damaged_key_file_is_an_error(make: Make, source: Path) -> None:
    make()
    (source / "build" / build_trees.TREE_KEY_FILE).write_text("{")
    with pytest.raises(errors.BuildError, match="is damaged"):
        make()
    assert "set aside" in make(clean=True).tree


@pytest.mark.contract
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_build_goes_on_where_it_was(make: Make, source: Path, tmp_path: Path) -> None:
    (source / "src/c.c").write_text("sleep\n")
    (source / "stop").touch()
    kill_a_build(make, source, tmp_path)
    assert compiled(source) == ["a", "b", "c"]
    (source / "stop").unlink()
    assert make().tree == "continued"
    assert compiled(source) == ["c"]


SCIKIT_BUILD = {
    "pyproject.toml": """
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"
[project]
name = "small"
version = "1.0"
""",
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.26)
project(small LANGUAGES NONE)
foreach(name a b c)
  add_custom_command(OUTPUT ${name}.o DEPENDS src/${name}.c ${objects}
    COMMAND sh compile.sh src/${name}.c ${CMAKE_BINARY_DIR}/${name}.o WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  list(APPEND objects ${CMAKE_BINARY_DIR}/${name}.o)
endforeach()
add_custom_target(all_objects ALL DEPENDS ${objects})
install(FILES ${objects} DESTINATION small)
""",
}


@pytest.mark.contract_slow
@pytest.mark.slow
@pytest.mark.network
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_build_of_scikit_build_core_goes_on_where_it_was(
    make: Make, recipe: project.Project, source: Path, tmp_path: Path, python: Path
) -> None:
    tools = ("cmake>=3.26", "scikit-build-core>=1.0")
    subprocess.run([find_uv_bin(), "pip", "install", "-q", "--python", python, *tools], check=True)
    script = (source / "compile.sh").read_text().replace("../", "")
    commit_files(source, {**SCIKIT_BUILD, "compile.sh": script, "src/c.c": "sleep\n"}, "scikit-build")
    (source / "stop").touch()
    changes = {"version": project.VersionRecipe(), "build": project.BuildRecipe(front_end="pep517")}
    one = {"project": recipe.model_copy(update=changes), "version": None}
    kill_a_build(lambda: make(**one), source, tmp_path)
    assert compiled(source) == ["a", "b", "c"]
    (source / "stop").unlink()
    assert make(**one).tree == "continued"
    assert compiled(source) == ["c"]
    assert make(**one).tree == "continued"
    assert compiled(source) == []


def kill_a_build(make: Callable[[], object], source: Path, place: Path) -> None:
    """Kill a build while it compiles the file that waits."""
    child = os.fork()
    if child == 0:  # the build that will be killed: a process of its own, with its own children
        try:
            make()
        finally:
            os._exit(1)
    deadline = time.monotonic() + 60
    while not (source / "asleep").exists():
        assert time.monotonic() < deadline, (place / "logs/small.log").read_text()
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    _end_what_works_in(source)


def _end_what_works_in(source: Path) -> None:
    """End the compiler that the killed build left behind, found by the folder it works in."""
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(source):
                process.kill()
                left.append(process)
    _, alive = psutil.wait_procs(left, timeout=20)
    assert not alive


@pytest.fixture
def shared(recipe: project.Project) -> project.Project:
    """The small project, with one tree for all Pythons."""
    rule = project.AcrossPythons(
        again=("build/*.cache", "build/python-*", "small/*.so", "src/*"), reason="a test"
    )
    return recipe.model_copy(update={"build": recipe.build.model_copy(update={"across_pythons": rule})})


def leave(source: Path) -> list[Path]:
    """Write what a build for one Python leaves."""
    made = [source / name for name in ("build/c.cache", "build/python-3/x.o", "small/ext.so")]
    for path in made:
        path.parent.mkdir(exist_ok=True)
        path.write_text("of one Python")
    return made


@pytest.mark.contract
def test_the_next_python_compiles_only_what_is_its_own(
    make: Make, source: Path, shared: project.Project
) -> None:
    assert (make(project=shared, tag="cp311").tree, compiled(source)) == ("new", ["a", "b", "c"])
    made = leave(source)
    assert make(project=shared, tag="cp311").tree == "continued"
    assert all(path.exists() for path in made)
    other = make(project=shared, tag="cp312")
    assert other.tree == "continued; shared with cp311's, 4 parts rebuilt"
    assert not any(path.exists() for path in made)
    assert compiled(source) == []
    assert (source / "mine.so").exists() and (source / "src" / "a.c").exists() and status(source) == ""
    assert make(project=shared, tag="cp312").tree == "continued"
    assert make(("gfx1100",), project=shared, tag="cp312").tree.startswith("new; ")
    assert make(project=shared, tag="cp311").tree.startswith("taken back from parking; shared with cp312's")


@pytest.mark.contract
@pytest.mark.parametrize("deleted", [0, 1, 2])
def test_killed_between_two_pythons_the_tree_belongs_to_none(
    make: Make, source: Path, shared: project.Project, monkeypatch: pytest.MonkeyPatch, deleted: int
) -> None:
    make(project=shared, tag="cp311")
    made = leave(source)
    delete, done = build_trees._delete_path, []

    def killed(path: Path) -> None:
        if len(done) == deleted:
            raise KeyboardInterrupt
        done.append(path)
        delete(path)

    monkeypatch.setattr(build_trees, "_delete_path", killed)
    with pytest.raises(KeyboardInterrupt):
        make(project=shared, tag="cp312")
    monkeypatch.undo()
    compiled(source)
    again = make(project=shared, tag="cp311")  # the first one cannot go on either as if nothing had been
    assert again.tree.startswith("continued; shared with another Python, ")
    assert not any(path.exists() for path in made)
    assert compiled(source) == []


def installed_cmake(place: Path, version: str) -> Path:
    """Make an environment that has a cmake of this version as a package; return its Python."""
    for name in ("bin/cmake", "share/cmake/Modules/x.cmake"):
        (place / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "data" / name).write_text(version)
    programs = {"cmake": "exit 0", "python": f"printf '{version}\\n{place}/data/bin\\n'"}
    for name, text in programs.items():
        (place / "bin").mkdir(exist_ok=True)
        (place / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / "bin" / name).chmod(0o755)
    return place / "bin" / "python"


@pytest.mark.contract
@pytest.mark.skipif(sys.platform == "win32", reason="fakes are shell scripts")
def test_all_pythons_of_a_tree_use_one_cmake(source: Path, shared: project.Project, tmp_path: Path) -> None:
    (tmp_path / "rocm").mkdir()
    sdk = sdk_tree.inspect_sdk(version="7.1.0", **dict.fromkeys(("root", "cmake", "bin"), tmp_path / "rocm"))
    request = build_request.BuildRequest(shared, source, "linux", sdk, ("gfx942",), "1.0", "")
    first, second, newer = (
        installed_cmake(tmp_path / name, version)
        for name, version in (("1", "3.9"), ("2", "3.9"), ("3", "4.0"))
    )
    copies = source / "build" / ".cmake-program"
    (copies / "3.9.part" / "bin").mkdir(parents=True)  # of a run that was killed
    for one in (first, second):
        env = build_trees.keep_cmake_path(request, one, {"PATH": f"{one.parent}:/usr/bin"})
        assert env["PATH"] == f"{copies}/3.9/bin:{one.parent}:/usr/bin"
        assert env["PYTHONPATH"] == f"{copies}/3.9/python"
        assert sorted(path.name for path in copies.iterdir()) == ["3.9"]
        assert (copies / "3.9/share/cmake/Modules/x.cmake").read_text() == "3.9"
    env = build_trees.keep_cmake_path(request, newer, {"PATH": str(newer.parent)})
    assert env["PATH"].startswith(f"{copies}/4.0/bin:") and not (copies / "3.9").exists()
    (newer.parent / "python").write_text("#!/bin/sh\n")  # this cmake is not a package of Python
    assert build_trees.keep_cmake_path(request, newer, {"PATH": str(newer.parent)}) == {
        "PATH": str(newer.parent)
    }
    assert build_trees.keep_cmake_path(request, newer, {"PATH": "/nowhere"}) == {"PATH": "/nowhere"}


@pytest.mark.contract
def test_without_a_rule_every_python_has_its_own_tree(make: Make, source: Path) -> None:
    assert make(tag="cp311").tree == "new"
    assert make(tag="cp312").tree == "new; the tree of another configuration is parked (python tag)"
    assert '"python": {}' in (source / "build" / build_trees.TREE_KEY_FILE).read_text()
