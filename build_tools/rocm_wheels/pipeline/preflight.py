"""Preflight of a plan: what can be known to go wrong with the steps that will run, each with a tip.

A check is a function of the run in one table, and looks itself: a few reads of the disk, a few programs
tried; nothing is written. An error is a failure that is certain; what is probable, or expected by an
estimate, is a warning. To add one: a function, and a line in ``PREFLIGHT_CHECKS``.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.compile.variables import prepend_path
from rocm_wheels.core import environment_numbers, parallel, process, shell, tables
from rocm_wheels.core.errors import Finding, RocmWheelsError, UsageError, find_errors, format_finding
from rocm_wheels.core.files import measure_free_space
from rocm_wheels.models import gfx, release_lines, torch_features
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.pipeline import estimates, outputs, provided_wheel_checks
from rocm_wheels.pipeline.planner import Planner
from rocm_wheels.pipeline.step import COMPILING_KINDS
from rocm_wheels.sdk import build_environment, interpreters

if TYPE_CHECKING:
    from rocm_wheels.pipeline import plan
    from rocm_wheels.pipeline.facts import Facts
    from rocm_wheels.pipeline.step import Step

_WORK, _OUTPUT, _TEMPORARY = "work directory", "output folder", "folder of temporary files"


@dataclass(frozen=True)
class PreflightRun:
    """A plan, and what several checks want to know of its steps that will run."""

    planned: plan.PlannedRun

    @property
    def facts(self) -> Facts:
        """What was looked up."""
        return self.planned.facts

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps that will run, as far as that is known."""
        return tuple(step for step in self.planned.plan if step.may_run)

    @cached_property
    def projects(self) -> tuple[Project, ...]:
        """The projects that are compiled."""
        return tuple(load_project(str(step.project)) for step in self.steps if step.kind in COMPILING_KINDS)

    @cached_property
    def costs(self) -> Mapping[str, estimates.Estimate]:
        """What each step is expected to take, by its id."""
        targets, facts = max(len(self.planned.plan.targets), 1), self.facts
        return {
            step.id: step.estimate
            or estimates.estimate_step(step.kind, targets, facts.machine, facts.history)
            for step in self.steps
        }

    @cached_property
    def folders(self) -> tuple[tuple[str, Path], ...]:
        """The folders that are written to, with what each is."""
        request, windows = self.facts.request, self.facts.request.platform == "windows"
        names = ("TMP", "TEMP") if windows else ("TMPDIR",)
        default = tempfile.gettempdir() if windows else "/tmp"
        temporary = next((self.facts.env[name] for name in names if self.facts.env.get(name)), default)
        return (
            (_WORK, request.work),
            (_OUTPUT, request.output),
            *((f"source tree of {project.name}", request.sources[project.name]) for project in self.projects),
            (_TEMPORARY, Path(temporary)),
        )

    def get_environment(self, project: Project) -> dict[str, str]:
        """Return the environment that a project is built in, but for what its front end is told."""
        request = self.facts.request
        own = request.set_env.get(project.name, {})
        return {**self.facts.env, **project.get_environment(request.platform), **own}


_INSTALL_TIPS = {
    "git": "install git",
    "C compiler": "install one (gcc, clang), or let CC name it",
    "C++ compiler": "install one (g++, clang++), or let CXX name it",
}
_PROGRAM_SECONDS = 30.0
# name, variable, language, what build files try, a header that is there when the library is
_HOST_COMPILERS = (
    ("C compiler", "CC", "c", ("cc", "gcc", "clang"), "stdio.h"),
    ("C++ compiler", "CXX", "c++", ("c++", "g++", "clang++"), "cstddef"),
)


