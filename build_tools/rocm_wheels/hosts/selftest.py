"""Test the torch of one Python: find it, list its devices, run the checks in processes of their own, judge.

One process does as many cases as it survives: starting torch takes seconds. What kills it, is the outcome
of the case that it was at; the rest goes to a new one. The process is a group that ends with us.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from rocm_wheels.audit import describe_exit
from rocm_wheels.core import BuildError, HostError, UsageError, format_duration, run_command, suggest_name
from rocm_wheels.hosts.checks.run import MODULES, PROGRESS
from rocm_wheels.hosts.installed_packages import find_interpreter

CaseState = Literal["pass", "fail", "crash", "timeout", "skip"]
BAD_STATES: tuple[CaseState, ...] = ("fail", "crash", "timeout")


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
    """What came of a case: ``detail`` says what was measured, why it failed, or why it was left out.

    ``missing`` names the module that was not there, None otherwise. ``seconds`` include importing torch for
    the first case of a process.
    """

    case: SelfTestCase
    state: CaseState
    detail: str = ""
    seconds: float = 0.0
    missing: str | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


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


CASE_GROUPS = tuple(MODULES)
ALL_GROUPS = "all"
DEVICE_CHOICES = ("auto", "all", "cpu")
FIRST_CASE = SelfTestCase("import", "torch")
LISTING_CASE = SelfTestCase("devices", "listing")


def parse_groups(words: Iterable[str]) -> tuple[str, ...]:
    """Return the groups that words name, in their order here; none and ``all`` stand for every one."""
    names = [word.lower() for word in words]
    for word in names:
        if word not in (*CASE_GROUPS, ALL_GROUPS):
            hint = suggest_name(word, (*CASE_GROUPS, ALL_GROUPS))
            raise UsageError(
                f"there are no checks {word}{hint}", tip=f"checks: {', '.join((ALL_GROUPS, *CASE_GROUPS))}"
            )
    if not names or ALL_GROUPS in names:
        return CASE_GROUPS
    return tuple(group for group in CASE_GROUPS if group in names)


def list_case_names(group: str) -> tuple[str, ...]:
    """Return the names of a group's checks."""
    tables = [
        getattr(import_module(f"rocm_wheels.hosts.checks.{module}"), table)
        for module, table in MODULES[group]
    ]
    return tuple(name for table in tables for name in table)


def list_cases(groups: Sequence[str], devices: Sequence[str]) -> list[SelfTestCase]:
    """Return the cases of groups on devices, by device, without ``FIRST_CASE`` and ``LISTING_CASE``."""
    cases = [SelfTestCase("import", name) for name in list_case_names("import")] if "import" in groups else []
    cases = [case for case in cases if case != FIRST_CASE]
    for device in devices:
        for group in groups:
            if group != "import":
                names = [name for name in list_case_names(group) if SelfTestCase(group, name) != LISTING_CASE]
                cases += [SelfTestCase(group, name, device) for name in names]
    return cases


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
        raise UsageError(
            f"torch sees no device {choice}", tip=f"devices here: {', '.join(('auto', 'all', 'cpu', *gpus))}"
        )
    return (choice,)


_CHECKS_SCRIPT = Path(__file__).with_name("checks") / "run.py"
_START_SECONDS = 60.0
_KEPT_LINES = 200
_SHOWN_LINES = 15


def run_cases(
    cases: Sequence[SelfTestCase],
    python: Path,
    env: Mapping[str, str],
    scratch: Path,
    *,
    limit: float,
    done: Callable[[SelfTestOutcome], None] = lambda outcome: None,
    more: Mapping[str, object] | None = None,
) -> list[SelfTestOutcome]:
    """Run cases one after the other under ``python``; each has ``limit`` seconds. Return every outcome.

    ``scratch`` is a folder for what the processes leave. ``done`` is told each outcome as it comes. ``more``
    has options for the checks (``checks/run.py``). Raises HostError when a process cannot be started, or
    ends without having done anything.
    """
    remaining = list(cases)
    outcomes: list[SelfTestOutcome] = []
    while remaining:
        finished = _run_process(remaining, python, env, scratch=scratch, limit=limit, more=more or {})
        for outcome in finished:
            outcomes.append(outcome)
            done(outcome)
        over = {outcome.case for outcome in finished}
        remaining = [case for case in remaining if case not in over]
    return outcomes


def _run_process(
    cases: Sequence[SelfTestCase],
    python: Path,
    env: Mapping[str, str],
    *,
    scratch: Path,
    limit: float,
    more: Mapping[str, object],
) -> list[SelfTestOutcome]:
    """Return what one process came to, with the case that it died of."""
    answers = scratch / "answers.jsonl"
    answers.unlink(missing_ok=True)
    spoken: deque[str] = deque(maxlen=_KEPT_LINES)
    words = json.dumps([[case.group, case.name, case.device] for case in cases])
    pids: list[int] = []
    end, state = "", "crash"
    try:
        code = run_command(
            [python, "-X", "faulthandler", _CHECKS_SCRIPT, answers, words, json.dumps(more)],
            env=env,
            cwd=scratch,
            on_line=spoken.append,
            silence=limit,
            timeout=_START_SECONDS + limit * len(cases),
            check=None,
            description=str(python),
            on_start=pids.append,
        ).returncode
        end = describe_exit(code) if code else "ended in the middle of it, with exit code 0"
    except BuildError as failure:
        if not pids:
            raise HostError(str(failure)) from failure.__cause__
        end, state = f"stopped after {format_duration(limit)}", "timeout"
    outcomes, begun = _read_answers(answers)
    if begun is not None:
        detail = end + _format_tail(spoken)
        outcomes.append(
            SelfTestOutcome(
                begun, "timeout" if state == "timeout" else "crash", detail, limit * (state == "timeout")
            )
        )
    if not outcomes:
        raise HostError(f"{python} could not run the checks: {end}{_format_tail(spoken)}")
    return outcomes


