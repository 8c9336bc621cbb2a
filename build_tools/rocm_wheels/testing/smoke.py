"""Run the smoke tests of a torch: a session a GPU, judged by its results.

No planned test is left out because nothing was written of it: whatever ended the run, it has an outcome.
The tests themselves are in ``smoke-tests/`` and run under the Python that is tested, where
rocm-wheels is not installed: what they need of the compatibility data is handed to them as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from rocm_wheels import __version__
from rocm_wheels.audit import import_check
from rocm_wheels.core import errors, extras, log, process, shell
from rocm_wheels.gpus.gpu import Gpu
from rocm_wheels.models import dtypes, libraries, tested_machine, torch_features
from rocm_wheels.models.gfx import get_gfx_targets, strip_features
from rocm_wheels.testing import installed_torch
from rocm_wheels.testing.results import BAD_OUTCOMES, Results, ResultSelection, TestResult, count_outcomes

DevicePolicy = Literal["unique", "all", "first", "single"]
DEVICE_POLICIES: tuple[DevicePolicy, ...] = ("unique", "all", "first", "single")
HIP_VARIABLE = "HIP_VISIBLE_DEVICES"
PAIR_VARIABLE = "ROCM_SMOKE_PAIR"
_OPENCL_VARIABLE = "GPU_DEVICE_ORDINAL"


@dataclass(frozen=True)
class GpuSession:
    """One run of pytest: ``half`` of the tests, on the GPU of ``gfx`` that HIP numbers ``index``.

    ``pair`` are two GPUs of this target by HIP's numbers, for what needs two. Without ``gfx``, on the one
    ``device`` that torch names so (``cpu``, ``cuda:1``, ``xpu:0``), or on what is there, or (``hidden``) on
    no GPU at all.
    """

    half: Literal["both", "cpu", "gpu"]
    gfx: str | None = None
    index: int | None = None
    pair: tuple[int, int] | None = None
    numbered: bool = False
    hidden: bool = False
    device: str = ""

    @property
    def label(self) -> str:
        """What is put behind the name of its tests: the target, and the number where several are tested."""
        number = f"#{self.index}" if self.numbered else ""
        return f"{self.gfx}{number}" if self.gfx else ""

    def make_environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return ``env`` with this GPU alone in sight. What ROCR_VISIBLE_DEVICES hides stays hidden."""
        session_env = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
        if self.hidden:
            session_env[HIP_VARIABLE] = "-1"
        if self.index is None:
            return session_env
        session_env.pop(_OPENCL_VARIABLE, None)
        session_env[HIP_VARIABLE] = str(self.index)
        if self.pair is not None:
            session_env[PAIR_VARIABLE] = ",".join(map(str, self.pair))
        return session_env


def choose_gpus(gpus: Sequence[Gpu], policy: DevicePolicy, targets: Sequence[str] | None) -> list[Gpu]:
    """Return the GPUs to test: the first of each target, all, or the first; of ``targets`` alone, if given.

    ``single`` is the peer's word for the first.

    Only those count that a program may use and HIP has a number for, in HIP's order.
    """
    numbered = [gpu for gpu in gpus if gpu.hip_index is not None and gpu.visible and gpu.gfx]
    ordered = sorted(numbered, key=lambda gpu: gpu.hip_index or 0)
    bases = None if targets is None else {strip_features(target) for target in targets}
    matching = [gpu for gpu in ordered if bases is None or strip_features(str(gpu.gfx)) in bases]
    if policy in ("first", "single"):
        return matching[:1]
    if policy == "unique":
        return list({str(gpu.gfx): gpu for gpu in reversed(matching)}.values())[::-1]
    return matching


def resolve_device_query(
    query: str, policy: DevicePolicy | None, *, together: bool
) -> tuple[DevicePolicy, bool]:
    """Return which GPUs are tested, and whether all of a target at once.

    ``query`` is what the peer calls the first stage: "unique" or "all" of the GPUs; then ``policy`` shows
    tests the first of them (``None``, single) or all. "auto" leaves it to the policy. ``together``: the
    suite's tests need all GPUs of a target.
    """
    if query == "auto":
        return ("all", True) if together and policy != "single" else (policy or "unique", False)
    if policy == "all" or (policy is None and together):
        return ("all", True) if query == "all" else ("unique", False)
    return policy or "single", False