def check_programs(run: PreflightRun) -> Iterator[Finding]:
    """git must be there and run, and compilers compile nothing; the environment has its own CMake and ninja.

    A build environment's programs come first on the PATH, once it is there.
    """
    request, env = run.facts.request, dict(run.facts.env)
    for project in run.projects:
        own = request.set_env.get(project.name, {})
        env.update({name: own[name] for name in ("CC", "CXX") if name in own})
    if run.facts.python.ready is not None:
        prepend_path(env, "PATH", run.facts.python.ready.environment.bin, request.platform)
    path = env.get("PATH", "")
    questions = [("git", "git", ["version"])]
    for name, variable, kind, words, header in _HOST_COMPILERS if request.platform == "linux" else ():
        present = [word for word in words if shutil.which(word, path=path)]
        first, *more = env.get(variable, "").split() or [(present or words)[0]]  # CC="ccache gcc"
        questions.append((name, first, [*more, "-x", kind, "-include", header, "-fsyntax-only", os.devnull]))

    def ask(question: tuple[str, str, list[str]]) -> str:
        name, word, arguments = question
        location = shutil.which(word, path=path)
        if location is None:
            return f"there is no {name} on the PATH"
        try:
            process.capture_output(
                [location, *arguments], env=env, timeout=_PROGRAM_SECONDS, check=UsageError, description=name
            )
        except RocmWheelsError as failure:
            return f"{location} does not work: {failure}".replace("\n", " ")
        return ""

    faults = parallel.run_in_parallel(ask, questions, jobs=len(questions))
    for (name, _, _), fault in zip(questions, faults, strict=True):
        if fault:
            yield Finding("error", fault, _INSTALL_TIPS[name])


def find_headers(python: Path, env: Mapping[str, str], tag: str = "") -> Path | None:
    """Return the folder of an interpreter's Python.h: where one with this tag has it, else where it says.

    Raises UsageError for an interpreter that will not do.
    """
    if match := re.fullmatch(r"cp3(\d+)(t?)", tag):
        usual = Path(os.path.realpath(python)).parent.parent / "include" / f"python3.{match[1]}{match[2]}"
        if (usual / "Python.h").is_file():
            return usual
    return interpreters.query_interpreter(python, env).headers


def check_python_headers(run: PreflightRun) -> Iterator[Finding]:
    """Extension modules are compiled against Python.h."""
    python = run.facts.python
    if not run.projects:
        return
    try:
        folder = find_headers(python.python, run.facts.env, python.tag)
    except UsageError as failure:  # it is refused where it matters
        yield Finding("warning", failure.message, "take another Python")
        return
    if folder is None:
        tip = "install its headers (python3-dev, python3-devel), or take another Python"
        yield Finding("error", f"{python.python} (Python {python.version}) has no Python.h", tip)


def check_released_pythons(run: PreflightRun) -> Iterator[Finding]:
    """A torch is built with the Pythons that its release line was released for."""
    tree = run.facts.trees.get("pytorch")
    if not run.projects or tree is None or tree.version is None:
        return
    line, released = release_lines.get_line_pythons(tree.version)
    version = build_environment.shorten_python_version(run.facts.python.version)
    if released and version not in released:
        text = f"line {line} of torch was released for Python {', '.join(released)}, and not for {version}"
        yield Finding("warning", text, "`rocm-wheels compat show lines` has the Pythons of each line")


def check_access(run: PreflightRun) -> Iterator[Finding]:
    """All folders are written to; compilers write to that of temporary files."""
    for description, path in run.folders:
        if description == _TEMPORARY and not path.is_dir():
            text = f"temporary files go to {path}, which is not a folder"
            yield Finding("error", text, "make it, or let TMPDIR name another one")
        elif not os.access(_find_nearest_folder(path), os.W_OK | os.X_OK):
            tip = "make it writable, or choose another folder"
            yield Finding("error", f"the {description} {path} cannot be written to", tip)


def _find_nearest_folder(path: Path) -> Path:
    """Return a folder, or where it is not there yet the nearest one above it."""
    return next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())


_FULL_DISK_BYTES = 64 << 20  # not even a log and a configure step
_MOST_NAMES = 3


def check_disk_space(run: PreflightRun) -> Iterator[Finding]:
    """What a run is expected to add must fit, summed where folders share a file system."""
    tip = "`rocm-wheels clean --dry-run` shows what can go from a work directory; or choose another disk"
    devices: dict[str, int] = {}
    free: dict[int, int] = {}
    paths: dict[int, dict[Path, None]] = {}
    for description, path in run.folders:
        nearest = _find_nearest_folder(path)
        device = devices[description] = nearest.stat().st_dev
        free[device] = min(free.get(device, 1 << 80), measure_free_space(nearest))
        paths.setdefault(device, {})[path] = None
    needs: dict[int, dict[str, int]] = {device: {} for device in free}
    for step in run.steps:
        cost = run.costs[step.id]
        tree = f"source tree of {step.project}" if step.kind in COMPILING_KINDS else _WORK
        for description, size in ((tree, cost.disk), (_OUTPUT, cost.wheel), (_WORK, cost.wheel)):
            of_device = needs[devices[description]]
            of_device[step.id] = of_device.get(step.id, 0) + size
    for device, room in free.items():
        names = _name_some([str(path) for path in paths[device]])
        largest = sorted(needs[device].items(), key=lambda item: (-item[1], item[0]))
        need = sum(size for _, size in largest)
        if room < _FULL_DISK_BYTES:
            yield Finding("error", f"{names}: the disk is full ({tables.format_size(room)} free)", tip)
        elif need > room:
            parts = _name_some([f"{step} {tables.format_size(size)}" for step, size in largest if size])
            text = f"{names}: {tables.format_size(room)} free, and this run may add"
            yield Finding("warning", f"{text} {tables.format_size(need)} ({parts})", tip)


