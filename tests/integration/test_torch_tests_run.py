"""Torch's own tests through a stand-in for torch: miniature files that pass, fail, die, hang, fork, skip."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import call
from wheels import Draft

from rocm_wheels.cli import boundary
from rocm_wheels.cli.torch_tests import full_tests_script
from rocm_wheels.core import errors, junit
from rocm_wheels.models import torch_tests
from rocm_wheels.models.test_results import Results, Suite, TestResult
from rocm_wheels.sources import checkout_state
from rocm_wheels.testing import installed_torch, runner, tested_gpus, torch_sources, torch_test_plan
from rocm_wheels.testing.results import describe_next_command, format_table, read_results, start_results

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals")
COMMIT = "1" * 40

MINI = """
import os, signal, time, unittest

class TestMini(unittest.TestCase):
    def test_a(self):
        pass
    def test_b_fails(self):
        self.assertEqual(1, 2, "a sum")
    def test_c_dies(self):
        os.kill(os.getpid(), signal.SIGSEGV)
    def test_d_forks(self):
        if os.fork() == 0:
            os._exit(3)
        os.wait()
    def test_e_is_known(self):
        self.fail("as ever")
    @unittest.skip("not today")
    def test_f_skips(self):
        pass
    def test_g_hangs(self):
        time.sleep(600)
    def test_h(self):
        assert os.environ["OF_ALL"] == "1"
    def test_i_was_known(self):
        pass
    def test_j_takes_all_with_it(self):
        os.kill(0, signal.SIGKILL)
"""
KNOWN = [
    {"tests": ["test_mini.py::test_e_is_known", "test_mini.py::test_i_was_known"], "effect": "fails"},
    {"tests": ["test_mini.py::TestMini::test_j_takes_all_with_it"], "effect": "crashes"},
]
LISTER = """
import os, sys
assert os.environ["PYTORCH_TEST_WITH_ROCM"] == "1"
print("Running parallel tests on 1 processes")
print("Name: tests to run (est. time: 0.0min)\\n  Serial tests (1):\\n    test_mini 1/1", file=sys.stderr)
print("  Parallel tests (2):\\n    test_broken 2/3\\n    nn/test_convolution 1/1", file=sys.stderr)
print("Name: excluded (est. time: 0.0min)\\n  Serial tests (0):\\n    test_other 1/1", file=sys.stderr)
print(sys.argv[1:])
sys.exit(int(os.environ.get("LISTER", "0")))
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder of torch's sources, as far as anybody looks."""
    tests = tmp_path / "pytorch" / "test"
    tests.mkdir(parents=True)
    (tests.parent / "version.txt").write_text("9.9.0a0\n")
    (tests.parent / "pytest.ini").write_text("[pytest]\naddopts = -rEfX\n")
    (tests / "test_mini.py").write_text(MINI)
    (tests / "test_broken.py").write_text("import nothing_of_that_name\n")
    (tests / "test_skips.py").write_text("import pytest\n@pytest.mark.skip('why')\ndef test_it(): pass\n")
    (tests / "run_test.py").write_text(LISTER)
    return tests.parent


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a command, with packages in its folder ``site``."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def known_rows() -> list[torch_tests.KnownTestRow]:
    about = {"reason": "so it is", "source": "x", "kind": "tested", "owner": "ann"}
    same = {**about, "issue": "https://example.org/1", "expires": "2999-01-01"}
    return [torch_tests.KnownTestRow(**{**row, **same}) for row in KNOWN]


def an_order(sources: Path, *files: str, limit: float = 1.5, **more: Any) -> runner.TestRequest:
    of = {name: more.pop(name) for name in ("selected", "remarks") if name in more}
    order = runner.TestRequest(
        start_results("tests", wheels={}, suite=Suite(name="default"), subject="torch 9.9.0", **of),
        installed_torch.TargetPython(Path(sys.executable), (), version="9.9.0", python_version="3.12"),
        sources / "test",
        [runner.TestFile(file) for file in files],
        limit=limit,
        file_limit=60.0,
        environment={"OF_ALL": "1"},
        known=known_rows(),
        known_torch="9.9.0",
        uses_gpu=False,
    )
    return replace(order, **more)


def a_place(**more: str) -> tested_gpus.GpuPlace:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))
    }
    return tested_gpus.GpuPlace("gfx942", "gfx942", {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **more})


def run(
    order: runner.TestRequest,
    folder: Path,
    place: tested_gpus.GpuPlace | None = None,
    show: Callable[[str], None] = lambda _: None,
) -> Results:
    return runner.run_in_place(order, place or a_place(), folder, show)


def of(results: Results, file: str) -> list[TestResult]:
    """The tests of a file, and what came of the file itself."""
    return [test for test in results.tests if test.name.split("::")[0].split(":")[0] in (file, f"{file}.py")]


def counts(results: Results, file: str) -> dict[str, int]:
    return dict(Counter(test.verdict for test in of(results, file)))


def bad(results: Results, file: str = "") -> dict[str, TestResult]:
    tests = of(results, file) if file else results.tests
    return {test.name.rpartition("::")[2]: test for test in tests if test.is_bad}