def plan_sessions(chosen: Sequence[Gpu], gpus: Sequence[Gpu], *, hidden: bool = False) -> list[GpuSession]:
    """Return the sessions: the half of the CPU once, then that of the GPU for each; without one, both in one.

    ``hidden``: where none is chosen, none is to be seen.
    """
    if not chosen:
        return [GpuSession("both", hidden=hidden)]
    sessions = [GpuSession("cpu")]
    for gpu in chosen:
        if gpu.hip_index is None or gpu.gfx is None:
            raise errors.UsageError(f"HIP has no number for {gpu.name or 'a GPU'}")
        alike = [other.hip_index for other in chosen if other.gfx == gpu.gfx]
        beside = [
            other.hip_index
            for other in gpus
            if other.gfx == gpu.gfx and other.visible and other.hip_index not in (None, gpu.hip_index)
        ]
        partner = next((number for number in beside if number is not None), None)
        pair = None if partner is None else (gpu.hip_index, partner)
        sessions.append(
            GpuSession("gpu", strip_features(gpu.gfx), gpu.hip_index, pair, numbered=len(alike) > 1)
        )
    return sessions


NO_TESTS_EXIT_CODE = 5  # pytest's exit code
FAILED_EXIT_CODE = 1  # likewise


@dataclass(frozen=True)
class SmokeRun:
    """What came of it: all results, those of each target where there are several, and pytest's exit code."""

    results: Results
    by_gfx: Mapping[str, Results]
    code: int


@dataclass(frozen=True)
class SessionResult:
    """A session, the target that it is about, its tests, how many were left out; ``code`` None: not over."""

    session: GpuSession
    gfx: str | None
    tests: tuple[TestResult, ...]
    code: int | None
    deselected: int = 0


def account_for_tests(
    outcomes: Path, session: GpuSession, gfx: str | None, code: int | None
) -> SessionResult:
    """Return every planned test of a session with its outcome, by what its pytest wrote so far.

    A test in which pytest itself ended has crashed; one that it did not come to is missing. So is all of a
    session that has not begun.
    """
    planned, deselected = list[str](), 0
    begun: set[str] = set()
    results: dict[str, TestResult] = {}
    for line in outcomes.read_text(encoding="utf-8").splitlines() if outcomes.is_file() else ():
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            break  # it died, or is about to go on, while it wrote this line
        if "planned" in entry:
            planned, deselected = entry["planned"], entry["deselected"]
        elif "begun" in entry:
            begun.add(entry["begun"])
        else:
            results[entry["name"]] = TestResult.model_validate(entry)
    for name in planned:
        results.setdefault(name, _make_lost_result(name, begun=name in begun, code=code))
    if code is None and not planned:
        results["pytest"] = TestResult(name="pytest", outcome="missing", seconds=0, reason="not run")
    if code not in (None, 0, NO_TESTS_EXIT_CODE) and not any(
        result.outcome in BAD_OUTCOMES for result in results.values()
    ):
        how = import_check.describe_exit(code or 0)
        results["pytest"] = TestResult(name="pytest", outcome="failed", seconds=0, reason=how)
    mark = f" @{session.label}" if session.label else ""
    tests = tuple(result.model_copy(update={"name": result.name + mark}) for result in results.values())
    return SessionResult(session, gfx, tests, code, deselected)


