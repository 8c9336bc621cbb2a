"""Pythons are found by path and by version, and each is asked what it is. One real Python is enough here."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocm_wheels.core import errors
from rocm_wheels.sdk import interpreters

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="fakes are shell scripts")
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
PROGRAMS = ("executable", "base_executable")
ANSWER = {
    "implementation": "cpython",
    "version": "3.13.1",
    "free_threaded": False,
    "debug": False,
    "bits": 64,
    "platform": "linux-x86_64",
    "headers": None,
}


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """A machine with nothing on it but a shell: no pyenv, no uv Pythons, no python on PATH."""
    (tmp_path / "bin").mkdir()
    return {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{tmp_path}/bin",
        "UV_PYTHON_INSTALL_DIR": f"{tmp_path}/uv",
    }


Find = Callable[..., list[str]]


@pytest.fixture
def find(tmp_path: Path, machine: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Find:
    """Find words on that machine; each found one as "tag path"."""
    monkeypatch.setattr(interpreters, "OPT_PYTHON", tmp_path / "opt")

    def look(*words: str) -> list[str]:
        found = interpreters.find_interpreters(words, machine)
        return [f"{one.tag} {one.path.relative_to(tmp_path)}" for one in found]

    return look


def fake(path: Path, **said: Any) -> Path:
    """Write a program that answers like an interpreter."""
    prefix = str(path.parent.parent)
    where = {"environment": None, "base_prefix": prefix, **dict.fromkeys(PROGRAMS, str(path))}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {shlex.quote(repr({**ANSWER, **where, **said}))}\n")
    path.chmod(0o755)
    return path


def test_places_are_looked_at_in_their_order(tmp_path: Path, find: Find) -> None:
    fake(tmp_path / "bin/python3.13")
    assert find("3.13") == ["cp313 bin/python3.13"]
    fake(tmp_path / "uv/cpython-3.13.1-linux-x86_64-gnu/bin/python3")
    assert find("3.13") == ["cp313 uv/cpython-3.13.1-linux-x86_64-gnu/bin/python3"]
    fake(tmp_path / "home/.pyenv/versions/3.13.1/bin/python")
    fake(tmp_path / "home/.pyenv/versions/3.13.10/bin/python", version="3.13.10")
    fake(tmp_path / "home/.pyenv/versions/pypy3.13-7/bin/python", implementation="pypy")
    assert find("3.13") == ["cp313 home/.pyenv/versions/3.13.10/bin/python"]
    assert find("3.13.1") == ["cp313 home/.pyenv/versions/3.13.1/bin/python"]
    fake(tmp_path / "opt/cp313-cp313/bin/python", version="3.13.9")
    assert find("3.13") == find("cp313-cp313") == find("python3.13") == ["cp313 opt/cp313-cp313/bin/python"]
    assert find("3.13.1") == ["cp313 home/.pyenv/versions/3.13.1/bin/python"]


def test_free_threaded_pythons_have_a_tag_of_their_own(tmp_path: Path, find: Find) -> None:
    fake(tmp_path / "opt/cp313-cp313/bin/python")
    fake(tmp_path / "opt/cp313-cp313t/bin/python", free_threaded=True)
    threaded = tmp_path / "uv/cpython-3.14.0+freethreaded-linux-x86_64-gnu/bin/python"
    fake(threaded, version="3.14.0", free_threaded=True)
    assert find("3.13t", "3.13") == ["cp313t opt/cp313-cp313t/bin/python", "cp313 opt/cp313-cp313/bin/python"]
    assert find("cp313-cp313t", "3.14t")[0].startswith("cp313t ")
    assert find("3.14t") == [f"cp314t {threaded.relative_to(tmp_path)}"]
    with pytest.raises(errors.UsageError, match=r"there is no Python 3\.14 "):
        find("3.14")


def test_nothing_is_taken_for_what_its_name_says(tmp_path: Path, find: Find) -> None:
    program = fake(tmp_path / "bin/python3.12", version="3.11.9")
    with pytest.raises(errors.UsageError, match=rf"no Python 3\.12 (?s:.)*{program} is Python 3\.11\.9"):
        find("3.12")
    fake(tmp_path / "bin/python3", version="3.12.1")
    assert find("3.12") == ["cp312 bin/python3"]
    (tmp_path / "bin/python3.9").symlink_to(sys.executable)
    with pytest.raises(errors.UsageError, match=rf"bin/python3.9 is Python {HERE}"):
        find("3.9")
    assert find(str(program)) == ["cp311 bin/python3.12"]  # a path says nothing about a version
    fake(tmp_path / "opt/cp313-cp313t/bin/python")
    with pytest.raises(errors.UsageError, match=r"cp313-cp313t/bin/python is Python 3\.13\.1"):
        find("3.13t")


def test_a_missing_one_names_every_program_that_was_asked(tmp_path: Path, find: Find) -> None:
    """One that does not run, as pyenv's of versions that are not active, is in the way of no other."""
    fake(tmp_path / "bin/python3", version="3.11.9")
    (tmp_path / "bin/python3.12").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "bin/python3.12").chmod(0o755)
    with pytest.raises(errors.UsageError) as fault:
        find("3.12")
    assert str(fault.value).replace(str(tmp_path), "") == (
        "--python 3.12: there is no Python 3.12 among /opt, pyenv's, uv's and PATH\n"
        "  asking /bin/python3.12 which Python it is failed with exit code 127\n"
        "  /bin/python3 is Python 3.11.9"
    )
    assert fault.value.tip
    fake(tmp_path / "bin/python", version="3.12.1")
    assert find("3.12") == ["cp312 bin/python"]