def _read_answers(answers: Path) -> tuple[list[SelfTestOutcome], SelfTestCase | None]:
    """Return the outcomes that were written down, and the case that was begun and not ended."""
    outcomes: list[SelfTestOutcome] = []
    begun: SelfTestCase | None = None
    text = answers.read_text(encoding="utf-8", errors="replace") if answers.is_file() else ""
    for line in text.splitlines():
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            break  # it died while it wrote this line
        if "begin" in answer:
            begun = SelfTestCase(*answer["begin"])
        else:
            begun = None
            outcomes.append(_make_outcome(answer))
    return outcomes, begun


def _make_outcome(answer: Mapping[str, Any]) -> SelfTestOutcome:
    outcome = SelfTestOutcome(
        SelfTestCase(*answer["end"]),
        answer["state"],
        answer["detail"],
        answer["seconds"],
        answer.get("missing"),
    )
    return replace(outcome, facts=answer.get("facts") or {})


def _format_tail(spoken: Sequence[str]) -> str:
    """Return the last lines that a process printed; our own lines of progress are no news."""
    lines = [line.rstrip() for line in spoken if line.strip() and not line.startswith(PROGRESS)]
    return "".join(f"\n  | {line}" for line in lines[-_SHOWN_LINES:])


CASE_SECONDS = (
    300.0  # seconds a check: compiling kernels when they are first used takes minutes on some cards
)
NO_KERNEL_MESSAGES = ("invalid device function", "no kernel image", "kernel image is invalid")
_GPU_CASE = SelfTestCase("devices", "a GPU")


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


def run_self_test(
    request: SelfTestRequest,
    env: Mapping[str, str],
    *,
    done: Callable[[SelfTestOutcome], None] = lambda outcome: None,
) -> SelfTestReport:
    """Run the checks and return what came of each; a check that fails is no error of this function.

    Raises HostError when torch is not installed or the Python does not start, UsageError for a device that
    torch does not see, and for the CPU alone where a GPU is required.
    """
    if request.require_gpu and request.device == "cpu":
        raise UsageError("a GPU is required, and only the CPU is to be tested", tip="leave out one of them")
    python = Path(sys.executable) if request.python is None else find_interpreter(request.python)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-test-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        within = {**env, **_make_cache_variables(scratch)}
        first_outcomes, facts = inspect_torch(
            python, within, scratch, limit=request.limit, device=request.device
        )
        reported = [
            outcome
            for outcome in first_outcomes
            if outcome.case.group in request.groups or outcome.state != "pass"
        ]
        for outcome in reported:
            done(outcome)
        if any(outcome.state != "pass" for outcome in first_outcomes):
            untested = list_cases(request.groups, ("",))
            reason = f"not tried: {first_outcomes[-1].case} comes first"
            return SelfTestReport(
                str(python),
                facts,
                (),
                (*reported, *(SelfTestOutcome(case, "skip", reason) for case in untested)),
            )
        devices = choose_devices(request.device, facts)
        if (missing := _check_missing_gpu(request, facts, devices)) is not None:
            reported.append(missing)
            done(missing)
        cases = list_cases(request.groups, devices)
        reported += run_cases(cases, python, within, scratch, limit=request.limit, done=done)
    return SelfTestReport(str(python), facts, devices, tuple(reported))


def inspect_torch(
    python: Path, env: Mapping[str, str], scratch: Path, *, limit: float, device: str
) -> tuple[list[SelfTestOutcome], dict[str, object]]:
    """Import torch, then have it list its devices unless only the CPU counts: the outcomes and the facts.

    The first one that fails is the last. Raises HostError when torch is not installed.
    """
    outcomes = run_cases([FIRST_CASE], python, env, scratch, limit=limit)
    if outcomes[0].missing == "torch":
        raise HostError(
            f"torch is not installed in {python}",
            tip="rocm-wheels install; or name the Python that has it: --python .venv/bin/python",
        )
    if outcomes[0].state == "pass" and device != "cpu":
        outcomes += run_cases([LISTING_CASE], python, env, scratch, limit=limit)
    facts = {name: value for outcome in outcomes for name, value in outcome.facts.items() if name != "detail"}
    return outcomes, facts


def _check_missing_gpu(
    request: SelfTestRequest, facts: Mapping[str, object], devices: Sequence[str]
) -> SelfTestOutcome | None:
    """A build for GPUs that sees none does not work, unless only the CPU was asked for."""
    if any(device != "cpu" for device in devices) or facts.get("devices"):
        return None
    kind = str(facts.get("kind"))
    if request.require_gpu:
        return SelfTestOutcome(_GPU_CASE, "fail", f"a GPU is required, and torch ({kind}) sees none")
    if kind != "cpu" and request.device != "cpu":
        message = f"torch is a build for {kind} and sees no GPU; --device cpu tests the CPU alone"
        return SelfTestOutcome(_GPU_CASE, "fail", message)
    return None


def _make_cache_variables(scratch: Path) -> dict[str, str]:
    """Have torch.compile compile, not find what it compiled last time."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TRITON_CACHE_DIR": str(scratch / "triton"),
    }