def combine_sessions(
    target: installed_torch.TargetPython,
    files: Mapping[str, str],
    done: Sequence[SessionResult],
    words: Sequence[str] = (),
    *,
    machine: tested_machine.TestedMachine | None = None,
    seconds: float = 0.0,
    variables: Mapping[str, str] | None = None,
) -> SmokeRun:
    """Put the sessions into one, and into one for each target with what was tested without a GPU.

    ``words`` are what pytest was told besides: some tests may be chosen, so they go into the results,
    as do the ``machine``, how long it took, and the ``variables`` that options were read from.
    """
    arguments_text = f" ({shell.format_command(words)})" if words else ""

    def make_results(chosen: Sequence[SessionResult]) -> Results:
        tests = tuple(test for session_result in chosen for test in session_result.tests)
        return Results(
            schema=1,
            tool=f"rocm-wheels {__version__} smoke tests{arguments_text}",
            when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            host=f"{platform.node()} ({platform.system()} {platform.release()}, {platform.machine()})",
            torch=target.torch_version,
            gfx=tuple(dict.fromkeys(gfx for gfx in map(_find_tested_target, chosen) if gfx)),
            files=files,
            selection=ResultSelection(
                pytest_args=tuple(words),
                deselected=sum(session_result.deselected for session_result in chosen),
                from_environment=variables or {},
            ),
            machine=machine,
            seconds=round(seconds, 1),
            tests=tests,
            counts=count_outcomes(tests),
        )

    targets = list(dict.fromkeys(session_result.gfx for session_result in done if session_result.gfx))
    by_gfx = {
        gfx: make_results([session_result for session_result in done if session_result.gfx in (gfx, None)])
        for gfx in targets
    }
    whole = make_results(done)
    codes = [
        session_result.code
        for session_result in done
        if session_result.code not in (None, 0, NO_TESTS_EXIT_CODE)
    ]
    code = (
        NO_TESTS_EXIT_CODE
        if not whole.tests
        else (codes[0] or 0)
        if codes
        else FAILED_EXIT_CODE
        if whole.bad
        else 0
    )
    return SmokeRun(whole, by_gfx if len(targets) > 1 else {}, code)


def _make_lost_result(name: str, *, begun: bool, code: int | None) -> TestResult:
    if code is None:
        why = "not run to its end" if begun else "not run"
        return TestResult(name=name, outcome="missing", seconds=0, reason=f"{why}: the run is not over")
    how = f"pytest {import_check.describe_exit(code) if code else 'did not come to it'}"
    if begun:
        return TestResult(name=name, outcome="crashed", seconds=0, reason=f"no result: {how}")
    return TestResult(name=name, outcome="missing", seconds=0, reason=f"not run: {how}")


def _find_tested_target(done: SessionResult) -> str | None:
    """Return the target of a session, if any of its tests of the GPU was run."""
    ran = (test for test in done.tests if "[gpu" in test.name and test.outcome not in ("skipped", "missing"))
    return done.gfx if any(ran) else None


_KEEP_SECONDS = 1.0  # how old the results on the disk may be while tests run
_PYTEST_ARGUMENTS = ("-v", "-p", "no:cacheprovider")
_START_SCRIPT = "start_pytest.py"
_LENT_VARIABLE = "ROCM_SMOKE_PYTEST"  # as in that script
_LENT_MODULES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "colorama")
_LENT_PYTHON = (3, 10)  # older ones cannot run our pytest


