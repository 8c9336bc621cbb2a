"""What every smoke test is given: the torch that is there, its GPU, what is known of it, and a process alone.

Works under any Python with torch and pytest; rocm-wheels need not be installed there. The compatibility data
come in a file (``--smoke-data``, written by build_tools/run_pytorch_smoke_tests.py) or are asked of the
checkout that this folder lies in.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import isolation
import pytest
from looking import Given, gpu_fault, look
from outcomes import Outcomes
from processes import adopt_orphans, end_with_parent, leave_no_cores

LIMIT = 180.0  # seconds a test; kernels that are compiled when first used take a minute on some GPUs
ROWS = {"dtype_row": "dtypes", "library_row": "libraries", "domain_row": "domains"}
_GIVEN = pytest.StashKey[Given]()
_SCRATCH = pytest.StashKey[Any]()
_LOST = pytest.StashKey[str]()
_RUNNER = pytest.StashKey[isolation.Runner]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the smoke tests."""
    add = parser.getgroup("smoke", "tests of an installed torch").addoption
    add("--require-gpu", action="store_true", help="that there is no AMD GPU is a failure")
    add(
        "--smoke-half", choices=("both", "cpu", "gpu"), default="both", help="run one half of the tests alone"
    )
    add("--smoke-limit", type=float, metavar="SECONDS", help=f"limit of each test [{LIMIT:g}, or more]")
    add("--smoke-scale", type=float, default=1.0, metavar="FACTOR", help="multiply all limits [%(default)g]")
    add(
        "--smoke-processes",
        choices=("fork", "spawn"),
        default="fork" if isolation.CAN_FORK else "spawn",
        help="how each test gets a process of its own [%(default)s]",
    )
    add(
        "--smoke-device",
        default="",
        metavar="DEVICE",
        help="test this one of torch's alone: cpu, cuda:1, xpu:0",
    )
    add(
        "--smoke-jobs",
        type=int,
        default=1,
        metavar="NUMBER",
        help="on the CPU alone: tests at once [%(default)s]",
    )
    add("--smoke-data", metavar="FILE", help="compatibility data as JSON [those of the checkout]")
    add("--smoke-gfx", metavar="GFX", help="the GPU must be of this target")
    add("--smoke-outcomes", metavar="FILE", help="write each outcome as a line of JSON, as it comes")
    add("--smoke-given", metavar="FILE", help="what another process found out")
    add("--smoke-one", metavar="FILE", help="this is a process for one test: send its reports there")


