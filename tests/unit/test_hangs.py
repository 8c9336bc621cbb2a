"""A test that hangs fails, wherever it hangs, and those after it run: what tests/conftest.py promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

OURS = f"""
from importlib import util
spec = util.spec_from_file_location("ours", {str(CONFTEST)!r})
ours = util.module_from_spec(spec)
spec.loader.exec_module(ours)
ours.LIMIT, ours.AGAIN = 0.5, 3.0
pytest_runtest_protocol = ours.pytest_runtest_protocol
"""

CRASHES = """
import os, pathlib

def test_crashes_once():
    if not pathlib.Path("crashed").exists():
        pathlib.Path("crashed").touch()
        os._exit(3)
"""

TESTS = """
import subprocess, threading, pytest

@pytest.fixture
def waits_at_its_end():
    yield
    threading.Event().wait()

def test_waits_twice():
    with subprocess.Popen(["sleep", "100"]) as child:  # which waits for its end too
        child.wait()

def test_fails(waits_at_its_end):
    assert False

def test_is_fine():
    pass
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no alarms there")
def test_tests_that_hang_fail_and_the_others_run(tmp_path: Path) -> None:
    for name, text in {"conftest.py": OURS, "test_hangs.py": TESTS, "pytest.ini": "[pytest]"}.items():
        (tmp_path / name).write_text(text)
    words = "-m pytest -p no:xdist -p no:hypothesispytest --junitxml=results.xml"
    argv = [sys.executable, *words.split()]
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout
    suite = next(ElementTree.parse(tmp_path / "results.xml").iter("testsuite"))
    outcomes = [(case.get("name"), [fault.tag for fault in case]) for case in suite]
    assert outcomes == [
        ("test_waits_twice", ["failure"]),
        ("test_fails", ["failure"]),
        ("test_fails", ["error"]),
        ("test_is_fine", []),
    ]
    (waits, *_) = suite
    assert "most recent call first" in (waits[0].text or "")


def test_a_worker_that_crashes_does_not_stop_the_others(tmp_path: Path) -> None:
    """Each module has one test: the worker that comes for the crashed one gets a module that is no two."""
    ours = OURS + "pytest_xdist_make_scheduler = ours.pytest_xdist_make_scheduler\n"
    files = {"conftest.py": ours, "pytest.ini": "[pytest]", "test_crash.py": CRASHES}
    for name in ("test_x.py", "test_y.py"):
        files[name] = "def test_is_fine(): pass"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    words = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "no:hypothesispytest"]
    argv = [sys.executable, "-m", "pytest", *words, "--junitxml=results.xml"]
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout
    suite = next(ElementTree.parse(tmp_path / "results.xml").iter("testsuite"))
    assert {case.get("name") for case in suite} == {"test_crashes_once", "test_is_fine"}
    assert suite.get("failures") == "1" or suite.get("errors") == "1", ended.stdout
