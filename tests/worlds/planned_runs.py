"""Facts of runs that never were: five projects, a Python, any number of targets, ROCm installed or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rocm_wheels.compile import build_request, sdk_tree
from rocm_wheels.core import machine
from rocm_wheels.models import project, project_names
from rocm_wheels.pipeline import build_environment, plan
from rocm_wheels.pipeline.facts import DoneStep, Facts, PythonFacts, TreeFacts
from rocm_wheels.pipeline.outputs import StepStamp
from rocm_wheels.pipeline.request import SdkRequest, WheelsRequest
from rocm_wheels.pipeline.step import PACKAGING_KINDS, Step, make_steps
from rocm_wheels.sdk import rocm_sdk
from rocm_wheels.sdk.build_environment import BuildEnvironment
from rocm_wheels.sources import trees
from rocm_wheels.wheels import statement

NAMES = ("apex", "pytorch", "pytorch_audio", "pytorch_vision", "triton")
GIB = 1 << 30


def make_facts(
    folder: Path,
    *,
    tag: str = "cp312",
    targets: str = "gfx942,gfx1100",
    served: Sequence[str] = ("gfx942", "gfx1100"),
    rocm: bool = True,
    done: Mapping[str, DoneStep] | None = None,
    **request: Any,
) -> Facts:
    """Return facts; ``rocm``: ROCm is installed. Other words are those of the request."""
    sources = {name: folder / "sources" / name for name in NAMES}
    for tree in sources.values():
        tree.mkdir(parents=True, exist_ok=True)
        (tree / "setup.py").touch()
    sdk = folder / "sdk"
    for part in ("bin", "lib/cmake", "lib/rocm_sysdeps"):
        (sdk / part).mkdir(parents=True, exist_ok=True)
    asked: dict[str, Any] = {
        "sdk": SdkRequest(folder / "python", rocm_spec="==7.1.0"),
        "install_rocm": True,
        "output": folder / "dist",
        "work": folder / "work",
        "sources": sources,
        "given": frozenset(),
        "chosen": dict.fromkeys(NAMES, True),
        "platform": "linux",
        "targets": targets,
    }
    answers = rocm_sdk.RocmSdk("7.1.0", sdk, sdk / "lib/cmake", sdk / "bin", tuple(served), {"rocm": "7.1.0"})
    return Facts(
        request=WheelsRequest(**{**asked, **request}),
        projects=tuple(project.sort_projects([project.load_project(name) for name in NAMES])),
        env={"PATH": "/usr/bin:/bin", "HOME": "/nowhere"},
        python=_python(folder, tag, answers if rocm else None),
        trees={name: _tree(sources[name], name) for name in NAMES},
        done=dict(done or {}),
        machine=machine.MachineResources(cores=64, memory=256 * GIB, free_memory=200 * GIB),
        history={},
        tools=("cmake>=3.27", "ninja"),
    )


def _python(folder: Path, tag: str, answers: rocm_sdk.RocmSdk | None) -> PythonFacts:
    prefix = folder / "environments" / tag
    environment = BuildEnvironment(prefix / "bin/python", prefix / "bin", prefix, created=False)
    ready = None
    if answers is not None:
        ready = build_environment.ReadyEnvironment(
            environment, answers, tag, prefix / "lib", "digest-of-rocm"
        )
    python = folder / f"python-of-{tag}"
    inputs = {"requirement": "rocm==7.1.0", "python": str(python)}
    return PythonFacts(python, "3.12.1", tag, inputs, "" if ready else "no earlier result", ready, {})


def _tree(source: Path, name: str) -> TreeFacts:
    identity = trees.TreeIdentity(
        commit=f"{name}-commit", upstream=None, tree=f"{name}-tree", dirty=False, epoch=10**9
    )
    version = None if name == "triton" else "2.9.0"
    return TreeFacts(
        source, identity, version, None, ("numpy",), {"requirements.txt": f"{name}-requirements"}
    )


def settled(facts: Facts) -> dict[str, Step]:
    """Plan. The wheels of earlier runs are not there: each is taken to have its statement."""
    with patch.object(statement, "has_statement", return_value=True):
        return plan.settle_all_steps(make_steps(facts), facts)


def finish(facts: Facts, only: Sequence[str] | None = None) -> Facts:
    """Return the facts once every step (or those named) was done as planned, whatever that takes."""
    from dataclasses import replace

    while True:
        steps = settled(facts)
        due = [
            step
            for step in steps.values()
            if step.verdict == "run" and step.fingerprint and (only is None or step.id in only)
        ]
        if not due:
            return facts
        facts = replace(facts, done={**facts.done, **{step.id: _did(step, facts) for step in due}})


def _did(step: Step, facts: Facts) -> DoneStep:
    from rocm_wheels.pipeline.outputs import OutputFile

    inputs = dict(step.inputs)
    outputs: list[OutputFile] = []
    known: dict[str, Any] = {}
    if step.kind == "install-tools":
        known = {"packages": {name: {"numpy": "2.0 digest"} for name in NAMES}}
    if step.kind == "build" or step.kind in PACKAGING_KINDS:
        kept = facts.workspace.built_wheels / step.id
        folder = facts.request.wheels_folder if step.delivers else kept
        outputs = [OutputFile(str(folder / f"{step.id}.whl"), 1, 1, f"sha-of-{step.id}")]
        known = {
            "content": f"content-of-{step.id}",
            "version": "2.9.0+rocm7.1.0",
            "lock": "",
            "parts": {},
            "commit": "1" * 40,
            "changed": None,
        }
    return DoneStep(StepStamp(step.id, inputs, tuple(outputs), known), None)


# ---- requests to build a project, of a ROCm that has all that one can have

ROOT = Path("/sdk")
BARE = sdk_tree.SdkTree("7.1.0", ROOT, ROOT / "lib/cmake", ROOT / "bin")
FULL = replace(
    BARE,
    sysdeps=ROOT / "lib/rocm_sysdeps",
    clang=ROOT / "lib/llvm/bin",
    bitcode=ROOT / "lib/llvm/amdgcn/bitcode",
    host_math=ROOT / "lib/host-math",
    roctracer=ROOT / "include/roctracer",
)

VERSION = "2.9.0+rocm7.1.0"


def request(name: str, platform: project_names.Platform = "linux", **more: Any) -> build_request.BuildRequest:
    """Return a request for two targets; ``more`` are other values of its fields."""
    values: dict[str, Any] = {
        "project": project.load_project(name),
        "source": Path("/src") / name,
        "platform": platform,
        "sdk": FULL,
        "targets": ("gfx942", "gfx1100"),
        "version": None if name == "triton" else VERSION,
        "suffix": "+rocm7.1.0",
    }
    if name == "pytorch":
        values |= {"flash_attention": True, "triton_requirement": "triton==3.7.0"}
    values["against"] = {pin.project: VERSION for pin in project.load_project(name).build.pins}
    return build_request.BuildRequest(**(values | more))
