"""Test the torch of one Python by the quick part of the smoke tests, and judge.

The tests run as they do for ``smoke-tests`` (room ``testing``): each in a process of its own, one session of
pytest a device, under the Python that is tested. Here are the groups, the devices, and the report.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocm_wheels.audit import import_check
from rocm_wheels.core import errors, machine, tables, workspace
from rocm_wheels.testing import installed_torch, results, smoke
from rocm_wheels.user import installed_packages

CaseState = Literal["pass", "fail", "crash", "timeout", "skip"]
BAD_STATES: tuple[CaseState, ...] = ("fail", "crash", "timeout")
# the files of smoke-tests/ that a group's tests are in
GROUP_FILES = {
    "import": ("test_versions.py", "test_companions.py"),
    "devices": ("test_devices.py", "test_distributed.py"),
    "compile": ("test_compile.py",),
    "math": ("test_math.py",),
    "functions": ("test_layers.py", "test_attention.py"),
}
CASE_GROUPS = tuple(GROUP_FILES)
ALL_GROUPS = "all"
CASE_SECONDS = (
    300.0  # seconds a check: compiling kernels when they are first used takes minutes on some cards
)
NO_KERNEL_MESSAGES = ("invalid device function", "no kernel image", "kernel image is invalid")
# tests of the CPU side by side
_MOST_JOBS = 8
_JOB_MEMORY = 1 << 30  # bytes; torch.compile's C++ compiler takes most
_STATES: dict[str, CaseState] = {
    "passed": "pass",
    "failed": "fail",
    "crashed": "crash",
    "timeout": "timeout",
    "missing": "fail",
    "skipped": "skip",
}
_KEPT_LINES = 200
_SHOWN_LINES = 15


@dataclass(frozen=True)
class SelfTestCase:
    """One check on one device ("" when it is about none)."""

    group: str
    name: str
    device: str = ""

    def __str__(self) -> str:
        return " ".join(word for word in (self.group, self.name, self.device) if word)


@dataclass(frozen=True)
class SelfTestOutcome:
    """What came of a case: ``detail`` says what was measured, why it failed, or why it was left out."""

    case: SelfTestCase
    state: CaseState
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class SelfTestReport:
    """All outcomes of a test. ``torch`` is what torch says of itself (empty when it does not start)."""

    python: str
    torch: Mapping[str, object]
    devices: tuple[str, ...]
    outcomes: tuple[SelfTestOutcome, ...]

    @property
    def failures(self) -> tuple[SelfTestOutcome, ...]:
        """Those that failed, crashed or were stopped."""
        return tuple(outcome for outcome in self.outcomes if outcome.state in BAD_STATES)

    def summary(self) -> str:
        """Count them: ``70 passed, 2 failed, 5 skipped``."""
        counts: Counter[str] = Counter(outcome.state for outcome in self.outcomes)
        words = {
            "pass": "passed",
            "fail": "failed",
            "crash": "crashed",
            "timeout": "stopped",
            "skip": "skipped",
        }
        return ", ".join(f"{counts[state]} {word}" for state, word in words.items() if counts[state])


@dataclass(frozen=True)
class SelfTestRequest:
    """What is to be tested: groups, devices (``auto``, ``all``, ``cpu`` or torch's name of one).

    ``python`` is None for the running one. ``require_gpu``: no GPU is a failure, even for a CPU build.
    ``limit`` is in seconds, for each check.
    """

    groups: Sequence[str] = CASE_GROUPS
    device: str = "auto"
    python: Path | None = None
    require_gpu: bool = False
    limit: float = CASE_SECONDS


def parse_groups(words: Iterable[str]) -> tuple[str, ...]:
    """Return the groups that words name, in their order here; none and ``all`` stand for every one."""
    names = [word.lower() for word in words]
    for word in names:
        if word not in (*CASE_GROUPS, ALL_GROUPS):
            hint = tables.suggest_name(word, (*CASE_GROUPS, ALL_GROUPS))
            raise errors.UsageError(
                f"there are no checks {word}{hint}", tip=f"checks: {', '.join((ALL_GROUPS, *CASE_GROUPS))}"
            )
    if not names or ALL_GROUPS in names:
        return CASE_GROUPS
    return tuple(group for group in CASE_GROUPS if group in names)


def choose_devices(choice: str, facts: Mapping[str, object]) -> tuple[str, ...]:
    """Return the devices to test: ``auto`` is every GPU that torch sees, else the CPU; ``all`` is both.

    One GPU is named as torch does (``cuda:1``). UsageError for one that torch does not see.
    """
    gpu_facts = facts.get("devices")
    gpus = tuple(str(device["device"]) for device in gpu_facts) if isinstance(gpu_facts, list) else ()
    if choice == "auto":
        return gpus or ("cpu",)
    if choice == "all":
        return ("cpu", *gpus)
    if choice not in ("cpu", *gpus):
        raise errors.UsageError(
            f"torch sees no device {choice}", tip=f"devices here: {', '.join(('auto', 'all', 'cpu', *gpus))}"
        )
    return (choice,)


def run_self_test(
    request: SelfTestRequest,
    env: Mapping[str, str],
    *,
    done: Callable[[SelfTestOutcome], None] = lambda outcome: None,
) -> SelfTestReport:
    """Run the checks and return what came of each; a check that fails is no error of this function.

    ``done`` gets each outcome as it comes. Raises HostError when torch is not installed or the Python cannot
    run the checks, UsageError for a device that torch does not see, and for the CPU alone where a GPU is
    required.
    """
    if request.require_gpu and request.device == "cpu":
        raise errors.UsageError(
            "a GPU is required, and only the CPU is to be tested", tip="leave out one of them"
        )
    python = (
        Path(sys.executable)
        if request.python is None
        else installed_packages.find_interpreter(request.python)
    )
    folder = workspace.get_project_home() / "smoke-tests"
    # plugins of pytest that happen to be installed there are not ours to run
    session_env = {**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    target = installed_torch.inspect_target_python(
        python,
        folder / "looking.py",
        session_env,
        option="--python",
        device="cpu" if request.device == "cpu" else "",
        limit=request.limit,
    )
    if "torch" in target.missing:
        raise errors.HostError(
            f"torch is not installed in {python}",
            tip="rocm-wheels install --venv .venv; or name the Python that has it: --python DIR",
        )
    outcomes: list[SelfTestOutcome] = []

    def report(outcome: SelfTestOutcome) -> None:
        outcomes.append(outcome)
        done(outcome)

    starts = _judge_start(target, request)
    if "pytest" in target.missing and all(outcome.state == "pass" for outcome in starts):
        smoke.find_lent_folders(target)  # says what is missing before anything is reported
    for outcome in starts:
        if outcome.case.group in request.groups or outcome.state != "pass":
            report(outcome)
    if any(outcome.state != "pass" for outcome in starts):
        return SelfTestReport(str(python), target.facts, (), tuple(outcomes))
    devices = choose_devices(request.device, target.facts)
    if (missing := _check_missing_gpu(request, target.facts, devices)) is not None:
        report(missing)
    files = [name for group in request.groups for name in GROUP_FILES[group]]
    cpu_jobs = min(machine.count_compile_jobs(machine.measure_machine(env), _JOB_MEMORY, None), _MOST_JOBS)
    for number, device in enumerate(devices):
        half: Literal["both", "cpu", "gpu"] = "cpu" if device == "cpu" else "gpu" if number else "both"
        words = ("-m", "quick", f"--smoke-jobs={cpu_jobs if device == 'cpu' else 1}", *files)
        smoke_request = smoke.SmokeRequest(python, folder, words=words, limit=request.limit)
        _run_device(smoke_request, target, smoke.GpuSession(half, device=device), session_env, report)
    return SelfTestReport(str(python), target.facts, devices, tuple(outcomes))


def _judge_start(target: installed_torch.TargetPython, request: SelfTestRequest) -> list[SelfTestOutcome]:
    """Return what came of importing torch, and of listing its GPUs unless only the CPU counts."""
    facts = target.facts
    import_case, listing_case = SelfTestCase("import", "torch"), SelfTestCase("devices", "listing")
    if not target.version:
        return [_make_start_failure(import_case, target.ended)]
    built_for = (
        f" for {target.kind} {target.kind_version}".rstrip() if target.kind != "cpu" else ", a CPU build"
    )
    outcomes = [SelfTestOutcome(import_case, "pass", f"torch {target.version}{built_for}")]
    if request.device != "cpu":
        gpus = facts.get("devices")
        if gpus is None:
            return [*outcomes, _make_start_failure(listing_case, target.ended)]
        names = ", ".join(f"{gpu['device']} {gpu['name']}" for gpu in gpus)
        outcomes.append(SelfTestOutcome(listing_case, "pass", names or "torch sees no GPU"))
    return outcomes


def _make_start_failure(case: SelfTestCase, ended: str) -> SelfTestOutcome:
    state: CaseState = "fail"
    if ended.startswith(("crashed", "stopped")):
        state = "crash" if ended.startswith("crashed") else "timeout"
    return SelfTestOutcome(case, state, ended)


def _check_missing_gpu(
    request: SelfTestRequest, facts: Mapping[str, object], devices: Sequence[str]
) -> SelfTestOutcome | None:
    """A build for GPUs that sees none does not work, unless only the CPU was asked for."""
    case = SelfTestCase("devices", "a GPU")
    if any(device != "cpu" for device in devices) or facts.get("devices"):
        return None
    kind = str(facts.get("kind"))
    if request.require_gpu:
        return SelfTestOutcome(case, "fail", f"a GPU is required, and torch ({kind}) sees none")
    if kind != "cpu" and request.device != "cpu":
        message = f"torch is a build for {kind} and sees no GPU; --device cpu tests the CPU alone"
        return SelfTestOutcome(case, "fail", message)
    return None


def _run_device(
    request: smoke.SmokeRequest,
    target: installed_torch.TargetPython,
    session: smoke.GpuSession,
    env: Mapping[str, str],
    report: Callable[[SelfTestOutcome], None],
) -> None:
    """Run the tests of one device, and report each as it ends."""
    reported: set[str] = set()
    printed: deque[str] = deque(maxlen=_KEPT_LINES)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-test-", ignore_cleanup_errors=True) as name:
        outcomes = Path(name, "outcomes.jsonl")

        def report_new(tests: Iterable[results.TestResult]) -> None:
            for test in tests:
                if test.name not in reported:
                    reported.add(test.name)
                    report(_make_outcome(test, session.device))

        def show(line: str) -> None:
            printed.append(line.rstrip())
            so_far = smoke.account_for_tests(outcomes, session, None, None).tests
            report_new(test for test in so_far if test.outcome != "missing")

        code = smoke.run_session(request, target, session, env, outcomes=outcomes, show=show)
        tests = smoke.account_for_tests(outcomes, session, None, code).tests
    if not any("::" in test.name for test in tests) and code not in (0, 5):
        lines = "".join(f"\n  | {line}" for line in list(printed)[-_SHOWN_LINES:])
        raise errors.HostError(
            f"{request.python} could not run the checks: pytest {import_check.describe_exit(code)}{lines}"
        )
    report_new(tests)


def _make_outcome(test: results.TestResult, device: str) -> SelfTestOutcome:
    """Name a test as people do: ``test_math.py::test_matmul[cpu-float32]`` is matmul float32 of math."""
    file, _, rest = test.name.partition("::")
    function, _, text = rest.removesuffix("]").partition("[")
    words = [function.removeprefix("test_").replace("_", " "), *(text.split("-") if text else ())]
    name = " ".join(word for word in words if word != device)
    group = next((group for group, files in GROUP_FILES.items() if file in files), "session")
    case = SelfTestCase(group, name or file, device if device in words else "")
    return SelfTestOutcome(case, _STATES[test.outcome], test.reason, test.seconds)
