"""Real front ends, real build trees, real compilers: small projects built with setuptools and ninja."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from rocm_wheels.compile.environment import build_environment
from rocm_wheels.compile.failure import BuildFailed
from rocm_wheels.compile.frontend import BuiltWheel, build_wheel
from rocm_wheels.compile.generated import leftovers_excluded
from rocm_wheels.compile.request import BuildRequest
from rocm_wheels.compile.rocm_init import Preloads, ask_preloads, write_generated
from rocm_wheels.compile.sdk_tree import look_at_sdk
from rocm_wheels.compile.trees import KEY_FILE
from rocm_wheels.errors import BuildError, RocmWheelsError, SdkError
from rocm_wheels.model.project import Build, Project, load_project

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]

# A setup.py in the manner of torch's: ninja compiles in build/, the library lands beside the Python files.
SETUP = """
import os, pathlib, subprocess
from setuptools import setup
here = pathlib.Path(__file__).parent
build = here / "build"
build.mkdir(exist_ok=True)
rule = "rule cc\\n command = sh ../compile.sh $in $out\\n"
names = ["a", "b", "c"]
edges = "".join(f"build {n}.o: cc ../src/{n}.c\\n" for n in names)
(build / "build.ninja").write_text(rule + edges)
subprocess.run(["ninja", "-j1"], cwd=build, check=True)
library = here / "small" / "lib.so"
library.write_text(os.environ["PYTORCH_ROCM_ARCH"] + "".join((build / f"{n}.o").read_text() for n in names))
setup(name="small", version=os.environ["BUILD_VERSION"], packages=["small"], package_data={"small": ["*.so"]})
"""
COMPILE = """
echo "$1" >> ../compiled.txt
if grep -q sleep "$1"; then touch ../asleep; while test -f ../stop; do sleep 0.1; done; fi
if grep -q wrong "$1"; then echo "$1:2:3: error: this is wrong"; exit 1; fi
cat "$1" > "$2"
"""


@pytest.fixture
def recipe() -> Project:
    """A project of its own, with audio's way of building."""
    audio = load_project("pytorch_audio")
    build = Build(front_end="setup.py", trees=("build",))
    return audio.model_copy(update={"name": "small", "distribution": "small", "build": build})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    tree = tmp_path / "source"
    files = {
        "setup.py": SETUP,
        "compile.sh": COMPILE,
        "small/__init__.py": "",
        "src/a.c": "a\n",
        "src/b.c": "b\n",
        "src/c.c": "c\n",
        ".gitignore": "/build/\n*.so\n*.egg-info/\n/compiled.txt\n/asleep\n/stop\n/mine.so\n",
    }
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "small"]):
        subprocess.run([*GIT, *command], cwd=tree, check=True)
    (tree / "mine.so").write_text("the user's own\n")
    return tree


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a build environment."""
    uv = find_uv_bin()
    place = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(place)], check=True)
    program = place / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    tools = ["setuptools>=77,<82", "build", "ninja"]
    subprocess.run([uv, "pip", "install", "-q", "--python", str(program), *tools], check=True)
    return program


@pytest.fixture
def base(tmp_path: Path, python: Path) -> dict[str, str]:
    tools = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    return {"PATH": tools, "HOME": str(tmp_path)}


Make = Callable[..., BuiltWheel]


@pytest.fixture
def make(tmp_path: Path, recipe: Project, source: Path, base: dict[str, str], python: Path) -> Make:
    """Return a function that builds the small project."""
    for part in ("bin", "lib/cmake", "lib/rocm_sysdeps"):
        (tmp_path / "sdk" / part).mkdir(parents=True)
    sdk = look_at_sdk(
        version="7.1.0", root=tmp_path / "sdk", cmake=tmp_path / "sdk/lib/cmake", bin=tmp_path / "sdk/bin"
    )

    def build(targets: tuple[str, ...] = ("gfx942",), *, clean: bool = False, **more: Any) -> BuiltWheel:
        request = BuildRequest(
            project=recipe,
            source=source,
            platform="linux",
            sdk=sdk,
            targets=targets,
            version="1.0+rocm7.1.0",
            suffix="+rocm7.1.0",
        )
        request = replace(request, **more)
        return build_wheel(
            request,
            base=base,
            env=build_environment(request, base),
            python=python,
            python_tag="cp311",
            out_dir=tmp_path / "out",
            parking=tmp_path / "work" / "trees",
            log=tmp_path / "logs" / "small.log",
            install_requirements=lambda files: None,
            clean=clean,
        )

    return build


def compiled(source: Path) -> list[str]:
    """Return what was compiled since the last question."""
    log = source / "compiled.txt"
    names = [Path(line).stem for line in log.read_text().split()] if log.exists() else []
    log.unlink(missing_ok=True)
    return names


def library(wheel: BuiltWheel) -> str:
    with zipfile.ZipFile(wheel.path) as archive:
        return archive.read("small/lib.so").decode()


def status(source: Path, *more: str) -> str:
    return subprocess.run(
        [*GIT, "status", "--porcelain", *more], cwd=source, check=True, capture_output=True, text=True
    ).stdout


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


@pytest.mark.parametrize("moves", [1, 2])
def test_a_return_from_parking_that_is_cut_leaves_nothing_behind(
    make: Make, source: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    """Killed while a parked tree came back: what came is not taken for files of a third one."""
    make(("gfx942",))
    for name in ("one.so", "two.so"):
        (source / "small" / name).write_text("of gfx942")
    make(("gfx1100",))
    rename, done = Path.rename, []

    def cut(self: Path, target: Path) -> Path:
        if source in Path(target).parents and len(done) == moves:
            raise KeyboardInterrupt
        done.extend([target] if source in Path(target).parents else [])
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", cut)
    with pytest.raises(KeyboardInterrupt):
        make(("gfx942",))
    monkeypatch.undo()
    assert len(done) == moves and all(Path(path).exists() for path in done)
    third = make(("gfx906",))
    with zipfile.ZipFile(third.path) as archive:
        assert {"small/one.so", "small/two.so"}.isdisjoint(archive.namelist())
    assert make(("gfx942",)).tree == "taken back from parking"
    assert (source / "small" / "one.so").exists() and (source / "small" / "two.so").exists()


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


def test_names_that_are_not_utf_8_are_no_obstacle(make: Make, source: Path) -> None:
    folder = os.fsencode(source)
    for name in (b"/mine\xff.txt", b"/mine\xff.so"):  # untracked, ignored
        Path(os.fsdecode(folder + name)).write_text("the user's own")
    setup = source / "setup.py"
    setup.write_text(setup.read_text() + 'open(b"left\\xff.hip", "w").close()\n')
    make(("gfx942",))
    assert make(("gfx1100",)).tree.startswith("new; ")
    assert b"/left\xff.hip\n" in (source / ".git/info/exclude").read_bytes()
    assert Path(os.fsdecode(folder + b"/mine\xff.so")).read_text() == "the user's own"


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

    def unlink(*given: Any, really: Callable[..., None] = os.unlink, **more: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        really(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        patch.setattr(Path, "unlink", lambda path, **_: unlink(path))  # Python 3.10 does not ask os here
        with pytest.raises(KeyboardInterrupt):
            make(clean=True)
    assert (make().tree, compiled(source)) == ("new", ["a", "b", "c"])
    assert (make().tree, compiled(source)) == ("continued", [])
    assert (source / "mine.so").read_text() == "the user's own\n"


def test_a_tree_of_somebody_else_is_refused_and_never_deleted(
    make: Make, source: Path, tmp_path: Path
) -> None:
    (source / "build").mkdir()
    (source / "build" / "precious.o").write_text("hours")
    with pytest.raises(BuildError, match=r"was not made by rocm-wheels") as fault:
        make()
    assert "--clean" in str(fault.value.tip)
    assert (source / "build" / "precious.o").read_text() == "hours"
    assert "set aside in" in make(clean=True).tree
    assert (tmp_path / "work/trees/small/unnamed-1/trees/build/precious.o").read_text() == "hours"


def test_trees_are_moved_by_renaming_or_not_at_all(make: Make, source: Path, tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == source.stat().st_dev:
        pytest.skip("there is no second file system to write to")
    make(("gfx942",))
    compiled(source)
    (tmp_path / "work").rename(tmp_path / "here")
    place = Path(tempfile.mkdtemp(dir=elsewhere))
    (tmp_path / "work").symlink_to(place)
    try:
        with pytest.raises(BuildError, match="different file systems") as fault:
            make(("gfx1100",))
    finally:
        shutil.rmtree(place)
        (tmp_path / "work").unlink()
    assert "--work-dir" in str(fault.value.tip)
    assert (make(("gfx942",)).tree, compiled(source)) == ("continued", [])


def test_a_file_in_the_way_of_a_parked_one_is_kept(make: Make, source: Path) -> None:
    make(("gfx942",))
    (source / "small" / "made.so").write_text("by the build")
    make(("gfx1100",))
    (source / "small" / "made.so").write_text("the user's own")
    (source / "build" / KEY_FILE).rename(source / "key")
    text = (source / "key").read_text()
    (source / "build" / KEY_FILE).write_text(text.replace('"before": [', '"before": [ "small/made.so",'))
    with pytest.raises(BuildError, match=r"made\.so is there already"):
        make(("gfx942",))
    assert (source / "small" / "made.so").read_text() == "the user's own"


def test_a_damaged_key_file_is_an_error(make: Make, source: Path) -> None:
    make()
    (source / "build" / KEY_FILE).write_text("{")
    with pytest.raises(BuildError, match="is damaged"):
        make()
    assert "set aside" in make(clean=True).tree


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_build_goes_on_where_it_was(make: Make, source: Path, tmp_path: Path) -> None:
    (source / "src/c.c").write_text("sleep\n")
    (source / "stop").touch()
    child = os.fork()
    if child == 0:  # the build that will be killed: a process of its own, with its own children
        try:
            make()
        finally:
            os._exit(1)
    deadline = time.monotonic() + 60
    while not (source / "asleep").exists():
        assert time.monotonic() < deadline, (tmp_path / "logs/small.log").read_text()
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    _end_what_works_in(source)
    assert compiled(source) == ["a", "b", "c"]
    (source / "stop").unlink()
    assert make().tree == "continued"
    assert compiled(source) == ["c"]


def _end_what_works_in(source: Path) -> None:
    """End the compiler that the killed build left behind, found by the folder it works in."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "cwd").resolve().is_relative_to(source)
        except OSError:
            continue
        if inside:
            os.kill(int(process.name), signal.SIGKILL)
    time.sleep(0.2)


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