@pytest.mark.contract
def test_a_test_that_takes_its_process_with_it_costs_nothing_but_itself(
    sources: Path, tmp_path: Path
) -> None:
    folder, order = tmp_path / "gfx942", an_order(sources, "test_mini", "test_broken")
    found = run(order, folder)
    ends = bad(found)
    outcomes = {"test_b_fails": "failed", "test_c_dies": "crashed", "test_g_hangs": "timeout"}
    assert {name: test.outcome for name, test in ends.items()} == {**outcomes, "test_broken.py": "failed"}
    assert "SIGSEGV" in ends["test_c_dies"].detail and "in test_c_dies" in ends["test_c_dies"].detail
    assert "after 1.5 s" in ends["test_g_hangs"].detail and "in test_g_hangs" in ends["test_g_hangs"].detail
    once = dict.fromkeys(("failed", "crashed", "timeout", "known", "skipped", "left out"), 1)
    assert counts(found, "test_mini") == {"passed": 4, **once}
    known = {test.name.rpartition("::")[2]: test for test in found.tests if test.known}
    assert known["test_e_is_known"].known == "fails: so it is (ann, https://example.org/1)"
    assert known["test_i_was_known"].outcome == "passed"
    assert "nothing_of_that_name" in ends["test_broken.py"].detail
    assert {*found.files} == {"test_mini", "test_broken"} and not found.good
    assert read_results(folder / "results.json") == found
    shown = format_table(found)
    expected = "known failures, which are none of these wheels:\n  test_mini.py::TestMini::test_e_is_known"
    assert expected in shown and "rows in data/torch_tests.yaml may go:\n  test_mini.py::TestMini" in shown
    assert shown.endswith("4 passed, 2 failed, 1 crashed, 1 timeout, 1 known, 1 skipped, 1 left out")
    assert "--wheels says what is installed" in describe_next_command(found, folder)
    named = found.model_copy(update={"wheels": {"torch.whl": "0" * 64}})
    assert describe_next_command(named, folder).startswith("evidence: rocm-wheels set evidence add STORE")
    other = named.model_copy(update={"selected": "another commit"})
    told = describe_next_command(other, folder)
    assert told.startswith("a gate takes them for no whole run: another commit\n")
    empty = named.model_copy(update={"tests": ()})
    assert describe_next_command(empty, folder) == "no evidence: no test was run"


CUDA = """
class cuda:
    is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    @staticmethod
    def get_device_properties(number):
        return type("", (), {"gcnArchName": "gfx1100:xnack-", "name": "x"})
"""
FILES = {
    "test_uses": "import torch\ndef test_it():\n    pass\n",
    "test_other": "import sys\nsys.path.insert(0, 'other')\nimport torch\ndef test_it():\n    pass\n",
    "test_gone": "import os, unittest\nsite = os.environ['PYTHONPATH'].split(':')[-1]\n"
    "with open(f'{site}/torch-9.9.0.dist-info/RECORD', 'a') as record:\n    record.write('x')\n"
    "raise unittest.SkipTest('not here')\n",
    "test_quits": "",
    "conftest": "import sys, pytest\ndef pytest_sessionstart():\n"
    "    if 'test_quits.py' in sys.argv:\n        pytest.exit('enough', returncode=0)\n"
    "def pytest_sessionfinish(session):\n"
    "    if 'test_uses.py' in sys.argv:\n        session.exitstatus = 1\n",
    "other/torch": "",
}


@pytest.mark.contract
def test_what_ran_nothing_or_with_another_torch_or_gpu_is_told(sources: Path, tmp_path: Path) -> None:
    (sources / "test" / "other").mkdir()
    for name, text in FILES.items():
        (sources / "test" / f"{name}.py").write_text(text)
    install_torch(tmp_path / "site", lock=None, more=CUDA)
    order = an_order(sources, "test_uses", "test_other", "test_gone", "test_quits", limit=60)
    order = replace(order, target=replace(order.target, installed=(torch_in(tmp_path / "site"),)))
    found = run(order, tmp_path / "results", a_place(PYTHONPATH=str(tmp_path / "site")))
    assert counts(found, "test_uses") == {"passed": 1, "crashed": 1, "failed": 1}
    ends = bad(found, "test_uses")
    assert "exit code 1, and no test failed" in ends["test_uses: behind its last test"].detail
    assert ends["test_uses: GPU"].detail == "torch used gfx1100:xnack-, not gfx942"
    (other,) = of(found, "torch")
    assert other.outcome == "failed" and "the tests import torch from" in other.detail
    assert counts(found, "test_gone") == {"skipped": 1, "failed": 1}
    assert bad(found)["test_gone: torch"].detail == "torch was reinstalled while its tests ran"
    assert "exit code 0 in the middle" in bad(found)["test_quits: before its first test"].detail


SLOW = """
import time
time.sleep(0.7)  # to be read

def test_slow():
    time.sleep(0.3)
"""


