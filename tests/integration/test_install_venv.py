"""``install --venv``: an environment of its own, made where it is not there yet; real uv, tiny wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import call
from crash import killed_at_events
from pythons import torch
from wheels import wheel

from rocm_wheels.user.environment import name_uv

BASE = Path(getattr(sys, "_base_executable", sys.executable))
VERSION = "2.9.1+rocm7.2"


def pythons_here() -> dict[str, Path]:
    """Return other Pythons of this machine by version: pyenv's and those on PATH."""
    found: dict[str, Path] = {}
    for folder in sorted((Path.home() / ".pyenv" / "versions").glob("3.*")):
        if (folder / "bin" / "python3").exists():
            found.setdefault(".".join(folder.name.split(".")[:2]), folder / "bin" / "python3")
    for minor in range(10, 16):
        path = shutil.which(f"python3.{minor}")
        if path and "shims" not in path:
            found.setdefault(f"3.{minor}", Path(path))
    found.pop(f"3.{sys.version_info[1]}", None)
    return {version: path for version, path in found.items() if int(version.split(".")[1]) >= 10}


@pytest.fixture(autouse=True)
def own_folders(own_caches: None, tmp_path: Path) -> None:
    torch(tmp_path / "builds", VERSION, "triton==3.5.0")
    wheel(tmp_path / "builds", "triton", "3.5.0")
    wheel(tmp_path / "builds", "apex", "1.0", requires=(f"torch=={VERSION}",))


def words(folder: Path, *more: str | Path, python: Path = BASE) -> list[str]:
    builds = next(one / "builds" for one in folder.parents if (one / "builds").is_dir())
    given = ["--index", builds, "--gfx", "gfx942", "--venv", folder, "--python", python, *more]
    return [str(one) for one in given]


def packages(folder: Path) -> set[str]:
    return {one.name.split("-")[0] for one in folder.rglob("*.dist-info")}


@pytest.mark.contract
def test_it_is_planned_then_made_then_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "venv"
    (tmp_path / "new").mkdir()
    given = words(folder, "torch")
    said = call("install", *given, "--dry-run").out
    assert f"into {folder} (Python " in said and f", new, of {BASE})" in said
    by_hand = said.partition("by hand:\n")[2].splitlines()
    assert by_hand[0] == f"  {name_uv()} venv --no-config --no-project --python {BASE} {folder}"
    assert not folder.exists()
    call("install", *given)
    assert packages(folder) == {"torch", "triton"}
    python = folder / "bin" / "python"
    ask = "import sys, torch; print(sys.prefix, sys.base_prefix != sys.prefix, torch.__file__)"
    told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    assert told == [str(folder), "True", str(next(folder.rglob("torch/__init__.py")))]
    call("install", *given, "apex")  # what is there stays
    assert packages(folder) == {"torch", "triton", "apex"}
    plan = call("install", *given, "--json").json
    assert (plan["made_of"], plan["prefix"]) == (None, str(folder))


@pytest.mark.contract
@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
@pytest.mark.parametrize("like", ["", r"^subprocess\.Popen .*\buv\b"], ids=["any step", "uv is started"])
def test_the_same_command_finishes_what_was_killed_at_any_step(
    tmp_path: Path, *, like: str, exhaustive: bool
) -> None:
    """Before uv makes the environment, before it installs, and at what we write ourselves."""
    folder = tmp_path / "venv"
    for event in killed_at_events(
        lambda: call("install", *words(folder, "torch")),
        begin=lambda: shutil.rmtree(folder, ignore_errors=True),
        exhaustive=exhaustive,
        most=3,
        least=2 if like else 40,
        like=like,
    ):
        call("install", *words(folder, "torch"))
        assert packages(folder) == {"torch", "triton"}, event


def other_things(folder: Path) -> None:
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")


