"""Test the torch of one Python by the quick part of the smoke tests, and judge.

The tests run as they do for ``test smoke`` (room ``testing``), once a device, under the Python that is
tested: one that crashes or hangs costs nothing but itself. Here are the groups, the devices, the report.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocm_wheels.core import errors, tables, workspace
from rocm_wheels.models.test_results import TestResult
from rocm_wheels.testing import installed_torch, journal, runner, smoke, tested_gpus
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
CASE_SECONDS = 300.0  # a check: compiling kernels when they are first used takes minutes on some cards
NO_KERNEL_MESSAGES = ("invalid device function", "no kernel image", "kernel image is invalid")
_STATES: dict[str, CaseState] = {
    "passed": "pass",
    "failed": "fail",
    "crashed": "crash",
    "timeout": "timeout",
    "missing": "fail",
    "skipped": "skip",
}
_STATE_WORDS: dict[CaseState, str] = {
    "pass": "passed",
    "fail": "failed",
    "crash": "crashed",
    "timeout": "stopped",
    "skip": "skipped",
}
_SHOWN_LINES = 15


@dataclass(frozen=True)
class SelfTestOutcome:
    """What came of one check on one device ("" when it is about none).

    ``detail`` says what was measured, why it failed, or why it was left out; ``seconds`` is how long it took.
    """

    group: str
    name: str
    device: str
    state: CaseState
    detail: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return " ".join(filter(None, (self.group, self.name, self.device)))


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
        counts = Counter(outcome.state for outcome in self.outcomes)
        return ", ".join(f"{counts[state]} {word}" for state, word in _STATE_WORDS.items() if counts[state])


def parse_groups(words: Iterable[str]) -> tuple[str, ...]:
    """Return the groups that words name, in their order here; none and ``all`` stand for every one."""
    names = [word.lower() for word in words]
    known = (ALL_GROUPS, *CASE_GROUPS)
    for word in names:
        if word not in known:
            hint = tables.suggest_name(word, known)
            raise errors.UsageError(f"there are no checks {word}{hint}", tip=f"checks: {', '.join(known)}")
    every = not names or ALL_GROUPS in names
    return tuple(group for group in CASE_GROUPS if every or group in names)


def choose_devices(choice: str, facts: Mapping[str, object]) -> tuple[str, ...]:
    """Return the devices to test: ``auto`` is every GPU that torch sees, else the CPU; ``all`` is both.

    ``gpu`` is every GPU, none where torch sees none. One GPU is named as torch does (``cuda:1``). UsageError
    for one that torch does not see.
    """
    gpu_facts = facts.get("devices")
    gpus = tuple(str(device["device"]) for device in gpu_facts) if isinstance(gpu_facts, list) else ()
    devices = {"auto": gpus or ("cpu",), "all": ("cpu", *gpus), "cpu": ("cpu",)} | {
        gpu: (gpu,) for gpu in gpus
    }
    if choice == "gpu":
        return gpus
    if choice not in devices:
        raise errors.UsageError(f"torch sees no device {choice}", tip=f"devices here: {', '.join(devices)}")
    return devices[choice]


def run_self_test(
    env: Mapping[str, str],
    groups: Sequence[str] = CASE_GROUPS,
    *,
    device: str = "auto",
    python: Path | None = None,
    done: Callable[[SelfTestOutcome], None] = lambda outcome: None,
) -> SelfTestReport:
    """Run the checks of groups and return what came of each; a check that fails is no error of this function.

    ``device`` is ``auto``, ``all``, ``cpu``, torch's name of one, or ``gpu``: every GPU, and that there is
    none is a failure, even for a CPU build. ``python`` is None for the running one. ``done`` gets each
    outcome as it comes. Raises HostError when torch is not installed or the Python cannot run the checks,
    UsageError for a device that torch does not see.
    """
    python = Path(sys.executable) if python is None else installed_packages.find_interpreter(python)
    folder = workspace.get_project_home() / "smoke-tests"
    # plugins of pytest that happen to be installed there are not ours to run
    session_env = {**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    target = installed_torch.inspect_target_python(
        python,
        session_env,
        device="cpu" if device == "cpu" else "",
        limit=CASE_SECONDS,
    )
    if "torch" in target.missing:
        raise errors.HostError(
            f"torch is not installed in {python}",
            tip="rocm-wheels install --venv my-torch; or name the Python that has it: --python DIR",
        )
    outcomes: list[SelfTestOutcome] = []

    def report(outcome: SelfTestOutcome) -> None:
        outcomes.append(outcome)
        done(outcome)

    def finish(devices: tuple[str, ...] = ()) -> SelfTestReport:
        return SelfTestReport(str(python), target.facts, devices, tuple(outcomes))

    # importing torch and listing its GPUs are checks that were made by now
    gpus: Sequence[Mapping[str, object]] | None = target.facts.get("devices")
    kind = target.kind
    built_for = f" for {kind} {target.kind_version}".rstrip() if kind != "cpu" else ", a CPU build"
    names = ", ".join(f"{gpu['device']} {gpu['name']}" for gpu in gpus or ())
    starts = [("import", "torch", f"torch {target.version}{built_for}" if target.version else None)]
    if device != "cpu":
        starts.append(("devices", "listing", None if gpus is None else names or "torch sees no GPU"))
    for group, name, detail in starts:
        if detail is None:
            ends: dict[str, CaseState] = {"crashed": "crash", "stopped": "timeout"}
            state = ends.get(target.ended.partition(" ")[0], "fail")
            report(SelfTestOutcome(group, name, "", state, target.ended))
            return finish()
        if group in groups:
            report(SelfTestOutcome(group, name, "", "pass", detail))
    devices = choose_devices(device, target.facts)
    if not gpus and device != "cpu" and (device == "gpu" or kind != "cpu"):
        # a build for GPUs that sees none does not work
        missing = f"torch is a build for {kind} and sees no GPU; --device cpu tests the CPU alone"
        missing = f"a GPU is required, and torch ({kind}) sees none" if device == "gpu" else missing
        report(SelfTestOutcome("devices", "a GPU", "", "fail", missing))
    files = [name for group in groups for name in GROUP_FILES[group]]
    with installed_torch.lend_pytest(target, session_env) as scratch:
        for number, tested in enumerate(devices):
            # what needs no GPU is tested once
            part = "quick and not gpu" if tested == "cpu" else "quick and gpu" if number else "quick"
            suite = smoke.make_smoke_request(
                target, folder, scratch, files=files, words=("-m", part), limit=CASE_SECONDS, device=tested
            )
            gfx = smoke.find_seen_target(target, tested)
            place = tested_gpus.GpuPlace(tested.replace(":", "-"), gfx, session_env)
            _run_device(suite, place, scratch / place.label, tested, report)
    return finish(devices)


def _run_device(
    suite: runner.TestRequest,
    place: tested_gpus.GpuPlace,
    folder: Path,
    device: str,
    report: Callable[[SelfTestOutcome], None],
) -> None:
    """Run the tests of one device, and report each as it ends."""
    reported: set[str] = set()
    printed: deque[str] = deque(maxlen=_SHOWN_LINES)

    def report_new(tests: Iterable[TestResult]) -> None:
        for test in tests:
            if test.name not in reported:
                reported.add(test.name)
                report(_make_outcome(test, device))

    def show(line: str) -> None:
        printed.append(line.rstrip())
        # one that failed is tried again, and reported when that is over
        so_far = journal.read_journal(folder / runner.WORK_FOLDER / "smoke.jsonl").results.values()
        report_new(test for test in so_far if test.outcome in {"passed", "skipped"})

    tests = runner.run_in_place(suite, place, folder, show).tests
    if not any("::" in test.name for test in tests) and any(test.outcome != "missing" for test in tests):
        lines = "".join(f"\n  | {line}" for line in printed)
        raise errors.HostError(f"{suite.target.python} could not run the checks{lines}")
    report_new(tests)


def _make_outcome(test: TestResult, device: str) -> SelfTestOutcome:
    """Name a test as people do: ``test_math.py::test_matmul[cpu-float32]`` is matmul float32 of math."""
    file, _, rest = test.name.partition("::")
    function, _, text = rest.removesuffix("]").partition("[")
    words = [function.removeprefix("test_").replace("_", " "), *(text.split("-") if text else ())]
    name = " ".join(word for word in words if word != device)
    group = next((group for group, files in GROUP_FILES.items() if file in files), "session")
    return SelfTestOutcome(
        group,
        name or file,
        device if device in words else "",
        _STATES[test.outcome],
        test.detail,
        test.seconds or 0.0,
    )