def test_a_file_takes_as_long_as_its_processes_and_a_test_as_long_as_until_it_died(
    sources: Path, tmp_path: Path
) -> None:
    """A file of 40 s was once recorded as 0.5 s: its start, its reading and what died had cost nothing."""
    (sources / "test" / "test_slow.py").write_text(SLOW)
    dies = "    import os; os.kill(os.getpid(), 9)\n"
    (sources / "test" / "test_dies.py").write_text(f"{SLOW}{dies}def test_then(): pass\n")
    order = an_order(sources, "test_slow", "test_dies", limit=60)
    begin = time.monotonic()
    files = run(order, tmp_path / "results").files
    whole = time.monotonic() - begin
    assert 1.0 < files["test_slow"] < whole and 1.7 < files["test_dies"] < whole
    assert sum(files.values()) == pytest.approx(whole, abs=0.5 + whole * 0.2)
    assert torch_test_plan.read_durations([tmp_path], "default") == dict(files)
    lines = (tmp_path / "results" / "run" / "test_dies.jsonl").read_text().splitlines()
    crash = next(json.loads(line) for line in lines if '"crashed"' in line)
    assert 0.3 <= crash["seconds"] < whole


CHANCE = """
import os
import pytest
ran = []

def test_a():
    ran.append(1)

def test_needs_to_be_first():
    assert not ran

def test_never():
    assert not "never"

@pytest.mark.parametrize("name", ["x y[z]"])
def test_once(name):
    if not os.path.exists("was-here"):
        open("was-here", "w").close()
        assert False, "the first time"
"""


@pytest.mark.contract
def test_what_failed_and_passes_alone_is_flaky(sources: Path, tmp_path: Path) -> None:
    (sources / "test" / "test_chance.py").write_text(CHANCE)
    (sources / "test" / "test_more.py").write_text("".join(f"def test_{n}(): assert 0\n" for n in range(3)))
    order = an_order(sources, "test_chance", "test_more", limit=60)
    found = run(order, tmp_path / "all")
    assert counts(found, "test_chance") == {"passed": 1, "failed": 1, "flaky": 2}
    assert counts(found, "test_more") == {"failed": 3}
    flaky = [test for test in found.tests if test.verdict == "flaky"]
    names = [test.name.rpartition("::")[2] for test in flaky]
    assert names == ["test_needs_to_be_first", "test_once[x y[z]]"]
    assert flaky[1].detail.startswith("failed, then passed alone: AssertionError: the first time")
    assert [*bad(found, "test_chance")] == ["test_never"]
    report = junit.read_junit_report(tmp_path / "all" / "junit.xml")
    assert report.counts == {"passed": 1, "failed": 4, "flaky": 2}
    (sources / "test" / "was-here").unlink()
    few = run(replace(order, tests_alone=2), tmp_path / "few")
    assert counts(few, "test_chance") == {"passed": 1, "failed": 3}, "more failed than are tried again"


def test_what_passes_by_reruns_is_flaky_too(sources: Path, tmp_path: Path) -> None:
    """pytest-rerunfailures reports a try that failed as another outcome, then the last one."""
    (sources / "test" / "conftest.py").write_text(
        "import pytest\nfrom _pytest.runner import runtestprotocol\n"
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)\n"
        "    for last in (False, True):\n"
        "        reports = runtestprotocol(item, nextitem=nextitem, log=False)\n"
        "        for report in reports:\n"
        "            if report.failed and not last: report.outcome = 'rerun'\n"
        "            item.ihook.pytest_runtest_logreport(report=report)\n"
        "        if all(report.outcome == 'passed' for report in reports): break\n"
        "    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)\n"
        "    return True\n"
    )
    (sources / "test" / "test_chance.py").write_text(CHANCE.replace("not ran", "ran"))
    order = an_order(sources, "test_chance", limit=60)
    found = run(order, tmp_path / "all")
    assert found.counts == {"passed": 2, "failed": 1, "flaky": 1}
    (flaky,) = (test for test in found.tests if test.verdict == "flaky")
    assert "failed 1 time, then passed in the same process (--reruns)" in flaky.detail


LOST = """
import os, pathlib, signal
here = pathlib.Path(__file__).parent
gpu = os.environ["HIP_VISIBLE_DEVICES"]

def test_a():
    with open(here / "ran", "a") as ran: ran.write(f"{__name__} a on {gpu}\\n")

def test_b():
    if gpu in (here / "breaks").read_text().split():
        (here / f"lost-{gpu}").touch()
        os.kill(os.getpid(), signal.SIGSEGV)

def test_c():
    with open(here / "ran", "a") as ran: ran.write(f"{__name__} c on {gpu}\\n")
"""


def ask_rehearsed_gpu(sources: Path, gfx: str, env: Mapping[str, str]) -> str:
    lost = (sources / "test" / f"lost-{env['HIP_VISIBLE_DEVICES']}").exists()
    return f"the {gfx} does not calculate any more" if lost else ""


FAILS = LOST.replace("os.kill(os.getpid(), signal.SIGSEGV)", "assert False, 'hipErrorLaunchFailure'")


