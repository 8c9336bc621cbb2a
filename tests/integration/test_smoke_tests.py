"""The smoke tests' harness on a torch that is a stand-in: every way in which a test can end, and is counted.

Most tests run a few trial tests beside a copy of the harness. The last one runs the CPU half of the real ones
on a real torch, where this Python has one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from commands import run_program
from warm_python import warm_python

from rocm_wheels.cli import boundary
from rocm_wheels.cli.torch_tests import smoke_script
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.models.test_results import Results, TestResult
from rocm_wheels.testing import installed_torch, results, runner, smoke
from rocm_wheels.testing.results import read_results

CLONE = Path(__file__).resolve().parents[2]
HARNESS = ("conftest.py", "inspect_torch.py", "probe.py", "pytest.ini")
DOOR = CLONE / "build_tools" / "run_pytorch_smoke_tests.py"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals and sessions")

INIT = """
import os, signal, types
from . import version
__version__ = "9.9.0+rocm7.2"
MODE = os.environ.get("STAND_IN", "")
if MODE == "dies":
    os.kill(os.getpid(), signal.SIGSEGV)
if MODE == "broken":
    raise ImportError("libamdhip64.so.7: cannot open shared object file")

class cuda:
    matmul = types.SimpleNamespace()
    poisoned = False
    @staticmethod
    def is_available():
        if MODE == "driver":
            os.kill(os.getpid(), signal.SIGSEGV)
        return MODE == "gpu" and os.environ.get("HIP_VISIBLE_DEVICES") != "-1"
    device_count = staticmethod(lambda: 1)
    @staticmethod
    def get_device_properties(index):
        targets = ["gfx1100", "gfx942:sramecc+"]
        gfx = targets[int(os.environ.get("HIP_VISIBLE_DEVICES", "0"))]
        return types.SimpleNamespace(name="Radeon 0", gcnArchName=gfx)
    @staticmethod
    def is_initialized():
        return MODE == "gpu"
    @staticmethod
    def synchronize():
        if os.path.exists(late := os.environ["NOTE"] + ".late"):
            os.unlink(late)
            raise RuntimeError("HIP error: an illegal memory access was encountered")

class arange:
    def __init__(self, number, dtype):
        self.numbers = range(number)
    def to(self, device):
        if cuda.poisoned:
            raise RuntimeError("HIP error: an illegal memory access was encountered")
        if os.path.exists(os.environ["NOTE"] + ".lost"):
            os.kill(os.getpid(), signal.SIGABRT)
        return self
    def __mul__(self, number):
        wrong = os.environ.get("WRONG", "0")
        return types.SimpleNamespace(sum=lambda: number * sum(self.numbers) + int(wrong))
    def sum(self):
        return sum(self.numbers)

int64 = None
backends = types.SimpleNamespace(cuda=cuda, cudnn=types.SimpleNamespace())
"""
TRIALS = """
import os, signal, subprocess, sys, time
import pytest

def test_passes(torch, said, record_property):
    record_property("tflops:gemm f16", 431.5)
    import resource
    assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0, "no core is left"
    said(f"torch {torch.__version__}")

def test_fails():
    print("about to fail")
    assert 1 == 2, "the result is 1"

def test_skips():
    pytest.skip("not today")

def test_crashes():
    os.write(2, b"about to crash\\n")
    os.kill(os.getpid(), signal.SIGSEGV)

def test_leaves():
    os._exit(0)

@pytest.mark.limit(0.5)
def test_hangs():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(os.environ["NOTE"], "w").write(str(child.pid))
    time.sleep(600)

def test_prints():
    while True:
        os.write(1, b"x" * (1 << 20))

