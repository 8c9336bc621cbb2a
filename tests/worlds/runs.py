"""Plans, runs and their records, without a build."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zlib import crc32

from projects import TAG, World

from rocm_wheels.compile import build_request, sdk_tree
from rocm_wheels.core import process
from rocm_wheels.models import project, project_names
from rocm_wheels.pipeline import build_environment, machine, plan, run_record
from rocm_wheels.pipeline.facts import DoneStep, Facts, PythonFacts, TreeFacts
from rocm_wheels.pipeline.outputs import StepStamp
from rocm_wheels.pipeline.request import SdkRequest, WheelsRequest
from rocm_wheels.pipeline.step import PACKAGING_KINDS, Step, make_steps
from rocm_wheels.sdk import rocm_sdk
from rocm_wheels.sdk.build_environment import BuildEnvironment
from rocm_wheels.sources import trees
from rocm_wheels.wheels import statement

# ---- Facts of runs that never were: five projects, a Python, any number of targets, ROCm installed or not.


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


# ---- Writes records of runs as the executor and its steps do, with a clock of their own.


NOON = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
TARGETS = ["gfx90a", "gfx942", "gfx1100"]


class Clock:
    """A time of day and a clock that only move when they are told to."""

    def __init__(self, start: float = 5000.0) -> None:
        self.seconds = start
        self.jump = timedelta()
        self._start = start

    def __call__(self) -> tuple[datetime, float]:
        return NOON + timedelta(seconds=self.seconds - self._start) + self.jump, self.seconds


class WrittenRun:
    """A run that is being recorded: its folder, its clock, and the events of the vocabulary."""

    def __init__(self, runs: Path, now: datetime = NOON) -> None:
        self.clock = Clock()
        self.record = run_record.RunRecord(run_record.create_run_record(runs, now).folder, self.clock)
        self.folder = self.record.folder

    def begin(self, **fields: object) -> None:
        """Write run-begun, of this very process unless told otherwise."""
        given = {
            "run": self.folder.name,
            "version": "0.4.0",
            "command": "rocm-wheels build --output-dir dist --gfx gfx90a,gfx942,gfx1100",
            "pid": os.getpid(),
            "began": process.get_process_start(os.getpid()),
            "host": platform.node(),
            "platform": "linux",
            "cores": 64,
            "memory": 256 << 30,
            "plan": self.folder / "plan.json",
            "steps": 4,
            "lock": None,
            "lock_digest": None,
            "targets": TARGETS,
            "pythons": ["cp312"],
            "output": "/srv/wheels/dist",
        }
        self.record.write("run-begun", **{**given, **fields})

    def end(self, outcome: str = "done", exit_code: int = 0) -> None:
        """Write run-ended."""
        self.record.write(
            "run-ended", outcome=outcome, seconds=self.clock.seconds - 5000, exit_code=exit_code
        )

    def skip(self, step: str, **fields: object) -> None:
        """Write step-skipped."""
        given = {
            "why": "up to date",
            "fingerprint": "ab" * 8,
            "outputs": [],
            "targets": None,
            "version": None,
        }
        self.record.write("step-skipped", step=step, **{**given, **fields})

    def begin_step(self, step: str, **fields: object) -> None:
        """Write step-begun."""
        given = {
            "why": "no earlier result",
            "after": [],
            "command": f"rocm-wheels run-step {step} --plan {self.folder}/plan.json",
            "environment": {},
            "fingerprint": None,
            "log": self.folder / f"{step}.log",
            "pid": os.getpid(),
            "began": process.get_process_start(os.getpid()),
            "jobs": None,
            "estimate": None,
        }
        self.record.write("step-begun", step=step, **{**given, **fields})

    def end_step(
        self, step: str, outcome: str = "done", seconds: float | None = 0.0, **fields: object
    ) -> None:
        """Write step-ended."""
        given = {
            "peak_memory": 3 << 30,
            "cpu_seconds": (seconds or 0) * 1.5,
            "exit_code": 0 if outcome == "done" else 12,
            "message": None,
            "tip": None,
            "fingerprint": "cd" * 8,
        }
        self.record.write("step-ended", step=step, outcome=outcome, seconds=seconds, **{**given, **fields})

    @contextmanager
    def step(self, step: str, seconds: float, outcome: str = "done", **fields: object) -> Iterator[None]:
        """Write a step that takes so long, and what is written inside between its begin and its end."""
        begin = self.clock.seconds
        self.begin_step(step, **fields)
        yield
        self.clock.seconds = max(self.clock.seconds, begin + seconds)
        self.end_step(step, outcome, seconds)


def night(runs: Path) -> WrittenRun:
    """Write a run that has something for every part of a report: five projects, one that failed."""
    run = WrittenRun(runs)
    write = run.record.write
    run.begin(steps=9)
    tip = "free some space below /srv, or give --work-dir a larger disk"
    text = "390 GiB may be needed in /srv/work, 240 GiB are free"
    finding = {"check": "disk", "severity": "warning", "text": text, "tip": tip}
    access = {"check": "access", "severity": "warning", "text": "/srv/out may be full soon", "tip": None}
    write("preflight", findings=[finding, access])
    run.clock.seconds += 2
    run.skip("install-rocm-cp312")
    with run.step("install-tools-cp312", 31, why="inputs changed: cmake (3.31 → 4.1)"):
        write(
            "command",
            step="install-tools-cp312",
            command="uv pip install --python /srv/work/environments/cp312/bin/python cmake==4.1.0 ninja",
            cwd="/srv/work",
            environment={"UV_CACHE_DIR": "/srv/cache/uv"},
            seconds=29.8,
            returncode=0,
        )
    with run.step("probe-targets", 9):
        fault = "error: unknown target CPU 'gfx1250'\nnote: valid target CPU values are: gfx600, gfx601"
        write(
            "probe",
            step="probe-targets",
            targets={**dict.fromkeys(TARGETS), "gfx1250": fault},
        )
    with run.step("check-cache", 14):
        checks = [
            {"what": "the same again", "expected": "hit", "seen": "hit", "passed": True},
            {
                "what": "a change that only device code sees",
                "expected": "miss",
                "seen": "miss",
                "passed": True,
            },
        ]
        write("cache-test", step="check-cache", kind="ccache", trusted=True, checks=checks)
    with run.step("build-triton-cp312", 1320, estimate=_expected(1500)):
        _wheel(run, "build-triton-cp312", "triton-3.5.1+rocm7.1-cp312-cp312-linux_x86_64.whl", 190 << 20, {})
    with run.step(
        "build-pytorch-cp312", 10_480, why="inputs changed: sources (4f1c… → 9be0…)", estimate=_expected(9000)
    ):
        _torch(run)
    begin = run.clock.seconds
    run.begin_step("build-audio-cp312", after=["build-pytorch-cp312"], estimate=_expected(400))
    run.begin_step("build-vision-cp312", after=["build-pytorch-cp312"])
    run.begin_step("build-apex-cp312", after=["build-pytorch-cp312"])
    run.clock.seconds = begin + 310
    _wheel(run, "build-audio-cp312", "torchaudio-2.9.0+rocm7.1-cp312-cp312-linux_x86_64.whl", 3 << 20, {})
    run.end_step("build-audio-cp312", seconds=310)
    run.clock.seconds = begin + 640
    message = (
        "vision could not be built (exit code 1):\n"
        "  | csrc/nms_kernel.hip:41:7: error: use of undeclared identifier '__shfl'\n"
        "  | ninja: build stopped: subcommand failed."
    )
    run.end_step(
        "build-vision-cp312", "failed", 640, message=message, tip="see the whole log; run again afterwards"
    )
    run.clock.seconds = begin + 655
    run.end_step("build-apex-cp312", "interrupted", 655, message="interrupted", exit_code=130)
    run.end("failed", 12)
    return run


def ninja_log(edges: int, lanes: int, *, version: int = 7) -> str:
    """Return a log of ninja: so many edges in so many lanes, most of them short, some very long."""
    lines = [f"# ninja log v{version}"]
    clocks = [0] * lanes
    found = []
    for number in range(edges):
        lane = clocks.index(min(clocks))
        length = 200 + number * 7919 % 9000 + (240_000 if number % 211 == 0 else 0)
        if number % 5 == 0:
            name = f"caffe2/CMakeFiles/torch_hip.dir/native/hip/torch_hip_generated_Kernel{number}.hip.o"
        else:
            name = f"caffe2/CMakeFiles/torch_cpu.dir/__/aten/src/ATen/Register{number}.cpp.o"
        begin, end = clocks[lane], clocks[lane] + length
        clocks[lane] = end + 3
        found.append((end, begin, name))
    last = max(clocks)
    found.append((last + 41_000, last, "lib/libtorch_hip.so"))
    lines += [
        f"{begin}\t{end}\t1763726400000000000\t{name}\t{crc32(name.encode()):x}"
        for end, begin, name in sorted(found)
    ]
    return "\n".join(lines) + "\n"


def _expected(seconds: float) -> dict[str, object]:
    return {"seconds": seconds, "disk": 60e9, "memory": 64e9, "source": "3 recorded runs on this machine"}


def _wheel(run: WrittenRun, step: str, name: str, size: int, libraries: dict[str, list[str]]) -> None:
    targets = sorted({target for held in libraries.values() for target in held})
    run.record.write(
        "output",
        step=step,
        path=f"/srv/wheels/dist/{name}",
        size=size,
        sha256=f"{size:x}".rjust(64, "7"),
        project=step.split("-")[1],
        version=name.split("-")[1],
        targets=targets,
        libraries=libraries,
        content="ef" * 8,
    )


def _torch(run: WrittenRun) -> None:
    step = "build-pytorch-cp312"
    (run.folder / f"{step}.ninja_log").write_text(ninja_log(4567, 64))
    began = run.clock.seconds + 20
    run.clock.seconds += 10_400
    run.record.write(
        "command",
        step=step,
        command="cd /srv/src/pytorch && python -m build --wheel --no-isolation",
        cwd="/srv/src/pytorch",
        environment={"MAX_JOBS": "64", "PYTORCH_ROCM_ARCH": ";".join(TARGETS), "CUDA_HOME": None},
        seconds=10_390.2,
        returncode=0,
    )
    run.record.write("ninja", step=step, log=run.folder / f"{step}.ninja_log", began=began)
    host, device = {"hits": 3300, "misses": 312}, {"hits": 790, "misses": 121}
    run.record.write(
        "cache", step=step, kind="ccache", before={}, after={}, host=host, device=device, rate=0.9
    )
    libraries = {
        "torch/lib/libtorch_hip.so": TARGETS,
        "torch/lib/libmagma.so": TARGETS[:2],
        "torch/lib/libc10_hip.so": [*TARGETS, "gfx1030"],
        **{f"torch/lib/aotriton.images/amd-gfx942/kernel{n}.aks2": ["gfx942"] for n in range(40)},
    }
    _wheel(run, step, "torch-2.9.0+rocm7.1-cp312-cp312-linux_x86_64.whl", 2_345_678_901, libraries)


# ---- A plan of tiny projects as a workflow, and Snakemake as a user starts it.


TRITON, TORCH, AUDIO = (f"build-{name}-{TAG}" for name in ("triton", "pytorch", "pytorch_audio"))
SMOKE = f"test-smoke-{TAG}"


def write_workflow(world: World, *words: str) -> Path:
    """Plan, and write it as a workflow in a folder whose name a shell and Snakemake must not read."""
    snakefile = world.folder / "a night's plan" / "Snakefile"
    shutil.rmtree(snakefile.parent, ignore_errors=True)
    snakefile.parent.mkdir()
    made = world.run(*world.words("--format", "snakemake", "-o", str(snakefile), *words, command="plan"))
    assert made.code == 0, made.err
    return snakefile


def has_wheel(world: World, distribution: str) -> bool:
    return any(world.output.glob(f"{distribution}-*.whl"))


def start(world: World, snakefile: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["snakemake", "--snakefile", str(snakefile), "--cores", "2", "--nocolor", *words],
        cwd=snakefile.parent,
        env={**world.env, "XDG_CACHE_HOME": str(world.folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