def no_python(folder: Path) -> None:
    folder.mkdir()
    (folder / "pyvenv.cfg").write_text("home = /nowhere\n")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("there", "more", "said"),
    [
        (other_things, [], ("is there, and is no virtual environment", "a folder that is not there yet")),
        (no_python, [], ("does not run\n  because ", "creates it again")),
        (None, ["torch==1.0"], ("torch==1.0", "")),
    ],
)
def test_what_is_refused_leaves_the_disk_as_it_was(
    there: Callable[[Path], None] | None, more: list[str], said: tuple[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "venv"
    if there is not None:
        there(folder)
    before = sorted(folder.rglob("*"))
    told = call("install", *words(folder, *more), code=17 if there is None else 2).err
    assert all(one in told for one in said)
    assert sorted(folder.rglob("*")) == before and folder.exists() == (there is not None)


@pytest.mark.contract
def test_what_is_wrong_with_files_is_found_before_an_environment_is_made(tmp_path: Path) -> None:
    """A folder for wheels that cannot be written; wheels of a lock that were damaged."""
    folder, kept, file = tmp_path / "venv", tmp_path / "kept", tmp_path / "file"
    file.touch()
    told = call("install", *words(folder, "torch", "--keep-wheels", str(file / "x")), code=17).err
    assert "cannot be written" in told and not folder.exists()
    other = words(tmp_path / "other", "torch", "--keep-wheels", str(kept))
    call("install", *other)
    (wheel_file,) = kept.glob("triton-*.whl")
    wheel_file.write_bytes(wheel_file.read_bytes()[:-9])
    lock = ["--lock", str(kept / "pylock.toml"), "--gfx", "gfx942", "--venv", str(folder)]
    assert "has the sha256" in call("install", *lock, code=17).err and not folder.exists()


@pytest.mark.contract
def test_an_environment_of_another_python_is_refused(tmp_path: Path) -> None:
    others = list(pythons_here().values())
    if not others:
        pytest.skip("there is one Python alone on this machine")
    folder = tmp_path / "venv"
    subprocess.run([others[0], "-I", "-m", "venv", "--without-pip", folder], check=True)
    told = call("install", *words(folder, "torch"), code=2).err
    assert (
        f"{folder} is an environment of Python 3." in told and f"and not of 3.{sys.version_info[1]}." in told
    )
    assert packages(folder) == set()
    call("install", *words(folder, "torch", python=others[0]))


@pytest.mark.contract_slow
@pytest.mark.parametrize("word", ["3.{minor}", "python3.{minor}", "cp3{minor}", "python", "environment"])
def test_a_python_is_named_as_people_name_it(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    minor = sys.version_info[1]
    for name in (f"python3.{minor}", "python"):
        (programs / name).symlink_to(BASE)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("environment").symlink_to(sys.prefix)
    given = words(tmp_path / "venv", "torch", "--dry-run", "--json", python=Path(word.format(minor=minor)))
    made_of = call("install", *given).json["made_of"]
    asked = [made_of, "-c", "import sys; print(sys.version_info[1])"]
    assert subprocess.check_output(asked, text=True).strip() == str(minor)
    call("install", *words(tmp_path / "venv", "torch", python=Path("pithon")), code=2)


@pytest.mark.contract
def test_one_that_is_there_needs_no_python(tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    others = list(pythons_here().values())
    subprocess.run([[*others, BASE][0], "-I", "-m", "venv", "--without-pip", folder], check=True)
    given = words(folder, "torch")
    call("install", *[word for word in given if word not in ("--python", str(BASE))])
    assert packages(folder) == {"torch", "triton"}


@pytest.mark.contract_slow
@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("kind", ["plain", "uv-receipt.toml", "pipx_metadata.json"])
def test_the_environment_of_the_program_is_taken_when_it_is_named(
    kind: str, active: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "venv"
    subprocess.run([BASE, "-I", "-m", "venv", "--without-pip", prefix], check=True)
    (prefix / kind).write_text("")
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix) if active else "")
    given = ["torch", "--index", str(tmp_path / "builds"), "--gfx", "gfx942"]
    is_taken = active and kind == "plain"
    call("install", *given, code=0 if is_taken else 17)
    assert packages(prefix) == ({"torch", "triton"} if is_taken else set())
    if not is_taken:
        is_tools = active and kind != "plain"
        if is_tools:
            call("install", *given, "--venv", prefix, code=17)
        assert packages(prefix) == set()
        call("install", *given, "--python", prefix)
    assert packages(prefix) == {"torch", "triton"}


@pytest.mark.contract
def test_a_place_where_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = call("install", *words(tmp_path / "file" / "venv", "torch"), code=17).err
    assert "venv cannot be made: " in told
