"""One build tree for several Pythons: what only one of them can use is made again, the rest is kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from projects import Make, base, compiled, make, python, recipe, source, status

from rocm_wheels.compile import build_request, build_trees, sdk_tree
from rocm_wheels.models import project

pytestmark = pytest.mark.contract

__all__ = ["base", "make", "python", "recipe", "source"]


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


def test_without_a_rule_every_python_has_its_own_tree(make: Make, source: Path) -> None:
    assert make(tag="cp311").tree == "new"
    assert make(tag="cp312").tree == "new; the tree of another configuration is parked (python tag)"
    assert '"python": {}' in (source / "build" / build_trees.TREE_KEY_FILE).read_text()