def test_a_pep_517_build(recipe: Project, make: Make, source: Path) -> None:
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    )
    build = Build(front_end="pep517", trees=("build",))
    wheel = make(project=recipe.model_copy(update={"build": build}))
    assert library(wheel) == "gfx942a\nb\nc\n"


def test_generated_files_do_not_make_a_checkout_look_changed(source: Path, base: Mapping[str, str]) -> None:
    path = source / "small" / "_rocm_init.py"
    name = "small/_rocm_init.py"
    assert write_generated(source, name, "x = 1\n", env=base) is True
    date = path.stat().st_mtime_ns
    assert write_generated(source, name, "x = 1\n", env=base) is False
    assert path.stat().st_mtime_ns == date
    assert status(source) == ""
    exclude = (source / ".git/info/exclude").read_text()
    assert exclude.splitlines().count("/small/_rocm_init.py") == 1
    assert write_generated(source, name, "x = 2\n", env=base) is True
    assert (source / ".git/info/exclude").read_text() == exclude


def test_a_submodule_and_a_plain_folder_are_fine_too(
    source: Path, tmp_path: Path, base: Mapping[str, str]
) -> None:
    linked = tmp_path / "linked"
    subprocess.run([*GIT, "worktree", "add", "-q", str(linked)], cwd=source, check=True)
    write_generated(linked, "small/_rocm_init.py", "x = 1\n", env=base)
    assert status(linked) == ""
    plain = tmp_path / "plain"
    plain.mkdir()
    assert write_generated(plain, "x.py", "x\n", env={**base, "GIT_CEILING_DIRECTORIES": str(tmp_path)})


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_build_leaves_in_a_checkout_is_not_the_users(
    source: Path, tmp_path: Path, base: Mapping[str, str], killed: bool
) -> None:
    marker, log = tmp_path / "running.json", tmp_path / "x.log"
    (source / "mine.txt").write_text("the user's own")
    blocks = [leftovers_excluded(source, marker, log, base)]
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
        blocks.append(leftovers_excluded(source, marker, log, base))
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
    killed = leftovers_excluded(source, marker, log, base)
    killed.__enter__()
    (source / "left.hip").write_text("of the build")
    log.write_text("the end\n")
    with leftovers_excluded(other, marker, log, base):
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
    assert preloads.kept[:3] == ("amd_comgr", "amd_smi", "amdhip64")
    assert "rocm-openblas" in preloads.left_out and "roctx64" in preloads.left_out
    (tmp_path / "rocm_sdk.py").write_text("print('a notice')\n" + SDK)
    with pytest.raises(SdkError, match="gave no list of libraries"):
        ask_preloads(Path(sys.executable), "linux", env)
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    (tmp_path / "rocm_sdk.py").write_text("raise ImportError('broken')\n")
    with pytest.raises(RocmWheelsError, match="broken"):
        ask_preloads(Path(sys.executable), "linux", env)