def _name_some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def check_memory(run: PreflightRun) -> Iterator[Finding]:
    """One compiler at least must fit; so must as many as were asked for."""
    name = max(run.costs, key=lambda step: run.costs[step].memory_per_job, default="")
    if not name or not (each := run.costs[name].memory_per_job):
        return
    machine, jobs = run.facts.machine, environment_numbers.read_number(run.facts.env, "MAX_JOBS")
    prefix = f"{name}: one compiler may take {tables.format_size(each)}"
    limits = f" ({', '.join(machine.limits)})" if machine.limits else ""
    if machine.memory < each:
        text = f"{prefix}, and there are {tables.format_size(machine.memory)} of memory{limits}"
        tip = f"add memory or swap (the figure is from: {run.costs[name].source})"
    elif machine.free_memory < each:
        text = f"{prefix}, and {tables.format_size(machine.free_memory)} of memory are free{limits}"
        tip = "end other programs, or wait for them"
    elif jobs and jobs * each > machine.free_memory:
        text = f"{prefix}: {jobs} at a time {tables.format_size(jobs * each)}, and"
        text += f" {tables.format_size(machine.free_memory)} are free{limits}"
        tip = f"{machine.free_memory // each} at a time fit, and are taken when no number is given"
    else:
        return
    yield Finding("warning", text, tip)


def check_installed_rocm(run: PreflightRun) -> Iterator[Finding]:
    """An installed ROCm must have what torch's CMake looks for, and nothing may lead to another one."""
    sdk = run.facts.installed_rocm
    if sdk is None or sdk.prefix is None:
        return
    for project in run.projects:
        packages = torch_features.read_hip_packages(run.facts.request.sources[project.name], sdk.version)
        for part in sdk.prefix.find_missing(packages, run.get_environment(project)):
            message, tip = part.explain(sdk.version, sdk.root)
            yield Finding("error" if part.required else "warning", message, tip)
    place = run.facts.env.get("HIP_PATH", "")  # which hipcc and FindHIP.cmake take before their own folder
    if place and not Path(place).resolve().is_relative_to(sdk.root.resolve()):
        message = f"HIP_PATH={place} leads to another ROCm than {sdk.root}, which is built on"
        yield Finding("warning", message, "unset HIP_PATH, or name that ROCm: --rocm-path")


def check_sdk_targets(run: PreflightRun) -> Iterator[Finding]:
    """ROCm's libraries have kernels for the targets that it was made for, and for no others."""
    if (sdk := run.facts.sdk) is None:
        return
    served = {gfx.strip_features(target) for target in sdk.targets}
    missing = [target for target in run.planned.plan.targets if gfx.strip_features(target) not in served]
    if missing:
        text = f"the installed ROCm serves {', '.join(sorted(served))}: its libraries have no kernels for"
        tip = "install the ROCm packages of these targets (--rocm-extras device-…, or another --rocm-index)"
        yield Finding("warning", f"{text} {', '.join(missing)}", tip)


