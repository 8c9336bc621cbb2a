"""Machines with GPUs that are not here: what their jobs of our workflows leave behind, of a staged set.

What is imitated is the machine. Results are written by the product's own code, about the wheels of the set
that the job was given, so that all that is done with them is real.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from workflow_runner import Ran, Runner

from rocm_wheels.core.files import hash_file
from rocm_wheels.models import torch_tests
from rocm_wheels.models.gfx import get_gfx_families
from rocm_wheels.testing.results import (
    ChosenTests,
    TestResult,
    TorchResults,
    TorchUnderTest,
    judge_results,
    make_file_result,
    write_torch_junit,
    write_torch_results,
)

NEW_FAILURE = "test_nn.py::TestNN::test_fails_anew"
FLAKY = "test_nn.py::TestNN::test_passes_when_tried_again"
LOST = "the GPU does not calculate any more"


def imitate_gpu(runner: Runner, workflow: str, row: dict[str, Any]) -> Ran:
    """Do what a machine with the GPU of a row would: smoke tests pass; of torch's own one fails anew.

    Another passed when it was tried again, and in the middle of a file the GPU was lost.
    """
    given = [inputs for inputs in runner.called.values() if "set_family" in inputs][-1]
    staged = Path(given["store"]) / "v2-staging" / given["set_family"] / "sets" / given["set"] / "set.json"
    tag = f"cp{row['python'].replace('.', '')}"
    files = {
        file["name"]: file["sha256"]
        for file in json.loads(staged.read_text(encoding="utf-8"))["files"]
        if f"-{tag}-" in file["name"] or "-py3-" in file["name"]
    }
    gfx = get_gfx_families()[row["family"]][0]
    kind = "smoke" if workflow == "test-smoke.yml" else "tests"
    name = f"{kind}-{row['name']}"
    folder = runner.services.folder / runner.services.run / "imitated" / name
    if kind == "smoke":
        _write_smoke_results(folder, gfx, files)
    else:
        _write_torch_results(folder / gfx, gfx, files, row)
    runner.services.artifacts[name] = folder
    return Ran("success" if kind == "smoke" else "failure")


def _now() -> str:
    return datetime.now(timezone.utc).replace(microsecond=0).isoformat()


def _write_smoke_results(folder: Path, gfx: str, files: dict[str, str]) -> None:
    tests = [{"name": f"test_matmul.py::test_{name}[gpu]", "outcome": "passed"} for name in ("mm", "bmm")]
    document = {
        "schema": 1,
        "tool": "rocm-wheels 1 smoke tests",
        "when": _now(),
        "host": "a-machine (Linux)",
        "gfx": [gfx],
        "files": files,
        "tests": tests,
        "counts": {"passed": len(tests)},
    }
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(document), encoding="utf-8")


def _write_torch_results(folder: Path, gfx: str, files: dict[str, str], row: dict[str, Any]) -> None:
    torch = next(name for name in files if name.startswith("torch-")).split("-")[1]
    today = datetime.now(timezone.utc).date()
    known = torch_tests.select_known_tests(
        torch_tests.load_torch_tests().known, torch, gfx, "linux", row["python"], today=today
    )
    tests = [
        TestResult(name="test_nn.py::TestNN::test_passes", outcome="passed", seconds=1),
        TestResult(
            name=FLAKY, outcome="flaky", seconds=1, reason="failed, then passed alone: AssertionError"
        ),
        TestResult(name=NEW_FAILURE, outcome="failed", seconds=1, reason="AssertionError"),
    ]
    verdicts = judge_results(tests, known)
    ended = [
        TestResult(name="test_torch.py::TestTorch::test_passes", outcome="passed", seconds=1),
        TestResult(
            name="test_torch.py::TestTorch::test_begun", outcome="crashed", seconds=1, reason="signal 6"
        ),
    ]
    lost = f"{gfx}, at test_torch: {LOST}"
    report = folder / "junit" / "test_nn.xml"
    report.parent.mkdir(parents=True)
    write_torch_junit(report, "test_nn", verdicts, when=_now(), host="a-machine")
    more: dict[str, Any] = {"fault": "", "unchosen": 0, "devices": (gfx,)}
    whole = make_file_result("test_nn", verdicts, (), complete=True, seconds=9, **more)
    cut = make_file_result("test_torch", judge_results(ended, known), (), complete=False, seconds=5, **more)
    results = TorchResults(
        schema=1,
        tool="rocm-wheels 1 torch tests",
        when=_now(),
        host="a-machine (Linux)",
        inputs="x",
        of=TorchUnderTest(torch=torch, python=row["python"], commit="1" * 40, sources=torch),
        gfx=gfx,
        files={name: sha256 for name, sha256 in files.items() if name.startswith("torch-")},
        chosen=ChosenTests(suite=row["suite"], shard=row["shard"], shards=row["shards"]),
        parts=(
            whole.model_copy(update={"report": "junit/test_nn.xml", "sha256": hash_file(report)}),
            cut,
        ),
        lost=lost,
        lost_gpus=(lost,),
    )
    write_torch_results(folder, results)