def test_orphans():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(os.environ["NOTE"] + ".orphan", "w").write(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    os.wait()
    while not os.path.exists(os.environ["NOTE"] + ".orphan"):
        time.sleep(0.01)

@pytest.mark.gpu
def test_errs_late(device):
    open(os.environ["NOTE"] + ".late", "w").close()

@pytest.mark.gpu
def test_kills(device):
    open(os.environ["NOTE"] + ".lost", "w").close()
    os.kill(os.getpid(), signal.SIGABRT)

@pytest.mark.gpu
def test_of_gpu(device):
    assert device == "cuda:0"

def test_both(device, dtype_row):
    if device != "cpu" and dtype_row["not_here"]:
        pytest.skip(dtype_row["not_here"])
"""
ENDS = {
    "test_passes": ("passed", "torch 9.9.0+rocm7.2"),
    "test_fails": ("failed", "the result is 1"),
    "test_skips": ("skipped", "not today"),
    "test_crashes": ("crashed", "crashed with SIGSEGV\n  | about to crash"),
    "test_leaves": ("crashed", "ended with exit code 0 in the middle"),
    "test_hangs": ("timeout", "stopped after 0.5 s"),
    "test_orphans": ("passed", ""),
    "test_prints": ("crashed", "stopped: it printed more than 64 MB"),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The harness with trial tests, and a stand-in for torch beside it."""
    folder = tmp_path / "smoke-tests"
    folder.mkdir()
    for name in HARNESS:
        shutil.copy(CLONE / "smoke-tests" / name, folder)
    (folder / "test_trial.py").write_text(TRIALS)
    torch = tmp_path / "site" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text(INIT)
    (torch / "version.py").write_text('hip = "7.2.26015-9428210"\ncuda = None\n')
    return tmp_path


def environment(place: Path, mode: str = "") -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HIP_", "ROCR_"))
    }
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(place / "site")}
    return {**kept, **quick, "STAND_IN": mode, "NOTE": str(place / "note")}


def enter(place: Path, monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """Have commands in this process run in that environment, and folder."""
    wanted = {**environment(place), **variables}
    for name in (name for name in os.environ if name not in wanted and name != "PYTEST_CURRENT_TEST"):
        monkeypatch.delenv(name)
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place)


def run(
    place: Path,
    mode: str,
    *words: str,
    gpus: tuple[Gpu, ...] = (),
    targets: tuple[str, ...] | None = None,
    **more: Any,
) -> list[Results]:
    """Run the smoke tests of the folder on each of the GPUs, as the command does."""
    env, folder = environment(place, mode), place / "smoke-tests"
    target = installed_torch.inspect_target_python(Path(sys.executable), env)
    request = smoke.make_smoke_request(target, folder, place, words=words, **more)
    found = []
    for spot in smoke.choose_smoke_places(target, gpus, env, targets):
        found.append(runner.run_in_place(request, spot, place / f"of {spot.label}", sys.stdout.write))
    return found


def named(results: Results) -> dict[str, TestResult]:
    return {test.name.partition("::")[2] or test.name: test for test in results.tests}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.contract
def test_each_end_is_the_outcome_of_one_test(place: Path) -> None:
    (ran,) = run(place, "", "-k", "not both and not kills and not late", files=["test_trial.py"])
    found = named(ran)
    for name, (outcome, detail) in ENDS.items():
        assert (found[name].outcome, detail in found[name].detail) == (outcome, True), found[name]
    assert found["test_of_gpu[gpu]"].detail == "torch 9.9.0+rocm7.2 (ROCm 7.2.26015-9428210) sees no AMD GPU"
    assert found["test_passes"].measurements == {"tflops:gemm f16": 431.5}
    assert not ran.good
    assert ran.counts == {"passed": 2, "failed": 1, "crashed": 3, "timeout": 1, "skipped": 2}
    assert not is_alive(int((place / "note").read_text())), "what a stopped test had started is gone"
    assert not is_alive(int((place / "note.orphan").read_text())), "nor lives what left its session"
    assert max(len(test.detail) for test in ran.tests) < 8000
    assert ran.selected.startswith("-k 'not both and not kills and not late'; ")
    assert re.search(r"; \d{2,} tests left out$", ran.selected)