def check_downloads(run: PreflightRun) -> Iterator[Finding]:
    """Say what is downloaded from where, and with UV_OFFLINE what must lie where instead."""
    attention, offline = _expects_flash_attention(run), run.facts.request.offline
    for project in run.projects:
        source, env = run.facts.request.sources[project.name], run.get_environment(project)
        for download in project.build.downloads:
            variable, place = download.variable, env.get(download.variable or "")
            if not (source / download.named_in).is_file() or (download.flash_attention and not attention):
                continue
            if env.get(download.switch or "") in ("0", "OFF"):
                continue
            fetched = f"the build of {project.name} downloads {download.what} from {download.origin}"
            content = f"DIR (a folder with {', '.join(download.contains)})" if download.contains else "1"
            leave_out = f"; {download.switch}=0 leaves it out" if download.switch else ""
            if place:
                if lacks := [name for name in download.contains if not Path(place, name).exists()]:
                    text = f"{variable} is {place}, which lacks {', '.join(lacks)}"
                    yield Finding("error", text, f"unpack {download.what} there: {download.origin}")
            elif not offline:
                tip = f"{variable}={content} takes another" if variable else "UV_OFFLINE=1 does without"
                yield Finding("warning", fetched, f"{tip}{leave_out}")
            elif variable is not None:
                tip = f"have it on this machine, and set {variable}={content}{leave_out}"
                yield Finding("error", f"UV_OFFLINE is set, but {fetched}", tip)


def _expects_flash_attention(run: PreflightRun) -> bool:
    """Tell whether torch is expected to get flash attention; what the option rules out is refused later."""
    facts, tree = run.facts, run.facts.trees.get("pytorch")
    triton, _ = provided_wheel_checks.find_usable_triton(facts)
    try:
        return torch_features.decide_flash_attention(
            facts.request.flash_attention,
            platform=facts.request.platform,
            with_triton=facts.builds_project("triton") or triton is not None,
            targets=run.planned.plan.targets,
            aotriton=tree.aotriton if tree is not None else None,
        ).on
    except UsageError:
        return True


def check_foreign_wheels(run: PreflightRun) -> Iterator[Finding]:
    """Two builds of one project must not mix in an output folder."""
    facts = run.facts
    planner = Planner(run.planned.steps, facts, run.planned.plan.steps)
    for step in run.steps:
        if not step.delivers:
            continue
        distribution, purpose = load_project(str(step.project)).distribution, planner.describe_purpose(step)
        try:
            outputs.refuse_foreign_wheels(
                facts.workspace, facts.request.wheels_folder, distribution, facts.python.tag, purpose
            )
        except UsageError as failure:
            yield Finding("error", failure.message, outputs.FOREIGN_WHEEL_TIP)


def check_submodules(run: PreflightRun) -> Iterator[Finding]:
    """Without its submodules a tree does not compile, or its own build fetches them, not hipified."""
    for project in run.projects:
        tree = run.facts.trees[project.name]
        if tree.missing:
            words = ["git", "-C", str(tree.source), "submodule", "update", "--init", "--recursive"]
            count = tables.format_count(len(tree.missing), "submodule")
            text = f"{tree.source} lacks {count}: {_name_some(list(tree.missing))}"
            yield Finding("error", text, f"`{shell.format_command(words)}`")


PREFLIGHT_CHECKS: Mapping[str, Callable[[PreflightRun], Iterator[Finding]]] = {
    "programs": check_programs,
    "python-headers": check_python_headers,
    "released-pythons": check_released_pythons,
    "access": check_access,
    "disk": check_disk_space,
    "memory": check_memory,
    "installed-rocm": check_installed_rocm,
    "sdk-targets": check_sdk_targets,
    "downloads": check_downloads,
    "foreign-wheels": check_foreign_wheels,
    "submodules": check_submodules,
}


def preflight_plan(planned: plan.PlannedRun) -> tuple[Finding, ...]:
    """Return what is known to go wrong with the steps of a plan that will run, errors first."""
    run = PreflightRun(planned)
    checks = PREFLIGHT_CHECKS.items()
    findings = [replace(finding, check=name) for name, check in checks for finding in check(run)]
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.severity != "error"))


def format_findings(findings: Iterable[Finding]) -> list[str]:
    """Return findings as lines for people, each followed by its tip."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.severity}: {format_finding(finding)}")
        lines.append(f"  tip: {finding.tip}")
    return lines


def refuse_errors(findings: Iterable[Finding]) -> None:
    """Raise UsageError that lists every error among ``findings``, with its tip."""
    errors = find_errors(findings)
    if not errors:
        return
    if len(errors) == 1:
        raise UsageError(errors[0].message, tip=errors[0].tip)
    listed = "\n".join(f"  {finding.message}\n    tip: {finding.tip}" for finding in errors)
    raise UsageError(f"this run cannot succeed, for {len(errors)} reasons:\n{listed}")
