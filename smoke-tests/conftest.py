"""What every smoke test is given: the torch that is there, its GPU, and what is known of it.

Works under any Python with torch and pytest; rocm-wheels need not be installed there. ``rocm-wheels test
smoke`` runs these tests by its runner, which goes on behind one that crashes or hangs; plain pytest does
not. The compatibility data come in a file (``--smoke-data``) or are asked of the checkout around this folder.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inspect_torch import Given, inspect_torch

ROWS = {"dtype_row": "dtypes", "library_row": "libraries", "domain_row": "domains"}
MARKERS = (
    "gpu: about a GPU; skipped by name without one",
    "quick: of the quick part, which is `rocm-wheels test quick`",
    "limit(seconds): how long this test may take",
)
_GIVEN = pytest.StashKey[Given]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the smoke tests."""
    add = parser.getgroup("smoke", "tests of an installed torch").addoption
    add("--require-gpu", action="store_true", help="that there is no AMD GPU is a failure")
    add("--smoke-device", default="", metavar="DEVICE", help="test this one of torch's alone: cpu, cuda:1")
    add("--smoke-gfx", metavar="GFX", help="the GPU must be of this target")
    add("--smoke-data", metavar="FILE", help="compatibility data as JSON [those of the checkout]")
    add("--smoke-given", metavar="FILE", help="what another process found out; written where it is not there")


def pytest_configure(config: pytest.Config) -> None:
    """Look at torch in a process that may die of it, once for all processes of a run."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    option = config.option
    given = Path(option.smoke_given) if option.smoke_given else None
    if given is not None and given.is_file():
        config.stash[_GIVEN] = Given(**json.loads(given.read_text(encoding="utf-8")))
        return
    config.stash[_GIVEN] = inspect_torch(
        data=option.smoke_data,
        gfx=option.smoke_gfx,
        require_gpu=option.require_gpu,
        device=option.smoke_device,
    )
    if given is not None:
        given.write_text(json.dumps(config.stash[_GIVEN]._asdict()), encoding="utf-8")


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a test for which there is no torch or no GPU; where there must be one, it fails."""
    given = item.config.stash[_GIVEN]
    if given.fault and item.name != "test_torch_starts":
        pytest.skip("not tried: torch does not start")
    if given.gpu is None and item.get_closest_marker("gpu") is not None:
        if given.gpu_fails:
            pytest.fail(given.no_gpu, pytrace=False)
        pytest.skip(given.no_gpu)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A torch that does not start, and a GPU that must be there and is not, fail whatever was chosen."""
    given, option = session.config.stash[_GIVEN], session.config.option
    fault = given.fault or (given.no_gpu if given.gpu is None and given.gpu_fails else "")
    if fault and option.smoke_device != "cpu" and session.exitstatus in (0, 5) and not option.collectonly:
        sys.stderr.write(f"\n{fault}\n")
        session.exitstatus = 1


@pytest.fixture
def given(request: pytest.FixtureRequest) -> Given:
    """What is known of torch, its GPU, and the data."""
    return request.config.stash[_GIVEN]


@pytest.fixture
def torch() -> Any:
    """The torch that is tested, computing float32 in float32."""
    module = importlib.import_module("torch")
    module.backends.cuda.matmul.allow_tf32 = False
    module.backends.cudnn.allow_tf32 = False
    return module


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