# a test hangs in a call that no signal ends; one poisons the GPU for its process
MORE_TRIALS = """
import signal, time
import pytest

def test_blocks():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(600)

@pytest.mark.gpu
def test_poisons(device):
    import torch
    torch.cuda.poisoned = True
    assert False, "hipErrorIllegalAddress"

@pytest.mark.gpu
def test_behind(device):
    import torch
    assert not torch.cuda.poisoned

def test_of_cpu():
    pass
"""


@pytest.mark.contract
def test_a_poisoned_gpu_and_a_blocked_process_cost_one_test_each(place: Path) -> None:
    (place / "smoke-tests" / "test_trial.py").write_text(MORE_TRIALS)
    (only,) = run(place, "gpu", gpus=GPUS[1:], limit=2.0)
    found = named(only)
    assert found["test_blocks"].outcome == "timeout"
    assert found["test_poisons[gpu]"].outcome == "failed"
    assert found["test_behind[gpu]"].verdict == "passed", "it began in a fresh process"
    assert only.gfx == "gfx942" and only.files and not only.lost_gpu
    (few,) = run(place, "gpu", "-k", "of_cpu", gpus=GPUS[1:])
    assert few.good and few.gfx is None, "what was chosen needs no GPU"


def test_a_test_may_say_nothing_for_as_long_as_it_marks_itself_with(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = "import pytest, time\n@pytest.mark.limit(60)\ndef test_quiet():\n    time.sleep(4)\n"
    (place / "smoke-tests" / "test_trial.py").write_text(quiet)
    monkeypatch.setattr(runner, "_QUIET_SECONDS", 2.0)
    monkeypatch.setattr(smoke, "TEST_SECONDS", 0.5)
    (only,) = run(place, "")
    assert named(only)["test_quiet"].outcome == "passed"


@pytest.mark.contract
def test_nothing_more_is_tried_on_a_gpu_that_is_lost(place: Path) -> None:
    """The first test takes the GPU along; the others would each wait for their limit."""
    (ran,) = run(place, "gpu", "-k", "late or kills or of_gpu or passes", gpus=GPUS[1:])
    found = named(ran)
    assert found["test_passes"].outcome == "passed" and found["test_kills[gpu]"].outcome == "crashed"
    late = found["test_errs_late[gpu]"]
    assert late.outcome == "failed" and "illegal memory access" in late.detail, (
        "it is of the test that made it"
    )
    assert found["test_of_gpu[gpu]"].outcome == "missing" and not ran.good
    assert ran.lost_gpu.startswith("gfx942, at smoke: the gfx942 does not calculate any more: the process")


@pytest.mark.contract
def test_a_gpu_that_is_there_and_does_not_calculate_fails_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG", "1")
    (ran,) = run(place, "gpu", "-k", "of_gpu", gpus=GPUS[1:])
    (only,) = ran.tests
    assert only.outcome == "failed" and not ran.lost_gpu, "it never calculated: the wheel may be at fault"
    assert "does not calculate: a sum of whole numbers on it is wrong" in only.detail


RUNNER = """
import os, sys
from pathlib import Path
from rocm_wheels.testing import installed_torch, runner, smoke, tested_gpus
place = Path(sys.argv[1])
folder = place / "smoke-tests"
target = installed_torch.inspect_target_python(Path(sys.executable), os.environ)
words = ("-k", "passes or hangs or of_gpu")
request = smoke.make_smoke_request(target, folder, place, words=words, limit=60)
runner.run_in_place(request, tested_gpus.GpuPlace("cpu", None, dict(os.environ)), place / "out", print)
"""


@pytest.mark.contract
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_half_a_run_never_looks_like_a_whole_one(place: Path, sign: int) -> None:
    env = environment(place)
    env["PYTHONPATH"] += f":{CLONE / 'build_tools'}"
    argv = [sys.executable, "-c", RUNNER, str(place)]
    child = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    note = place / "note"
    while not (note.is_file() and note.read_text()):
        assert child.poll() is None
        time.sleep(0.05)
    child.send_signal(sign)
    assert child.wait(20) != 0
    left = results.read_results(place / "out" / "results.json")
    assert left.counts["missing"] and not left.files and not left.good, left
    if sign == signal.SIGINT:
        names = {name: test.outcome for name, test in named(left).items()}
        assert names == {"test_passes": "passed", "test_hangs": "missing", "test_of_gpu[gpu]": "missing"}
    deadline = time.monotonic() + 60
    while is_alive(int(note.read_text())):
        assert time.monotonic() < deadline, "what the test had started outlives the run"
        time.sleep(0.05)


GPUS = tuple(Gpu("amd", gfx=gfx, index=n, hip_index=n) for n, gfx in enumerate(("gfx1100", "gfx942")))


@pytest.mark.contract
def test_each_kind_of_gpu_is_tested_and_has_its_results(place: Path) -> None:
    ran = run(place, "gpu", "-k", "passes or of_gpu or float8_e4m3fnuz-scaled_mm", gpus=GPUS)
    first, second = ran
    assert first.good and second.good and (first.gfx, second.gfx) == ("gfx1100", "gfx942")
    assert named(second)["test_of_gpu[gpu]"].outcome == "passed"
    assert named(second)["test_both[gpu-float8_e4m3fnuz-scaled_mm]"].outcome == "passed"
    left_out = named(first)["test_both[gpu-float8_e4m3fnuz-scaled_mm]"]
    assert left_out.outcome == "skipped" and left_out.detail.startswith(
        "float8_e4m3fnuz is held and converted on gfx1100 (rdna3)"
    )
    assert [one.counts for one in ran] == [{"passed": 3, "skipped": 1}, {"passed": 4}]


# how torch behaves, what is asked → counts, words of a reason
@pytest.mark.contract
@pytest.mark.parametrize(
    ("mode", "more", "gpus", "counts", "words"),
    [
        ("", {"require_gpu": True}, (), {"passed": 1, "failed": 1}, "sees no AMD GPU"),
        ("gpu", {}, ("gfx906",), {"passed": 1, "failed": 2}, "gfx906 is to be"),
        ("driver", {}, (), {"passed": 1, "failed": 1}, "listing the GPUs crashed with SIGSEGV"),
        ("dies", {}, (), {"skipped": 2, "crashed": 1}, "not tried: torch does not start"),
    ],
)
def test_without_a_gpu_and_without_a_torch(  # noqa: PLR0917 - pytest passes them by name
    place: Path, mode: str, more: dict[str, object], gpus: tuple[str, ...], counts: dict[str, int], words: str
) -> None:
    there = tuple(Gpu("amd", gfx=gfx, index=0, hip_index=0) for gfx in gpus)
    (ran,) = run(place, mode, "-k", "passes or of_gpu", gpus=there, **more)
    assert not ran.good
    assert ran.counts == counts
    assert any(words in test.detail for test in ran.tests)


# variables, options → exit code, whether there are results, and what they name of the environment
FAMILY = {"AMDGPU_FAMILY": "gfx94X-dcgpu"}
FAMILIES = [
    ({}, ("--amdgpu-family", "gfx94X-dcgpu"), 16, None),
    ({}, ("--family", "RX 7900 XTX"), 16, None),
    (FAMILY, (), 16, None),
    ({**FAMILY, "ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx1100"}, (), 16, None),
    ({"AMDGPU_FAMILY": "gfx94Z"}, (), 2, None),
    ({"AMDGPU_FAMILY": ""}, (), 0, {}),
    (FAMILY, ("--amdgpu-family=",), 0, {}),
    ({"AMDGPU_FAMILY": "gfx94Z", "ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx942"}, ("--family", "gfx94X"), 1, {}),
    # this torch sees no such GPU
    ({**FAMILY, "ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx942"}, (), 1, FAMILY),
]


@pytest.mark.contract
@pytest.mark.parametrize(("variables", "options", "code", "record"), FAMILIES)
def test_a_family_is_tested_on_a_gpu_or_not_at_all(  # noqa: PLR0917
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    options: tuple[str, ...],
    code: int,
    record: dict[str, str] | None,
) -> None:
    enter(place, monkeypatch, **variables)
    assert boundary.run_command(smoke_script, [*options, "--", "-k", "torch_starts"]) == code
    path = place / "smoke-results" / "results.json"
    assert path.is_file() == (record is not None)
    if record is not None:
        words = ", ".join(f"{name}={value}" for name, value in record.items())
        assert read_results(path).remarks == ((f"of the environment: {words}",) if record else ())


@pytest.mark.contract
def test_a_pytest_that_dies_loses_no_test(place: Path) -> None:
    with (place / "smoke-tests" / "conftest.py").open("a") as file:
        file.write("\ndef pytest_runtest_logfinish(nodeid):\n    import os\n    os.kill(os.getpid(), 9)\n")
    (ran,) = run(place, "", "-k", "passes or skips or fails")
    ends = {name: test.outcome for name, test in named(ran).items()}
    of_tests = {"test_passes": "passed", "test_fails": "failed", "test_skips": "skipped"}
    died = ("smoke: between two tests", "smoke: behind its last test")
    assert ends == of_tests | dict.fromkeys(died, "crashed")


@pytest.mark.contract
def test_the_door_writes_results_of_the_real_tests(place: Path) -> None:
    """The real tests can be collected without a torch that does anything, and fail one by one."""
    sdk, info = place / "site" / "rocm_sdk", place / "site" / "rocm-7.2.dist-info"
    sdk.mkdir()
    (sdk / "__main__.py").write_text("import sys; sys.exit('librccl.so does not load')")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rocm\nVersion: 7.2")
    env = environment(place) | {"GITHUB_STEP_SUMMARY": str(place / "page")}
    env["ROCM_WHEELS_STARTED_BY"] = sys.executable
    words = ["--output-dir", "out", "--", "-k", "version or nms or rocm_sdk"]
    ended = run_program([*warm_python(), DOOR, *words], cwd=place, env=env, timeout=600)
    assert ended.code == 1, ended
    written = read_results(place / "out" / "results.json")
    outcomes = {test.name: test.outcome for test in written.tests}
    assert outcomes["test_versions.py::test_torch_starts"] == "passed"
    assert outcomes["test_versions.py::test_linear_algebra_of_the_cpu"] == "failed"
    tested = named(written)["test_rocm_sdk"]
    assert tested.outcome == "failed" and "librccl.so does not load" in tested.detail
    assert written.subject == "torch 9.9.0+rocm7.2" and written.gfx is None and written.wheels == {}
    suites = ET.parse(place / "out" / "junit.xml").getroot()
    assert int(suites.get("tests", 0)) == len(outcomes)
    assert "| test_versions.py |" in (place / "page").read_text()
    assert "results name no wheel" in ended.out


def test_what_is_not_there_to_be_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    old = tmp_path / "out" / "results.json"
    old.parent.mkdir()
    old.write_text("of another run")
    for python, code, words in (
        (tmp_path / "env", 16, "torch is not installed in"),
        (Path("/bin/true"), 2, "/bin/true is no Python"),
        (tmp_path / "nowhere", 2, "there is no Python"),
    ):
        argv = ["--output-dir", str(old.parent), "--python", str(python)]
        assert boundary.run_command(smoke_script, argv) == code
        assert words in capsys.readouterr().err
        assert not old.exists(), "nobody takes old results for these"


@pytest.mark.contract
def test_plain_pytest_reads_the_data_of_the_checkout(place: Path) -> None:
    """``pytest -v smoke-tests`` in the clone; where rocm-wheels cannot be read, the tests say so."""
    some = ["-p", "no:cacheprovider", "-k", "-float16-matmul or no-data"]
    argv, env = [sys.executable, "-m", "pytest", "-v", *some], environment(place)
    told = run_program([*argv, CLONE / "smoke-tests"], cwd=CLONE, env=env, timeout=600).out
    assert "test_dtype[cpu-float16-matmul] FAILED" in told, told
    assert "test_dtype[gpu-float16-matmul] SKIPPED" in told, "by name"
    ended = run_program([*argv, place / "smoke-tests"], cwd=place, env=env, timeout=600)
    assert ended.code == 0 and "the compatibility data are not there" in ended.out, ended


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="this Python has no torch")
def test_a_real_torch_passes(tmp_path: Path) -> None:
    begun = time.monotonic()
    words = ["--output-dir", str(tmp_path), "--", "-k", "not compile and not extension and not domain"]
    ended = subprocess.run([sys.executable, str(DOOR), *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert time.monotonic() - begun < 900


# what rehearsed wrong results do not reach: data that is only moved or viewed, and what asks torch
UNTOUCHED = re.compile(
    r"-cast\]|-view\]|test_(pinned_memory|profiler_sees_kernels|rccl_is_built_in|compiled_for_this_gpu)\["
)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="this Python has no torch")
def test_products_of_amds_8_bit_floats_pass_on_a_cpu_with_amx(tmp_path: Path) -> None:
    """torch's own switch for AMX is set: it calls oneDNN, which refuses them; see rehearsed_amx.py."""
    words = ["-p", "no:cacheprovider", "-p", "rehearsed_amx", "-k", "fnuz and (scaled_mm or row_wise)"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CLONE / "tests" / "worlds"), *sys.path])}
    argv = [sys.executable, "-m", "pytest", "-rA", *words]
    ended = subprocess.run(
        argv, cwd=CLONE / "smoke-tests", env=env, capture_output=True, text=True, check=False
    )
    passed = [line for line in ended.stdout.splitlines() if line.startswith("PASSED")]
    assert ended.returncode == 0 and len(passed) == 3, ended.stdout


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="this Python has no torch")
def test_the_half_of_the_gpu_runs_on_a_rehearsed_one_and_notices_wrong_results(tmp_path: Path) -> None:
    """Every line but those that need a compiler for GPUs, and two of them; see rehearsed_gpu.py."""
    gpu = {"index": 0, "name": "rehearsed", "arch": "gfx942:sramecc+"}
    torch = {"version": "2.13.0", "kind": "rocm", "of": "7.2", "file": ""}
    data = smoke.make_smoke_data("gfx942", "2.13.0", "7.2")
    given = {
        "torch": torch,
        "fault": "",
        "gpu": gpu,
        "no_gpu": "",
        "gpu_fails": True,
        "data": data,
        "no_data": "",
    }
    (tmp_path / "given").write_text(json.dumps(given))
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rA",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "-p",
        "rehearsed_gpu",
    ]
    argv += [
        f"--smoke-given={tmp_path / 'given'}",
        "-m",
        "gpu",
        "-k",
        chosen := "not compiled and not network and not triton and not from_text and not (grouped and float8)"
        " and not speed",  # shapes of a GPU take minutes on a CPU: test_smoke_speed.py
    ]

    def passed(**more: str) -> tuple[int, list[str]]:
        env = {**os.environ, "PYTHONPATH": str(CLONE / "tests" / "worlds"), **more}
        ended = subprocess.run(
            argv, cwd=CLONE / "smoke-tests", env=env, capture_output=True, text=True, check=False
        )
        names = [line for line in ended.stdout.splitlines() if line.startswith("PASSED")]
        return ended.returncode, names

    code, names = passed()
    assert code == 0 and len(names) > 138
    argv[argv.index("-k") + 1] = "tf32"
    assert passed()[0] == 0
    assert passed(REHEARSED="no tf32")[0] == 1, "a product that is float32's is none of tf32"
    argv[argv.index("-k") + 1] = chosen
    code, left = passed(REHEARSED="wrong")
    assert code == 1 and [name for name in left if not UNTOUCHED.search(name)] == []
