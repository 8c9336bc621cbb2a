"""`rocm-wheels test` on a torch that works, crashes, hangs, computes wrongly, is broken, or is not there.

Most of it is about a stand-in for torch: a few lines that do what the simplest checks use, and misbehave on
demand. One test is about a real torch, where this Python has one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from rocm_wheels.hosts import CASE_GROUPS, SelfTestCase, list_case_names, run_cases

INIT = """
import os, signal, sys, time
from . import version
__version__ = "9.9.0+rocm7.2"
MODE = os.environ.get("STAND_IN", "")
if MODE == "dies":
    os.kill(os.getpid(), signal.SIGSEGV)
if MODE == "broken":
    raise ImportError("libamdhip64.so.7: cannot open shared object file")

class Values(list):
    def __add__(self, other):
        return Values(one + other for one in self)
    def tolist(self):
        return list(self)

def arange(count, device=None):
    if MODE == "crash":
        sys.stderr.write("about to crash\\n")
        os.kill(os.getpid(), signal.SIGSEGV)
    if MODE == "leaves":
        os._exit(0)
    if MODE == "hang":
        time.sleep(60)
    if MODE == "spoiled":
        raise RuntimeError("HIP error: invalid device function\\nfor debugging consider passing")
    return Values(range(1 if MODE == "wrong" else 0, count))

class cuda:
    matmul = None
    @staticmethod
    def is_available():
        if MODE == "driver":
            os.kill(os.getpid(), signal.SIGSEGV)
        return MODE == "gpu"
    device_count = staticmethod(lambda: 1)
    synchronize = staticmethod(lambda: None)
    @staticmethod
    def get_device_properties(index):
        class Of:
            name, gcnArchName, total_memory, major, minor = "Radeon 0", "gfx1100", 1 << 34, 11, 0
        return Of

class backends:
    cuda = cudnn = cuda
"""
MATHS = [SelfTestCase("math", "integers", "cpu"), SelfTestCase("math", "ordering", "cpu")]


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    place = tmp_path / "site" / "torch"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text(INIT)
    (place / "version.py").write_text('hip = "7.2"\ncuda = None\n')
    return place.parent


def environment(torch: Path, mode: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(torch), "STAND_IN": mode}


def command(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "rocm_wheels", "test", *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=100)


# what torch does → what comes of the first check, words of it; the second one always gets its turn
@pytest.mark.parametrize(
    ("mode", "state", "words"),
    [
        ("", "pass", "exact"),
        ("wrong", "fail", "0, 1, 2 and 10 each make [11, 12]"),
        ("spoiled", "fail", "RuntimeError: HIP error: invalid device function"),
        ("crash", "crash", "crashed with SIGSEGV"),
        ("leaves", "crash", "ended in the middle of it, with exit code 0"),
        ("hang", "timeout", "stopped after 1 s"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="signals")
def test_each_end_is_the_outcome_of_one_check(
    torch: Path, tmp_path: Path, mode: str, state: str, words: str
) -> None:
    begun = time.monotonic()
    env = environment(torch, mode)
    first, second = run_cases(MATHS, Path(sys.executable), env, tmp_path, limit=1.0)
    assert (first.case, first.state) == (MATHS[0], state)
    assert words in first.detail
    assert ("about to crash" in first.detail) == (mode == "crash")
    assert (second.case, second.state) == (MATHS[1], "fail"), "the stand-in has no generator"
    assert time.monotonic() - begun < 20


def test_exit_codes_and_json(torch: Path) -> None:
    ended = command(environment(torch, ""), "import", "--device", "cpu", "--json")
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["ok"] and said["torch"]["kind"] == "rocm" and said["devices"] == ["cpu"]
    assert [one["state"] for one in said["outcomes"] if one["name"] == "torch"] == ["pass"]

    ended = command(environment(torch, ""), "import")
    assert ended.returncode == 16, "a build for GPUs that sees none"
    assert "torch is a build for rocm and sees no GPU" in ended.stdout

    ended = command(environment(torch, "gpu"), "import", "--json")
    assert ended.returncode == 0 and json.loads(ended.stdout)["devices"] == ["cuda:0"]


@pytest.mark.skipif(sys.platform != "linux", reason="signals")
@pytest.mark.parametrize(
    ("mode", "words", "code", "said"),
    [
        ("dies", ["math"], 16, "crash   import torch: crashed with SIGSEGV"),
        ("driver", ["math"], 16, "crash   devices listing: crashed with SIGSEGV"),
        ("broken", ["math"], 16, "ImportError: libamdhip64.so.7: cannot open shared object file"),
        ("", ["math", "--device", "cuda:1"], 2, "torch sees no device cuda:1"),
    ],
)
def test_what_cannot_be_tested(torch: Path, mode: str, words: list[str], code: int, said: str) -> None:
    ended = command(environment(torch, mode), *words)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert said in ended.stdout + ended.stderr


def test_without_torch(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=sys.platform != "win32")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = command(env, "--python", str(tmp_path / "env"))
    assert ended.returncode == 17
    assert "torch is not installed in" in ended.stderr and "rocm-wheels install" in ended.stderr


def test_every_group_has_checks() -> None:
    assert all(list_case_names(group) for group in CASE_GROUPS)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="this Python has no torch")
def test_a_real_torch_passes() -> None:
    ended = command(dict(os.environ), "import", "devices", "math", "functions", "--device", "cpu")
    assert ended.returncode == 0, ended.stdout