def pytest_configure(config: pytest.Config) -> None:
    """Look at torch in a process that may die of it, and ask for the data."""
    config.addinivalue_line("markers", "gpu: about a GPU; skipped by name without one")
    config.addinivalue_line("markers", "quick: of the quick part, which is `rocm-wheels test`")
    config.addinivalue_line("markers", "limit(seconds): how long this test may take")
    config.addinivalue_line(
        "markers", "dynamo: imports torch._dynamo, as each optimizer does; a second or more"
    )
    option = config.option
    if option.smoke_processes == "fork" and not isolation.CAN_FORK:
        raise pytest.UsageError("--smoke-processes fork: this system cannot; leave the option out")
    if option.smoke_jobs > 1 and option.smoke_device != "cpu":
        raise pytest.UsageError("--smoke-jobs: tests do not share a GPU; with --smoke-device=cpu alone")
    if option.smoke_given:
        config.stash[_GIVEN] = Given(**json.loads(Path(option.smoke_given).read_text(encoding="utf-8")))
    if option.smoke_one:
        return
    isolation.end_on_signals()
    adopt_orphans()
    leave_no_cores()
    if option.smoke_outcomes:
        end_with_parent()  # whoever wants them is not there any more
    if not option.smoke_given:
        config.stash[_GIVEN] = look(
            data=option.smoke_data,
            gfx=option.smoke_gfx,
            require_gpu=option.require_gpu,
            device=option.smoke_device,
        )
    found = config.stash[_GIVEN]
    runner = isolation.Runner(lambda item: None if _not_run(item) else _start(item), option.smoke_jobs)
    config.stash[_RUNNER] = runner
    config.add_cleanup(runner.end)
    if option.smoke_outcomes and not hasattr(config, "workerinput"):
        outcomes = Outcomes(Path(option.smoke_outcomes), lambda item: _is_of_half(item, option.smoke_half))
        config.pluginmanager.register(outcomes)
    if option.smoke_processes == "fork" and not found.fault and not option.collectonly:
        importlib.import_module("torch")  # once for all forks; no device is touched
    if option.smoke_processes == "spawn":
        config.stash[_SCRATCH] = tempfile.TemporaryDirectory(prefix="smoke-")
        config.add_cleanup(config.stash[_SCRATCH].cleanup)
        _given_file(config).write_text(json.dumps(found._asdict()), encoding="utf-8")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is tested."""
    given = config.stash[_GIVEN]
    of = f"{given.torch['kind']} {given.torch['of']}".strip() if given.torch else ""
    torch = given.fault or f"{given.torch['version']} ({of}) in {given.torch['file']}"
    gpu = f"{given.gpu['name']} ({given.gpu['arch']})" if given.gpu else f"none: {given.no_gpu}"
    return [f"torch: {torch}", f"GPU: {gpu}", *([f"data: {given.no_data}"] if given.no_data else [])]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test its devices, and the rows of the data that it is about."""
    given = metafunc.config.stash[_GIVEN]
    if "device" in metafunc.fixturenames:
        only_gpu = any(mark.name == "gpu" for mark in metafunc.definition.iter_markers())
        device = metafunc.config.option.smoke_device
        cpu = pytest.param("cpu", id="cpu")
        gpu = pytest.param(device or "cuda:0", id=device or "gpu", marks=pytest.mark.gpu)
        devices = [cpu] if device == "cpu" else [gpu] if device or only_gpu else [cpu, gpu]
        metafunc.parametrize("device", devices, indirect=True)
    for argument, table in ROWS.items():
        if argument in metafunc.fixturenames:
            rows = [pytest.param(row, id=row["id"]) for row in given.data.get(table, ())]
            no_rows = [pytest.param(None, id="no-data", marks=pytest.mark.skip(reason=given.no_data))]
            metafunc.parametrize(argument, rows or no_rows)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other half."""
    half = config.option.smoke_half
    if half != "both":
        chosen = [item for item in items if _is_of_half(item, half)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Run each test in a process of its own, unless there is nothing to run."""
    option = item.config.option
    if option.smoke_one:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = item.config.stash[_RUNNER].run(item) or _not_run(item)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    if _is_of_gpu(item) and any(_outcome(one) in ("crashed", "timeout") for one in reports):
        _look_after_gpu(item)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _start(item: pytest.Item) -> isolation.RunningTest:
    """Start a test in a process of its own."""
    option = item.config.option
    mark = item.get_closest_marker("limit")
    limit = (option.smoke_limit or (mark.args[0] if mark else LIMIT)) * option.smoke_scale
    if option.smoke_processes == "spawn":
        words = [f"--smoke-given={_given_file(item.config)}", f"--smoke-device={option.smoke_device}"]
        return isolation.start_test(item, limit=limit, fork=False, words=words)
    torch = item.config.stash[_GIVEN].torch
    if option.smoke_device == "cpu" == torch.get("kind") and item.get_closest_marker("dynamo"):
        # once for all forks; a build for GPUs may touch one by that. What is wrong with it, the test says
        with contextlib.suppress(Exception):
            importlib.import_module("torch._dynamo")
    return isolation.start_test(item, limit=limit, fork=True, words=[])


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Show a crash and a limit as what they are."""
    shown = {
        "crashed": ("failed", "C", "CRASHED"),
        "timeout": ("failed", "T", "TIMEOUT"),
        "missing": ("failed", "M", "MISSING"),
    }
    return shown.get(_outcome(report))


def _outcome(report: Any) -> str:
    return str(dict(getattr(report, "user_properties", ())).get("outcome", ""))


def _look_after_gpu(item: pytest.Item) -> None:
    """Ask, after a crash or a hang, whether the GPU still calculates: if not, nothing is tried on it."""
    gpu = item.config.stash[_GIVEN].gpu
    if gpu is not None and (fault := gpu_fault(gpu.get("device", ""))):
        item.config.stash[_LOST] = f"not run: since {item.name} the GPU does not calculate any more: {fault}"


class _Sender:
    """Sends the reports of the one test of this process to the process that waits."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config, self._path = config, path
        self._reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def pytest_runtest_logfinish(self) -> None:
        isolation.send(self._config, self._reports, self._path)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have a process for one test send what came of it."""
    if session.config.option.smoke_one:
        session.config.pluginmanager.register(_Sender(session.config, Path(session.config.option.smoke_one)))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A torch that does not start, and a GPU that must be there and is not, fail whatever was chosen."""
    given, option = session.config.stash[_GIVEN], session.config.option
    no_gpu = given.gpu is None and given.gpu_fails and option.smoke_half != "cpu"
    if (given.fault or no_gpu) and session.exitstatus in (0, 5) and not option.collectonly:
        session.exitstatus = 1