def test_the_environment_of_this_test_stands_for_the_python_below_it(tmp_path: Path) -> None:
    """Asked for real: environments of the one Python there is, also one made of another environment."""
    env = dict(os.environ)
    own = interpreters.query_interpreter(Path(sys.executable), env)
    assert own.tag == TAG
    assert own.version.startswith(".".join(map(str, sys.version_info[:3])))
    assert Path(sys.base_prefix).resolve() in own.path.parents or own.path.exists()
    first, second = tmp_path / "first", tmp_path / "second"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", first], check=True)
    subprocess.run([first / "bin/python", "-m", "venv", "--without-pip", "--copies", second], check=True)
    for word in (first, first / "bin/python", second, own.path):
        assert interpreters.find_interpreters([str(word)], env) == (own,)
    with pytest.raises(errors.UsageError, match="are the same Python"):
        interpreters.find_interpreters([str(first), str(second)], env)


def test_an_environment_whose_python_is_gone_is_an_error(tmp_path: Path, find: Find) -> None:
    venv, gone = tmp_path / "venv", tmp_path / "gone"
    program = fake(venv / "bin/python", environment=str(venv), base_prefix=str(gone))
    said = rf"{program} is of the virtual environment .*not in {gone}"
    with pytest.raises(errors.UsageError, match=said):
        find(str(program))


REFUSED = [
    ({"implementation": "pypy", "version": "3.10.14"}, r"is pypy 3\.10\.14; wheels of torch"),
    ({"debug": True}, r"is a debug build of Python 3\.13\.1"),
    ({"bits": 32, "platform": "linux-i686"}, r"is a Python 3\.13\.1 of 32 bits \(linux-i686\)"),
]


@pytest.mark.parametrize(("said", "message"), REFUSED)
def test_what_torch_is_not_built_for_is_refused(
    tmp_path: Path, find: Find, said: dict[str, Any], message: str
) -> None:
    program = fake(tmp_path / "bin/python3.13", **said)
    for word in (str(program), "3.13"):
        with pytest.raises(errors.UsageError, match=message):
            find(word)


WRONG = [
    (["nonsense"], "'nonsense' is not a Python"),
    ([""], "'' is not a Python"),
    (["3"], "'3' is not a Python"),
    (["cp312-cp313"], "there is no tag cp312-cp313"),
    (["cp313t-cp313t"], "there is no tag cp313t-cp313t"),
    (["/no/where"], "there is no Python /no/where"),
    (["/usr"], None),
    (["3.13", "cp313"], "3.13 and cp313 are the same Python"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_wrong_words(tmp_path: Path, find: Find, words: list[str], message: str | None) -> None:
    fake(tmp_path / "bin/python3.13")
    if message is None:
        words, message = [str(tmp_path / "home")], "there is no Python in the folder"
        (tmp_path / "home").mkdir()
    with pytest.raises(errors.UsageError, match=message):
        find(*words)


def test_two_pythons_of_one_tag_are_refused(tmp_path: Path, find: Find) -> None:
    one, other = fake(tmp_path / "bin/python3.13"), fake(tmp_path / "other/python", version="3.13.7")
    said = rf"3\.13 and {other} are both cp313: {one} .*3\.13\.1.*3\.13\.7"
    with pytest.raises(errors.UsageError, match=said):
        find("3.13", str(other))


def test_what_does_not_answer_is_an_error(tmp_path: Path, find: Find) -> None:
    program = tmp_path / "bin/strange"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    with pytest.raises(errors.UsageError, match=r"said 'hello'"):
        find(str(program))
    program.write_text("no program")
    with pytest.raises(errors.UsageError, match=r"could not be started"):
        find(str(program))


@pytest.mark.parametrize(
    ("value", "offline"), [("1", True), ("True", True), ("0", False), ("false", False), ("", False)]
)
def test_uv_is_offline_where_its_variable_says_so(value: str, offline: bool) -> None:
    assert interpreters.is_offline({"UV_OFFLINE": value}) is offline