@dataclass(frozen=True)
class SmokeRequest:
    """What is to be tested: the torch of ``python``, by the tests in ``folder``, on which GPUs.

    ``targets`` are those of ``--family``, None for any. ``wheels`` are files or folders of the wheels
    that are installed. ``words`` go to pytest, which runs in ``folder``. ``limit``: seconds for each test,
    None as the tests say; all limits are multiplied by ``scale``. ``machine`` goes into the results, and so
    do the ``variables`` of the environment that options were read from.
    """

    python: Path
    folder: Path
    policy: DevicePolicy = "unique"
    targets: tuple[str, ...] | None = None
    require_gpu: bool = False
    wheels: tuple[Path, ...] = ()
    words: tuple[str, ...] = ()
    limit: float | None = None
    scale: float = 1.0
    machine: tested_machine.TestedMachine | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def run_smoke_tests(
    request: SmokeRequest,
    gpus: Sequence[Gpu],
    env: Mapping[str, str],
    *,
    show: Callable[[str], None],
    keep: Callable[[SmokeRun], None] = lambda _: None,
) -> SmokeRun:
    """Run the smoke tests; ``gpus`` are those of the machine, ``show`` gets what pytest prints.

    ``keep`` is to write the results down: it is called before the first test, while tests run, and at the
    end, also when that is an interruption; what was not run by then is missing. Raises ChecksError where
    torch is not installed, the tests are not there, or no GPU of ``request.targets`` can be tested, and
    UsageError for wheels that are not what is installed. A test that fails is no error of this function.
    """
    looking_script = request.folder / "looking.py"
    if not looking_script.is_file():
        raise errors.ChecksError(
            f"the smoke tests are not in {request.folder}", tip="install rocm-wheels again"
        )
    target = installed_torch.inspect_target_python(request.python, looking_script, env)
    installed_torch.require_torch(target)
    files = installed_torch.identify_wheels(target.installed, request.wheels)
    chosen = _choose_tested_gpus(request, target, gpus)
    sessions = plan_sessions(chosen, gpus)
    words = (*shlex.split(env.get("PYTEST_ADDOPTS", "")), *request.words)
    codes: list[int | None] = [None] * len(sessions)
    machine, begun = request.machine, time.monotonic()
    if machine is not None and target.rocm_version:
        machine = machine.model_copy(update={"rocm": target.rocm_version})
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-smoke-") as name:
        outcomes = [Path(name, f"outcomes-{number}.jsonl") for number in range(len(sessions))]

        def now() -> SmokeRun:
            parts = zip(outcomes, sessions, codes, strict=True)
            done = [
                account_for_tests(file, gpu_session, _find_session_target(gpu_session, target), code)
                for file, gpu_session, code in parts
            ]
            return combine_sessions(
                target,
                files,
                done,
                words,
                machine=machine,
                seconds=time.monotonic() - begun,
                variables=request.variables,
            )

        keep(now())
        try:
            for number, session in enumerate(sessions):
                where = session.label or {"cpu": "on the CPU"}.get(session.half, "on what is here")
                log.log_note(f"smoke tests: {where}")
                show_and_keep = _keep_while_showing(show, lambda: keep(now()))
                codes[number] = run_session(
                    request, target, session, env, outcomes=outcomes[number], show=show_and_keep
                )
        finally:
            ran = now()
            keep(ran)
    return ran


def _keep_while_showing(show: Callable[[str], None], keep: Callable[[], None]) -> Callable[[str], None]:
    """Return what shows a line, and keeps the results when that was a while ago."""
    last = time.monotonic()

    def show_line(line: str) -> None:
        nonlocal last
        show(line)
        if time.monotonic() > last + _KEEP_SECONDS:
            keep()
            last = time.monotonic()

    return show_line


def _choose_tested_gpus(
    request: SmokeRequest, target: installed_torch.TargetPython, gpus: Sequence[Gpu]
) -> list[Gpu]:
    chosen = choose_gpus(gpus, request.policy, request.targets)
    if chosen and target.kind not in ("rocm", ""):
        named = ", ".join(str(gpu.gfx) for gpu in chosen)
        log.log_warning(f"torch {target.version} is a build for {target.kind}: {named} is not tested")
        chosen = []
    if not chosen and request.targets is not None:
        tip = "`rocm-wheels doctor` lists the GPUs here; without a family, the CPU is tested"
        raise errors.ChecksError(f"no GPU of {', '.join(request.targets)} can be tested here", tip=tip)
    return chosen


def run_session(
    request: SmokeRequest,
    target: installed_torch.TargetPython,
    session: GpuSession,
    env: Mapping[str, str],
    *,
    outcomes: Path,
    show: Callable[[str], None],
) -> int:
    """Run pytest once, which writes to ``outcomes``; return its exit code.

    A Python without pytest is lent one. Raises ChecksError where it cannot run that one.
    """
    data = outcomes.with_name("data.json")
    rocm = target.kind_version if target.kind == "rocm" else None
    rows = make_smoke_data(_find_session_target(session, target), target.version or None, rocm)
    data.write_text(json.dumps(rows), encoding="utf-8")
    argv = [str(request.python), str(request.folder / _START_SCRIPT), *_PYTEST_ARGUMENTS]
    # with "=": pytest takes any other word that is a file for tests, and looks beside it for conftest.py
    argv += [f"--smoke-half={session.half}", f"--smoke-data={data}", f"--smoke-outcomes={outcomes}"]
    argv += [f"--smoke-gfx={session.gfx}"] if session.gfx else []
    argv += [f"--smoke-device={session.device}"] if session.device else []
    if session.device == "cpu" and target.version:
        given = outcomes.with_name("given.json")  # so torch need not be asked again
        given.write_text(json.dumps(_make_cpu_facts(target, rows)), encoding="utf-8")
        argv += [f"--smoke-given={given}"]
    argv += ["--require-gpu"] if session.gfx or (request.require_gpu and session.half == "both") else []
    argv += [f"--smoke-limit={request.limit:g}"] if request.limit is not None else []
    argv += [f"--smoke-scale={request.scale:g}"]
    session_env = session.make_environment(env)
    if "pytest" in target.missing:
        session_env[_LENT_VARIABLE] = os.pathsep.join(find_lent_folders(target))
    try:
        return process.run_command(
            [*argv, *request.words],
            env=session_env,
            cwd=request.folder,
            on_line=show,
            check=None,
            description="pytest",
        ).returncode
    except errors.BuildError as cause:
        raise errors.ChecksError(f"pytest could not be run by {request.python}") from cause


