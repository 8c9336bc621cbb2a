"""`rocm-wheels test` on a torch that works, crashes, hangs, computes wrongly, is broken, or is not there.

Most of it is about a stand-in for torch: a few lines that do what the simplest checks use, and misbehave on
demand. One test is about a real torch, where this Python has one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from commands import Ended, run_program
from warm_python import warm_python

from rocm_wheels.cli import boundary, main
from rocm_wheels.user import selftest

SMOKE_TESTS = Path(__file__).resolve().parents[2] / "smoke-tests"
INIT = """
import os, signal, sys, time, types
from . import version
__version__ = "9.9.0+rocm7.2"
MODE = os.environ.get("STAND_IN", "")
# what it does in a check, where it does not do what is asked for
ENDS = {
    "integers": "wrong",
    "ordering": "crash",
    "reductions-float64": "leaves",
    "reductions-float32": "hang",
    "reductions-float16": "spoiled",
}
if MODE == "dies":
    os.kill(os.getpid(), signal.SIGSEGV)
if MODE == "broken":
    raise ImportError("libamdhip64.so.7: cannot open shared object file")

class Values(list):
    def __add__(self, other):
        return Values(one + other for one in self)
    def __mul__(self, other):
        return Values(one * other for one in self)
    def to(self, device):
        return self
    def cpu(self):
        return self
    def sum(self):
        return sum(iter(self))
    def tolist(self):
        return list(self)

int32 = int64 = float64 = None
rand = None

def arange(count, device=None, dtype=None):
    return Values(range(1 if end_of_check() == "wrong" and count == 3 else 0, count))

def equal(one, other):
    return list(one) == list(other)

def Generator(device):
    end = end_of_check()
    if end == "crash":
        sys.stderr.write("about to crash\\n")
        os.kill(os.getpid(), signal.SIGSEGV)
    if end == "leaves":
        os._exit(0)
    if end == "hang":
        time.sleep(60)
    if end == "spoiled":
        raise RuntimeError("HIP error: invalid device function\\nfor debugging consider passing")
    raise AttributeError("there is no generator")

def end_of_check():
    test = os.environ.get("PYTEST_CURRENT_TEST", "") if MODE == "ends" else ""
    return next((ENDS[name] for name in ENDS if all(part in test for part in name.split("-"))), "")

class cuda:
    matmul = types.SimpleNamespace()
    @staticmethod
    def is_available():
        if MODE == "driver":
            os.kill(os.getpid(), signal.SIGSEGV)
        return MODE == "gpu"
    device_count = staticmethod(lambda: int(os.environ.get("GPUS", "1")))
    set_device = staticmethod(lambda device: None)
    synchronize = staticmethod(lambda: None)
    is_initialized = staticmethod(lambda: False)
    get_arch_list = staticmethod(lambda: ["gfx1100"])
    @staticmethod
    def get_device_properties(index):
        class Of:
            name, gcnArchName, total_memory, major, minor = "Radeon 0", "gfx1100", 1 << 34, 11, 0
        return Of

class backends:
    cuda = cudnn = cuda