# how the test that loses the GPU ends → what it counts as then, and when the same command carries on
@pytest.mark.contract
@pytest.mark.parametrize(
    ("text", "counted", "later"),
    [
        pytest.param(LOST, "crashed", "crashed", id="dies"),
        # its driver answers each call with an error: no process ends, and nothing is said of the wheels
        pytest.param(FAILS, "failed", "flaky", id="fails", marks=pytest.mark.exhaustive),
    ],
)
def test_a_lost_gpu_ends_its_part_at_once_and_the_same_command_carries_on(
    sources: Path, tmp_path: Path, text: str, counted: str, later: str
) -> None:
    tests, folder = sources / "test", tmp_path / "results"
    for name in ("test_1", "test_2"):
        (tests / f"{name}.py").write_text(text)
    (tests / "breaks").write_text("0")
    order = an_order(sources, "test_1", "test_2", limit=60)
    order = replace(order, find_gpu_fault=partial(ask_rehearsed_gpu, sources))
    place = a_place(HIP_VISIBLE_DEVICES="0")
    lost = run(order, folder, place)
    assert lost.lost_gpu == "gfx942, at test_1: the gfx942 does not calculate any more" and not lost.good
    assert counts(lost, "test_1") == {"passed": 1, counted: 1, "missing": 1} and not lost.files
    assert counts(lost, "test_2") == {"missing": 1} and (tests / "ran").read_text() == "test_1 a on 0\n"
    assert read_results(folder / "results.json") == lost and "lost gfx942, at" in format_table(lost)
    (tests / "lost-0").unlink()
    (tests / "breaks").write_text("")
    found = run(order, folder, place)
    assert len(found.files) == 2 and found.lost_gpu == ""
    assert counts(found, "test_1") == {"passed": 2, later: 1} and found.good == (later == "flaky")
    ran = (tests / "ran").read_text().splitlines()
    assert ran == ["test_1 a on 0", "test_1 c on 0", "test_2 a on 0", "test_2 c on 0"]


ASKED = """
import os, signal

class Numbers:
    def __init__(self, total): self.total = total
    def to(self, device): return Numbers(self.total)
    def __mul__(self, factor): return Numbers(self.total * factor)
    def sum(self): return self
    def __int__(self): return self.total

class OnDevice(Numbers):
    def __mul__(self, factor):
        if MODE == "dies": os.kill(os.getpid(), signal.SIGSEGV)
        return Numbers(self.total * factor + (MODE == "wrong"))

MODE = os.environ["MODE"]
__version__, int64 = "9.9.0", "int64"
version = type("", (), {"hip": "7.1"})
shown = os.environ["HIP_VISIBLE_DEVICES"].split(",")

class Numbers2(Numbers):
    def to(self, device):
        broken = os.environ["BROKEN"]
        return OnDevice(self.total) if shown[int(device[5:])] == broken else Numbers(self.total)

def arange(end, dtype): return Numbers2(end * (end - 1) // 2)

class Gpu:
    gcnArchName, name = "gfx942:xnack-", "x"

class cuda:
    is_available = staticmethod(lambda: MODE != "gone")
    device_count = staticmethod(lambda: len(shown))
    get_device_properties = staticmethod(lambda n: Gpu)
"""