def _make_cpu_facts(target: installed_torch.TargetPython, rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return what looking.py finds out where the CPU alone is tested."""
    torch = {name: target.facts[name] for name in ("version", "kind", "of", "file")}
    no_gpu = {"gpu": None, "no_gpu": "the CPU alone is tested", "gpu_fails": False}
    return {"torch": torch, "fault": "", **no_gpu, "data": rows, "no_data": ""}


def find_lent_folders(target: installed_torch.TargetPython) -> list[str]:
    """Return the folders of our own pytest and of what it needs, for a Python without it.

    Raises ChecksError for a Python that is too old for it, MissingExtraError where we have none.
    """
    if tuple(map(int, target.python_version.split("."))) < _LENT_PYTHON:
        installed_torch.require_pytest(target)
    extras.require_extras(f"{target.python}, which has no pytest,", "release")
    specs = [importlib.util.find_spec(name) for name in _LENT_MODULES]
    packages = [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]
    return list(dict.fromkeys(str(package.parent) for package in packages))


def _find_session_target(session: GpuSession, target: installed_torch.TargetPython) -> str | None:
    """Return the target that a session tests: its own, else that of the first GPU that torch sees."""
    if session.device and target.kind == "rocm":
        gpus = target.facts.get("devices", ())
        return next((strip_features(gpu["arch"]) for gpu in gpus if gpu["device"] == session.device), None)
    if session.gfx or session.half == "cpu" or session.hidden or not target.devices:
        return session.gfx
    return strip_features(target.devices[0])


_FLASH_SINCE, _FLASH_RELEASE = Version("2.8"), "0.8.2b"  # newer than that release is every torch since 2.8


def make_smoke_data(target: str | None, torch: str | None = None, rocm: str | None = None) -> dict[str, Any]:
    """Return the rows that smoke tests go through: ``dtypes``, ``libraries``, ``domains``.

    ``flash_attention`` says why torch must have it on this target; "", where it may be without.

    A row that does not concern the GPU of ``target`` says why (``not_here``); one that this torch is too old
    for, on whatever device, does too (``too_new``). ``torch`` and ``rocm`` are versions as torch says them;
    None, when they do not matter. A target that the tables do not have has rows that say so.
    """
    gfx = strip_features(target) if target else None
    return {
        "schema": 1,
        "gfx": gfx,
        "dtypes": _make_dtype_rows(gfx, _parse_version(torch), _parse_version(rocm)),
        "libraries": _make_library_rows(gfx),
        "domains": _make_domain_rows(_parse_version(torch)),
        "flash_attention": _explain_flash_attention(gfx, _parse_version(torch)),
    }


def _explain_flash_attention(gfx: str | None, torch: Version | None) -> str:
    """Say why torch must have flash attention: aotriton served these targets first, and still does."""
    if (
        gfx is None
        or torch is None
        or torch < _FLASH_SINCE
        or not torch_features.has_aotriton_kernels(gfx, _FLASH_RELEASE)
    ):
        return ""
    return f"aotriton has kernels for {gfx} since {get_gfx_targets()[gfx].aotriton}"


def _parse_version(text: str | None) -> Version | None:
    """Read a version; of HIP's (``7.2.26015-9428210``) what is before the build."""
    if text is None:
        return None
    try:
        return Version(text)
    except InvalidVersion:
        match = re.match(r"[0-9]+(\.[0-9]+)*", text)
        return Version(match[0]) if match else None


def _make_dtype_rows(gfx: str | None, torch: Version | None, rocm: Version | None) -> list[dict[str, Any]]:
    is_known = gfx in get_gfx_targets()
    target_dtypes = (
        {row.name: row for row in dtypes.list_target_dtypes(gfx, torch=torch, rocm=rocm)}
        if gfx and is_known
        else {}
    )
    table = dtypes.load_dtype_table()
    rows = []
    for name, dtype in dtypes.get_dtypes().items():
        how = table.formats[dtype.format]
        tolerances = table.tolerances.get(name)
        elementwise, accumulated = (
            {"rtol": row.rtol, "atol": row.atol} if row else None
            for row in (
                tolerances.elementwise if tolerances else None,
                tolerances.accumulated if tolerances else None,
            )
        )
        for operation in how.operations if dtype.operations is None else dtype.operations:
            not_here = _why_not_here(gfx, name, dtype, operation, target_dtypes.get(name)) if gfx else ""
            rows.append(
                {
                    "id": f"{name}-{operation}",
                    "operation": operation,
                    "torch": dtype.torch,
                    "elements": dtype.elements,
                    "scale": dtype.scale,
                    "block": dtype.block,
                    "bits": dtype.bits,
                    "format": dtype.format,
                    "compared": how.compared,
                    "reference": how.reference,
                    "product": dtype.product or how.product,
                    "multiple": how.multiple,
                    "elementwise": elementwise,
                    "accumulated": accumulated,
                    "not_here": not_here if is_known or not gfx else f"nothing is known about {gfx}",
                    "too_new": _why_too_new(name, dtype, torch),
                }
            )
    return rows


def _why_too_new(name: str, dtype: dtypes.Dtype, torch: Version | None) -> str:
    if torch is None or dtype.since_torch is None or dtype.since_torch <= torch:
        return ""
    return f"torch has {name} since {dtype.since_torch}"


def _why_not_here(
    gfx: str, name: str, dtype: dtypes.Dtype, operation: str, target_dtype: dtypes.TargetDtype | None
) -> str:
    """Say why an operation with a dtype is not for a target; nothing, when it is."""
    if gfx not in get_gfx_targets():
        return ""
    if target_dtype is None:
        since = ", ".join(
            f"{component} {version}"
            for component, version in (("torch", dtype.since_torch), ("ROCm", dtype.since_rocm))
            if version
        )
        sentence = f"{gfx} ({dtypes.find_architecture(gfx)}) has no {name} here"
        return f"{sentence}; it is since {since}" if since else sentence
    if operation in target_dtype.operations:
        return ""
    library = dtypes.get_operations()[operation].library
    if library and library in (excluded := get_gfx_targets()[gfx].excluded):
        why = excluded[library] or "no issue says why"
        return f"{operation} needs {library}, which is not built for {gfx}: {why}"
    note = f": {target_dtype.note}" if target_dtype.note else ""
    return (
        f"{name} is held and converted on {gfx} ({dtypes.find_architecture(gfx)}), not calculated with{note}"
    )


def _make_library_rows(gfx: str | None) -> list[dict[str, Any]]:
    missing = (
        {api.name: api for api in libraries.list_missing_libraries(gfx)}
        if gfx in get_gfx_targets() and gfx
        else {}
    )
    return [
        {
            "id": name,
            "use": library.use,
            "file": library.therock.file if library.therock else "",
            "api": library.probe.api if library.probe else "",
            "setting": library.probe.setting if library.probe else "",
            "not_here": _why_not_built(name, library, gfx, missing[name].issue) if name in missing else "",
        }
        for name, library in libraries.get_rocm_libraries().items()
    ]


def _why_not_built(name: str, library: libraries.RocmLibrary, gfx: str | None, issue: str) -> str:
    return f"{name} is not built for {gfx}: {issue or 'no issue says why'}; {library.without.text}"


def _make_domain_rows(torch: Version | None) -> list[dict[str, Any]]:
    return [
        {
            "id": name,
            "probe": library.probe,
            "state": library.state.now,
            "code": library.code,
            "from": library.origin.text,
            "obstacles": libraries.find_obstacles(name, torch=torch),
        }
        for name, library in libraries.get_domain_libraries().items()
    ]