def _not_run(item: pytest.Item) -> list[pytest.TestReport]:
    """Return the report of a test for which there is no torch or no GPU."""
    given = item.config.stash[_GIVEN]
    if given.fault and item.name != "test_torch_starts":
        return [_report(item, "skipped", "not tried: torch does not start")]
    if _is_of_gpu(item) and given.gpu is None:
        return [_report(item, "failed" if given.gpu_fails else "skipped", given.no_gpu)]
    if _is_of_gpu(item) and (lost := item.config.stash.get(_LOST, "")):
        report = _report(item, "failed", lost)
        report.user_properties = [("outcome", "missing")]
        return [report]
    return []


def _report(item: pytest.Item, outcome: Any, why: str) -> pytest.TestReport:
    path, line, _ = item.location
    skipped = (str(item.path), line or 0, f"Skipped: {why}")
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=(path, line, item.location[2]),
        keywords=dict.fromkeys(item.keywords, 1),
        outcome=outcome,
        longrepr=skipped if outcome == "skipped" else why,
        when="call" if outcome == "failed" else "setup",
    )


def _is_of_gpu(item: pytest.Item) -> bool:
    return item.get_closest_marker("gpu") is not None


def _is_of_half(item: pytest.Item, half: str) -> bool:
    return half == "both" or _is_of_gpu(item) == (half == "gpu")


def _given_file(config: pytest.Config) -> Path:
    return Path(config.stash[_SCRATCH].name, "given.json")


@pytest.fixture
def given(request: pytest.FixtureRequest) -> Given:
    """What is known of torch, its GPU, and the data."""
    return request.config.stash[_GIVEN]


@pytest.fixture
def torch() -> Any:
    """The torch that is tested, computing float32 in float32."""
    found = importlib.import_module("torch")
    found.backends.cuda.matmul.allow_tf32 = False
    found.backends.cudnn.allow_tf32 = False
    return found


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """``cpu``, or torch's name of a GPU. What is still running there at the end fails this test."""
    kind, _, index = request.param.partition(":")
    if kind == "cpu":
        yield "cpu"
        return
    if index not in ("", "0"):
        getattr(importlib.import_module("torch"), kind).set_device(request.param)
    yield request.param
    backend = getattr(sys.modules.get("torch"), kind, None)
    if backend is not None and getattr(backend, "is_initialized", lambda: True)():
        backend.synchronize()


@pytest.fixture
def said(record_property: Any) -> Any:
    """Keep a sentence about what was measured: ``said("…")``."""
    return lambda text: record_property("said", text)