def test_each_gpu_of_an_environment_is_asked_whether_it_calculates(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(ASKED)

    def fault(mode: str, shown: str = "0,1") -> str:
        env = {**os.environ, "PYTHONPATH": str(tmp_path), "MODE": mode, "BROKEN": "1"}
        return installed_torch.find_gpu_fault(
            Path(sys.executable), "gfx942", {**env, "HIP_VISIBLE_DEVICES": shown}
        )

    assert fault("wrong", shown="0") == "" == fault("well", shown="1")
    assert fault("wrong") == "the gfx942 does not calculate any more: a sum is wrong"
    assert fault("dies").startswith("the gfx942 does not calculate any more: the process that asked crashed")
    assert fault("gone").startswith("torch does not see the gfx942 any more")


HANDLERS = """
import argparse, os, shutil, subprocess, sys, tempfile

def list_tests(file, words):  # as common_utils.get_pytest_test_cases
    done = subprocess.run([sys.executable, "-m", "pytest", file, "--collect-only", "-q", *words],
                          capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "::" in line]

def run_with_subprocess(file, words):  # --subprocess: one process a test, once more where it fails
    for test in list_tests(file, words):
        for _ in range(2):
            code = subprocess.call([sys.executable, "-m", "pytest", test.removeprefix("test/"), *words])
            if code == 0:
                break
        if code:
            return 1
    return 0

def test_distributed(file, words):
    for backend, env in {"test": {"WORLD_SIZE": "1"}, "gloo": {"WORLD_SIZE": "2"}}.items():
        folder = tempfile.mkdtemp()
        old = dict(os.environ)
        os.environ.update(env, TEMP_DIR=folder, BACKEND=backend)
        os.environ["TEST_REPORT_SOURCE_OVERRIDE"] = f"dist-{backend}"
        try:
            if code := run_with_subprocess(file, words):
                return code
        finally:
            shutil.rmtree(folder)
            os.environ.clear()
            os.environ.update(old)
    return 0

def run_test(file, words):  # run_test_retries: each that fails is tried again in a new process
    tests, code, done = list_tests(file, words), 0, []
    while tests:
        some = [test.removeprefix("test/") for test in tests]
        ended = subprocess.call([sys.executable, "-m", "pytest", "-x", *some, *words])
        if ended == 0:
            break
        here = int(open("current").read())
        single = subprocess.call([sys.executable, "-m", "pytest", some[here], *words])
        code = code or (1 if single else 0)
        tests = tests[here + 1:]
    return code

parser = argparse.ArgumentParser()
parser.add_argument("--include", nargs="+")
parser.add_argument("--inductor", action="store_true")
parser.add_argument("--keep-going", action="store_true")
parser.add_argument("--verbose", action="store_true")
options, extra = parser.parse_known_args()
words = [word for word in extra if word != "--"]
os.chdir(os.path.dirname(os.path.abspath(__file__)))
assert options.keep_going and os.environ["PYTORCH_TEST_RUN_EVERYTHING_IN_SERIAL"] == "1"
if options.inductor:
    os.environ["PYTORCH_TEST_WITH_INDUCTOR"] = "1"
handlers = {"distributed/test_spawn": test_distributed, "distributed/test_ucc": lambda *_: 0}
sys.exit(handlers.get(options.include[0], run_test)(options.include[0] + ".py", words))
"""
SPAWN = """
import os, pathlib, signal
here = pathlib.Path(__file__).parent

def ran(name):
    with open(here / "ran", "a") as file:
        file.write(f"{name} {os.environ['BACKEND']} {os.environ['WORLD_SIZE']}\\n")

def test_a():
    assert os.path.isdir(os.environ["TEMP_DIR"])
    ran("a")

def test_b():
    ran("b")
    assert os.environ["BACKEND"] != "gloo", "never with gloo"

def test_c():
    ran("c")
    if os.environ["BACKEND"] == "test" and not (here / "was-here").exists():
        (here / "was-here").touch()
        os.kill(os.getpid(), signal.SIGSEGV)

def test_known():
    assert 0
"""
INDUCED = """
import os, pathlib
import pytest

@pytest.fixture(autouse=True)
def note(request):
    pathlib.Path("current").write_text(str(request.session.items.index(request.node)))

def test_a():
    assert os.environ["PYTORCH_TEST_WITH_INDUCTOR"] == "1"

def test_b():
    if not os.path.exists("was-here"):
        open("was-here", "w").close()
        assert 0, "the first time"

def test_c():
    assert 0, "never"

def test_d():
    pass
"""


def test_files_of_other_suites_go_through_the_handlers_of_run_test_py(sources: Path, tmp_path: Path) -> None:
    """Backends, ranks and folders are theirs; what each pytest does that they start is recorded."""
    tests = sources / "test"
    (tests / "distributed").mkdir()
    (tests / "distributed" / "test_spawn.py").write_text(SPAWN)
    (tests / "test_induced.py").write_text(INDUCED)
    (tests / "run_test.py").write_text(HANDLERS)
    row = known_rows()[0].model_copy(update={"tests": ("distributed/*.py::test_known",)})
    files = [
        runner.TestFile("distributed/test_spawn", run_by="run_test"),
        runner.TestFile("test_induced", run_by="run_test", words=("--inductor",)),
        runner.TestFile("distributed/test_ucc", run_by="run_test"),
    ]
    found = run(an_order(sources, limit=60, files=files, known=(row,)), tmp_path / "results")
    assert counts(found, "distributed/test_ucc") == {"skipped": 1} and len(found.files) == 3
    spawn = "distributed/test_spawn"
    assert counts(found, spawn) == {"passed": 4, "failed": 1, "flaky": 1, "left out": 2}
    ((never, failed),) = bad(found, spawn).items()
    assert never == "test_b @dist-gloo" and "never with gloo" in failed.detail
    (flaky,) = (test for test in of(found, spawn) if test.verdict == "flaky")
    assert flaky.name == "distributed/test_spawn.py::test_c @dist-test" and "SIGSEGV" not in flaky.detail
    assert flaky.detail.startswith("crashed, then passed in another process")
    ran = (tests / "distributed" / "ran").read_text().splitlines()
    assert {line.partition(" ")[2] for line in ran} == {"test 1", "gloo 2"}
    assert ran.count("a gloo 2") == 1 == ran.count("c gloo 2"), (
        "what is behind the failure runs, and nothing twice"
    )
    assert counts(found, "test_induced") == {"passed": 2, "failed": 1, "flaky": 1}
    assert [*bad(found, "test_induced")] == ["test_c"] and not found.selected
    suites = torch_tests.load_torch_tests().suites
    for suite in ("distributed", "inductor"):
        assert {group.run_by for group in suites[suite].groups} == {"run_test"}


@pytest.mark.contract
def test_a_run_that_was_ended_is_carried_on_and_one_of_something_else_begun_anew(
    sources: Path, tmp_path: Path
) -> None:
    (sources / "test" / "test_mini.py").write_text(
        "import os\ndef test_a():\n    open('ran', 'a').write('a')\ndef test_b():\n"
        "    if os.path.exists('ran-b'): return\n    open('ran-b', 'w').close(); os.kill(os.getppid(), 2)\n"
        "    import time; time.sleep(600)\n"
    )
    order, folder = an_order(sources, "test_skips", "test_mini", limit=600), tmp_path / "results"
    with pytest.raises(KeyboardInterrupt):
        run(order, folder)
    half = read_results(folder / "results.json")
    assert [*half.files] == ["test_skips"] and not half.good
    assert counts(half, "test_mini") == {"passed": 1, "missing": 1}
    found = run(order, folder)
    assert found.good and counts(found, "test_mini") == {"passed": 2} and found.when == half.when
    assert (sources / "test" / "ran").read_text() == "a", "what was done is not run again"
    chosen = an_order(sources, "test_mini", limit=600, words=("-k", "test_a"), selected="-k test_a")
    found = run(chosen, folder)
    assert found.counts == {"passed": 1} and found.selected == "-k test_a; 1 test left out"
    assert (sources / "test" / "ran").read_text() == "aa"
    for name in ("state.json", ""):
        broken = tmp_path / f"of others {name}" / "run"
        broken.mkdir(parents=True)
        (broken / (name or "mine")).write_text("5")
        with pytest.raises(errors.UsageError, match="is not of a run of tests"):
            run(order, broken.parent)
        assert (broken / (name or "mine")).read_text() == "5", "nothing of others is removed"


def test_a_run_killed_as_it_began_is_begun_anew_by_the_same_command(sources: Path, tmp_path: Path) -> None:
    order, folder = an_order(sources, "test_skips"), tmp_path / "results"
    (folder / "run").mkdir(parents=True)
    (folder / "run" / ".state.json.x.part").write_text("{")
    assert run(order, folder).counts == {"skipped": 1}
    state = folder / "run" / "state.json"
    begun = json.loads(state.read_text())
    os.truncate(folder / "run" / "test_skips.jsonl", 0)  # its old journals were being removed
    state.write_text(json.dumps({**begun, "inputs": ""}))
    assert run(order, folder).counts == {"skipped": 1}


def test_what_a_killed_run_left_is_not_taken_for_that_of_another_torch(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, folder = an_order(sources, "test_skips", "test_mini"), tmp_path / "results"
    begin = runner._Run.run_file

    def stop_at_the_second(self: runner._Run, file: runner.TestFile) -> None:
        if file.file == "test_mini":
            assert not (folder / "junit.xml").exists(), "that of the run before says nothing of this one"
            raise KeyboardInterrupt
        begin(self, file)

    monkeypatch.setattr(runner._Run, "run_file", stop_at_the_second)
    for record in ("of one build", "of another"):
        folder.mkdir(exist_ok=True)
        (folder / "junit.xml").write_text("<testsuites/>")
        monkeypatch.setattr(
            installed_torch.TargetPython, "digest_torch_record", lambda _, record=record: record
        )
        with pytest.raises(KeyboardInterrupt):
            run(order, folder)
        journal = (folder / "run" / "test_skips.jsonl").read_text()
        assert journal.count('"process"') == 1, "it is begun anew where torch was installed again"


STRANGE_REASONS = """
import pytest
@pytest.mark.skip("long " * 2000)
def test_skips(): pass
@pytest.mark.xfail(reason="long " * 2000)
def test_expected(): assert 0
def test_bytes(): raise OSError(b"no file of this name: \\xff".decode(errors="surrogateescape"))
"""


def test_no_reason_of_a_test_is_too_strange_for_results(sources: Path, tmp_path: Path) -> None:
    (sources / "test" / "test_strange.py").write_text(STRANGE_REASONS)
    done = run(
        an_order(sources, "test_strange", selected="-k " + "a or " * 1000, remarks=("b" * 5000,)), tmp_path
    )
    assert counts(done, "test_strange") == {"skipped": 2, "failed": 1}
    assert "\\udcff" in bad(done)["test_bytes"].detail
    assert read_results(tmp_path / "results.json") == done


WRITES = """
import pathlib
def test_writes(tmp_path):
    (tmp_path / "much").write_text("much")
    pathlib.Path("where").write_text(str(tmp_path))
"""


def test_what_tests_write_goes_with_their_process(sources: Path, tmp_path: Path) -> None:
    (sources / "test" / "test_writes.py").write_text(WRITES)
    found = run(an_order(sources, "test_writes", limit=60), tmp_path / "results")
    assert counts(found, "test_writes") == {"passed": 1}
    place = Path((sources / "test" / "where").read_text())
    assert not place.exists()
    assert not any(parent.name.startswith("pytest-of-") and parent.exists() for parent in place.parents)
    # somebody who wants to look at it names the place
    found = run(
        an_order(sources, "test_writes", limit=60),
        tmp_path / "kept",
        a_place(PYTEST_DEBUG_TEMPROOT=str(tmp_path)),
    )
    place = Path((sources / "test" / "where").read_text())
    assert place.is_relative_to(tmp_path)
    assert (place / "much").read_text() == "much"


def test_run_test_py_says_which_files_there_are(sources: Path) -> None:
    def plan(*, lister: str = "0", **shard: int) -> Any:
        suite, env = torch_tests.load_torch_tests().suites["full"], {"PYTORCH_TEST_WITH_ROCM": "1"}
        chosen = torch_test_plan.TorchTestSelection("full", **shard)
        asked = (sources / "test", Path(sys.executable), {**os.environ, **env, "LISTER": lister})
        return torch_test_plan.plan_test_files(suite, chosen, *asked)

    assert [part.name for part in plan().files] == ["test_mini", "test_broken 2/3"]
    assert [row.files for row in plan().left_out] == [("nn/test_convolution",)]
    assert [part.name for part in plan(shard=2, shards=2).files] == ["test_broken 2/3"]
    with pytest.raises(errors.ChecksError, match=r"ended with 3:(.|\n)*--shard', '1', '1'"):
        plan(lister="3")


def install_torch(place: Path, *, lock: str | None, more: str = "") -> Path:
    """Write a wheel of a torch that does nothing, and install it into ``place``."""
    draft = Draft("torch", "9.9.0", "py3-none-any")
    inside = {
        "torch/__init__.py": f"__version__ = '9.9.0'\nfrom . import version\n{more}",
        "torch/version.py": f"hip = None\ncuda = None\ngit_version = '{'2' * 40}'\n",
        **({} if lock is None else {f"{draft.folder}/sources.lock.json": lock}),
    }
    draft.members = {name: text.encode() for name, text in inside.items()}
    wheel = draft.write(place.parent)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return wheel


def torch_in(place: Path) -> installed_torch.TargetDistribution:
    return installed_torch.TargetDistribution("torch", "9.9.0", place / "torch-9.9.0.dist-info")


def a_lock(commit: str) -> str:
    torch = {"origin": "https://example.org/pytorch.git", "ref": "main", "why": "x", "commit": commit}
    return json.dumps({"lock_version": "1", "projects": {"pytorch": torch}})


@pytest.mark.contract_slow
def test_the_command_runs_what_the_lock_in_the_wheel_says(sources: Path, here: Path) -> None:
    wheel = install_torch(here / "site", lock=a_lock(COMMIT))
    words = ["test", "torch", "--python", sys.executable, "--pytorch-dir", sources]
    words += ["--include", "test_mini", "test_skips"]
    assert "on cpu: test_mini" in call(*words, "--dry-run", "--exclude", "test_skips.py").out.splitlines()
    chosen = "test_a or TestMini and test_f or test_it"
    done = call(*words, "--wheels", wheel, "--", "-k", chosen, "-q").out
    assert "--from torch-test-results/cpu" in done.splitlines()[-1]
    found = read_results(here / "torch-test-results" / "cpu" / "results.json")
    assert found.wheels == {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest()}
    assert found.counts == {"passed": 1, "skipped": 2}
    assert found.selected.startswith(f"-k '{chosen}'; only test_mini, test_skips")
    for wrong in (("--nosuch=3",), ("--tb=foo",), ("--maxfail", "x")):
        assert wrong[0].split("=")[0] in call(*words, "--", *wrong, code=2).err
    ci = sources / ".ci" / "docker"
    ci.mkdir(parents=True)
    assert "requirements-ci.txt, which says" in call(*words, "--requirements", code=2).err
    this, other = f"{sys.version_info[0]}.{sys.version_info[1]}", "3.9"
    (ci / "requirements-ci.txt").write_text(
        f"# needed\n#mkl\npytest==7.3.2\nnumpy==2.1 ; python_version == '{this}'\n"
        f"numpy==1.0 ; python_version == '{other}'\ncuda-bindings>=12.0,<13.0 # NVIDIA's\n"
    )
    needed = call(*words, "--requirements").out.splitlines()
    assert needed[1:4] == ["pytest==7.3.2", "numpy==2.1", "torch==9.9.0"], needed
    assert "9.9.0a0" in needed[0] and needed[4].startswith("# left out: cuda-bindings<13.0,>=12.0: NVIDIA's")
    (ci / "requirements-ci.txt").write_text("numpy=1\n")
    told = call(*words, "--requirements", code=2).err
    assert "requirements-ci.txt:1: numpy=1 is no requirement" in told
    (sources / "version.txt").write_text("9.8.0a0\n")
    assert "9.9.0 is installed" in call(*words, code=2).err


SHARDED = {"TESTS_TO_INCLUDE": "test_skips test_mini.py", "SHARD_NUMBER": "2", "NUM_TEST_SHARDS": "2"}
UNHEEDED = {
    "TESTS_TO_INCLUDE": "nosuch",
    "SHARD_NUMBER": "0",
    "NUM_TEST_SHARDS": "0",
    "TEST_CONFIG": "default",
}


# variables, options → exit code, files that run, variables that the record names
@pytest.mark.contract
@pytest.mark.parametrize(
    ("variables", "options", "code", "files", "record"),
    [
        (SHARDED, "", 0, ["test_mini"], SHARDED),
        (UNHEEDED, "--include test_skips test_mini --shard 1 --num-shards 1", 0, ["test_skips", "test_mini"],
         {"TEST_CONFIG": "default"}),
        ({"TESTS_TO_INCLUDE": "nosuch"}, "", 2, [], {}),
        ({"TEST_CONFIG": "nosuch"}, "", 2, [], {}),
        ({"SHARD_NUMBER": "x", "NUM_TEST_SHARDS": "2"}, "", 2, [], {}),
        ({"SHARD_NUMBER": "3", "NUM_TEST_SHARDS": "2"}, "", 2, [], {}),
        ({"SHARD_NUMBER": "1"}, "", 2, [], {}),
        ({"AMDGPU_FAMILY": "gfx94Z"}, "", 2, [], {}),
        ({"AMDGPU_FAMILY": "gfx94X-dcgpu"}, "--include test_mini", 16, [], {}),
    ],
)  # fmt: skip
def test_variables_of_another_ci_are_read_as_options_and_named_in_the_record(  # noqa: PLR0917
    sources: Path, here: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str],
    options: str, code: int, files: list[str], record: dict[str, str]
) -> None:  # fmt: skip
    install_torch(here / "site", lock=a_lock(COMMIT))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    words = ["--pytorch-dir", str(sources), "--gpu-policy", "auto", *options.split()]
    words += ["--", "-k", "test_a or test_it"]
    assert boundary.run_command(full_tests_script, words) == code
    path = here / "torch-test-results" / "cpu" / "results.json"
    assert path.is_file() == bool(files)
    if files:
        found = read_results(path)
        assert [*found.files] == files
        words = ", ".join(f"{name}={value}" for name, value in record.items())
        assert found.remarks == ((f"of the environment: {words}",) if record else ())
        assert found.suite is not None and found.suite.name == "full"
        assert "PYTORCH" not in found.selected, "none is left for the tests"


def test_without_arguments_the_tests_are_those_of_the_checkout(
    sources: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torch without a lock inside: its tests are where torch is checked out to, if it is that torch's."""
    install_torch(here / "site", lock=None)
    for name in torch_tests.load_torch_tests().suites["default"].named_files:
        (sources / "test" / f"{name}.py").write_text("def test_it():\n    pass\n")
    monkeypatch.setattr("rocm_wheels.models.project_names.get_recipes_folder", lambda: here / "elsewhere")
    assert "has no lock inside" in call("test", "torch", code=2).err
    monkeypatch.setattr("rocm_wheels.models.project_names.get_recipes_folder", lambda: here)
    commit = commit_all(sources)
    assert "is not what is installed" in call("test", "torch", code=2).err
    version = here / "site" / "torch" / "version.py"
    version.write_text(version.read_text().replace("2" * 40, commit))
    call("test", "torch")
    found = read_results(here / "torch-test-results" / "cpu" / "results.json")
    assert found.counts == {"passed": 6} and found.good


def git(folder: Path, *words: str) -> str:
    name = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    done = subprocess.run(
        ["git", "-C", str(folder), *name, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit_all(folder: Path) -> str:
    """Make a repository of a folder, and return the commit of all that is in it."""
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")
    return git(folder, "rev-parse", "HEAD")


def test_tests_are_checked_out_at_the_commit_of_the_lock_in_the_wheel(
    sources: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = commit_all(sources)
    (sources / "test" / "test_mini.py").unlink()
    git(sources, "commit", "-qam", "what came later has nothing to do with the wheel")
    git(sources, "config", "uploadpack.allowAnySHA1InWant", "true")
    lock = json.loads(a_lock(commit))
    lock["projects"]["pytorch"]["origin"] = str(sources)
    install_torch(here / "site", lock=json.dumps(lock))
    monkeypatch.setenv("ROCM_WHEELS_MIRROR_DIR", "mirrors")
    done = call("test", "torch", "--python", sys.executable, "--include", "test_mini", "--dry-run")
    assert "on cpu: test_mini" in done.out.splitlines()
    assert f"tests of {commit}" in done.out + done.err
    there = here / "torch-test-sources"
    assert git(there, "rev-parse", "HEAD") == commit and (there / "test" / "test_mini.py").is_file()
    assert [*(here / "mirrors").iterdir()], "it is fetched by the mirror that all checkouts share"


@pytest.mark.contract
def test_tests_of_another_commit_are_refused(sources: Path, tmp_path: Path) -> None:
    commit = commit_all(sources)

    def doubt_of(site: str, *, allowed: bool = False) -> str:
        target = installed_torch.TargetPython(Path("x"), (torch_in(tmp_path / site),), version="9.9.0")
        return torch_sources.inspect_test_sources(sources, target, os.environ, allow_other=allowed).doubt

    install_torch(tmp_path / "right", lock=a_lock(commit))
    assert doubt_of("right") == ""
    for site, lock, doubt in (("other", a_lock(COMMIT), COMMIT[:12]), ("none", None, "2" * 12)):
        install_torch(tmp_path / site, lock=lock)
        with pytest.raises(errors.UsageError, match=f"{commit[:12]}.*{doubt}"):
            doubt_of(site)
        assert doubt in doubt_of(site, allowed=True)
    (sources / "test" / "conftest.py").write_text("")
    assert "test/conftest.py" in doubt_of("right"), "nobody committed it, and pytest goes by it"
    (sources / "test" / "conftest.py").unlink()
    (sources / "test" / "test_mini.py").write_text("")
    assert "test/test_mini.py" in doubt_of("right")
    left = {"": checkout_state.RepositoryState(head=commit, upstream=commit, tree="")}
    checkout_state.write_state(
        sources / ".git", checkout_state.CheckoutState(origin="x", ref="main", upstream=commit, left=left)
    )
    git(sources, "commit", "-qam", "on top of a checkout of ours")
    with pytest.raises(errors.UsageError, match=f"{git(sources, 'rev-parse', 'HEAD')[:12]}.*{commit[:12]}"):
        doubt_of("right")