"""


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    place = tmp_path / "site" / "torch"
    place.mkdir(parents=True)
    (place / "__init__.py").write_text(INIT)
    (place / "version.py").write_text('hip = "7.2.26015"\ncuda = None\n')
    return place.parent


def environment(torch: Path, mode: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(torch), "STAND_IN": mode}


def command(env: dict[str, str], *words: str, code: int | None = 0) -> Ended:
    argv = [*warm_python(), "-m", "rocm_wheels", "test", "quick", *words]
    ended = run_program(argv, cwd=Path.cwd(), env=env)
    assert code in (None, ended.code), ended.out + ended.err
    return ended


# what torch does in a check, as the stand-in has it → what comes of that check, words of it
ENDS = {
    "integers": ("fail", "0, 1, 2 and 10 each make [11, 12]"),
    "ordering": ("crash", "crashed with SIGSEGV"),
    "reductions float64": ("crash", "ended with exit code 0 in the middle"),
    "reductions float32": ("timeout", "stopped after 5 s"),
    "reductions float16": ("fail", "RuntimeError: HIP error: invalid device function"),
    "norms": ("fail", "there is no generator"),
}


@pytest.mark.contract
@pytest.mark.skipif(sys.platform != "linux", reason="signals")
def test_each_end_is_the_outcome_of_one_check(
    torch: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(selftest, "CASE_SECONDS", 5.0)
    monkeypatch.setenv("PYTHONPATH", str(torch))
    monkeypatch.setenv("STAND_IN", "ends")
    words = ["test", "quick", "math", "--device", "cpu", "--python", sys.executable, "--json"]
    assert boundary.run_command(main.cli, words) == 16
    printed = capfd.readouterr()
    assert "configure --python" in printed.err  # one has no kernels for the GPU
    outcomes = {outcome["name"]: outcome for outcome in json.loads(printed.out)["outcomes"]}
    for name, (state, words) in ENDS.items():
        outcome = outcomes[name]
        assert (outcome["group"], outcome["device"], outcome["state"]) == ("math", "cpu", state)
        assert words in outcome["detail"]
        assert ("about to crash" in outcome["detail"]) == (name == "ordering")
    assert not (SMOKE_TESTS / ".pytest_cache").exists()


@pytest.mark.contract
def test_exit_codes_and_json(torch: Path) -> None:
    said = json.loads(command(environment(torch, ""), "import", "--device", "cpu", "--json").out)
    assert set(said) == {"python", "torch", "devices", "outcomes", "ok"}
    assert said["ok"] and said["torch"]["kind"] == "rocm" and said["devices"] == ["cpu"]
    assert [one["state"] for one in said["outcomes"] if one["name"] == "torch"] == ["pass"]
    assert set(said["outcomes"][0]) == {"group", "name", "device", "state", "detail", "seconds"}

    ended = command(environment(torch, ""), "import", code=16)
    assert "torch is a build for rocm and sees no GPU" in ended.out
    ended = command(environment(torch, ""), "import", "--device", "gpu", code=16)
    assert "a GPU is required, and torch (rocm) sees none" in ended.out
    said = json.loads(command(environment(torch, "gpu"), "import", "--json").out)
    assert said["devices"] == ["cuda:0"]


@pytest.mark.contract_slow
def test_each_device_is_tested(torch: Path) -> None:
    words = ("import", "devices", "--device", "all", "--json")
    said = json.loads(command({**environment(torch, "gpu"), "GPUS": "2"}, *words, code=None).out)
    assert said["devices"] == ["cpu", "cuda:0", "cuda:1"]
    there = "data there and back"
    tested = [(one["device"], one["state"]) for one in said["outcomes"] if one["name"] == there]
    assert tested == [("cpu", "pass"), ("cuda:0", "pass"), ("cuda:1", "pass")]
    builds = [one["device"] for one in said["outcomes"] if one["name"].startswith("build is of the kind")]
    assert builds == [""], "what is about no device is tested once"


@pytest.mark.contract
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
    ended = command(environment(torch, mode), *words, code=code)
    assert said in ended.out + ended.err


@pytest.mark.contract
def test_without_torch(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=sys.platform != "win32")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = command(env, "--python", str(tmp_path / "env"), code=17).err
    assert "torch is not installed in" in said
    assert "-m rocm_wheels install --venv my-torch" in said  # as it was started


def test_every_group_has_checks_and_every_quick_test_a_group(torch: Path) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "-m", "quick"]
    env = environment(torch, "gpu")
    ended = run_program([*argv, "--smoke-device=cuda:0"], cwd=SMOKE_TESTS, env=env)
    files = {line.partition("::")[0] for line in ended.out.splitlines() if "::" in line}
    assert files == {name for group in selftest.CASE_GROUPS for name in selftest.GROUP_FILES[group]}


@pytest.mark.contract_slow
@pytest.mark.skipif(sys.platform != "linux", reason="signals")
def test_a_python_without_pytest_is_lent_one_and_nothing_else(torch: Path, tmp_path: Path) -> None:
    """uv puts it beside; here an index of one wheel stands for PyPI, whose pytest says what it is told."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    wheel = tmp_path / "wheels" / "pytest-99.0-py3-none-any.whl"
    wheel.parent.mkdir()
    own = Path(pytest.__file__).parents[1]
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("py.py", "pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
            for file in sorted((own / name).rglob("*.py")) if (own / name).is_dir() else [own / name]:
                archive.write(file, file.relative_to(own).as_posix())
        # pluggy asks for its own version; here it is in the wheel of pytest
        archive.writestr(
            "pytest-99.0.data/purelib/pluggy-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: pluggy\nVersion: 1.0\n",
        )
        info = "pytest-99.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pytest\nVersion: 99.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        names = "".join(f"{name},,\n" for name in archive.namelist())
        archive.writestr(f"{info}/RECORD", f"{names}{info}/RECORD,,\n")
    env = {**environment(torch, ""), "UV_FIND_LINKS": str(wheel.parent), "UV_OFFLINE": "1"}
    env["UV_CACHE_DIR"] = str(tmp_path / "cache")
    words = ["import", "math", "--device", "cpu", "--json", "--python", str(python)]
    ended = command(env, *words, code=None)
    said = json.loads(ended.out)["outcomes"]
    outcomes = {outcome["name"]: outcome["state"] for outcome in said}
    assert outcomes["integers"] == "pass", ended.err
    assert "exact" in next(outcome["detail"] for outcome in said if outcome["name"] == "integers")
    assert outcomes["numpy and back"] == "skip"
    assert not [*(tmp_path / "env").rglob("*pytest*")], "the environment stays what it is"


@pytest.mark.contract
@pytest.mark.skipif(sys.platform != "linux", reason="signals")
def test_without_a_pytest_to_lend_nothing_begins(torch: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    env = {**environment(torch, ""), "UV_OFFLINE": "1", "UV_CACHE_DIR": str(tmp_path / "cache")}
    env |= {"UV_FIND_LINKS": "", "UV_CONFIG_FILE": os.devnull}
    words = ("math", "--device", "cpu", "--python", str(tmp_path / "env" / "bin" / "python"))
    ended = command(env, *words, code=16)
    assert ended.out == ""
    assert "lending pytest" in ended.err and "uv pip install --python" in ended.err


@pytest.mark.contract
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="this Python has no torch")
def test_a_real_torch_passes() -> None:
    command(dict(os.environ), "import", "devices", "math", "functions", "--device", "cpu")
