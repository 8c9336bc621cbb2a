"""Preflight of a plan: look at what the steps that will run are going to meet, and check it.

Looking costs a few reads of the disk and a few programs tried; nothing is written.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.compile.variables import prepend_path
from rocm_wheels.core import environment_numbers, errors, parallel, process
from rocm_wheels.core.files import measure_free_space
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models import project_names, release_lines, torch_features
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.pipeline import estimates, outputs, preflight_checks, provided_wheel_checks
from rocm_wheels.pipeline.planner import Planner
from rocm_wheels.pipeline.step import COMPILING_KINDS
from rocm_wheels.sdk import build_environment as sdk_environment
from rocm_wheels.sdk import interpreters

if TYPE_CHECKING:
    from rocm_wheels.pipeline import build_environment, plan
    from rocm_wheels.pipeline.facts import Facts
    from rocm_wheels.pipeline.step import Step

_PROGRAM_SECONDS = 30.0
# name, variable, language, what build files try, a header that is there when the library is
_HOST_COMPILERS = (
    ("C compiler", "CC", "c", ("cc", "gcc", "clang"), "stdio.h"),
    ("C++ compiler", "CXX", "c++", ("c++", "g++", "clang++"), "cstddef"),
)


def complete_subject(
    subject: preflight_checks.PreflightSubject,
    *,
    env: Mapping[str, str],
    work: Path,
    output: Path,
    sources: Mapping[str, Path],
    wheels: Iterable[tuple[Project, str, Path, str]] = (),
) -> preflight_checks.PreflightSubject:
    """Look at what else the checks want to know of a run; what its plan says is ``subject``.

    ``wheels`` that will be made: project, tag, folder, purpose. ``env`` is that of the builds: a build
    environment's programs come first on its PATH, once it is there.
    """
    trees = {name: sources[name] for name in subject.projects}
    return replace(
        subject,
        folders=_inspect_folders(work, output, trees, _find_temporary_folder(env, subject.platform)),
        programs=_inspect_programs(env, subject.platform),
        foreign=_find_foreign_wheels(Workspace(work), wheels),
    )


def find_headers(python: Path, env: Mapping[str, str], tag: str = "") -> preflight_checks.PythonHeaders:
    """Find an interpreter's Python.h: where one with this tag has it, else where it says.

    An interpreter that will not do is told of here, and refused where it matters.
    """
    if match := re.fullmatch(r"cp3(\d+)(t?)", tag):
        usual = Path(os.path.realpath(python)).parent.parent / "include" / f"python3.{match[1]}{match[2]}"
        if (usual / "Python.h").is_file():
            return preflight_checks.PythonHeaders(f"{python} ({tag})", usual)
    try:
        interpreter = interpreters.query_interpreter(python, env)
    except errors.UsageError as failure:
        return preflight_checks.PythonHeaders(str(python), None, failure.message)
    return preflight_checks.PythonHeaders(str(interpreter), interpreter.headers)


def _find_foreign_wheels(
    workspace: Workspace, wheels: Iterable[tuple[Project, str, Path, str]]
) -> tuple[str, ...]:
    """Return a sentence for each wheel to come beside which one lies that it must not replace."""
    messages = []
    for project, tag, folder, purpose in wheels:
        try:
            outputs.refuse_foreign_wheels(workspace, folder, project.distribution, tag, purpose)
        except errors.UsageError as failure:
            messages.append(failure.message)
    return tuple(messages)


def _inspect_folders(
    work: Path, output: Path, trees: Mapping[str, Path], temporary: Path
) -> tuple[preflight_checks.PreflightFolder, ...]:
    folders: list[tuple[preflight_checks.FolderRole, str, Path]] = [
        ("work", "work directory", work),
        ("output", "output folder", output),
        *(("source", f"source tree of {name}", tree) for name, tree in trees.items()),
        ("temporary", "folder of temporary files", temporary),
    ]
    return tuple(_inspect_folder(role, description, path) for role, description, path in folders)


def _inspect_folder(
    role: preflight_checks.FolderRole, description: str, path: Path
) -> preflight_checks.PreflightFolder:
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.is_dir())
    return preflight_checks.PreflightFolder(
        role=role,
        description=description,
        path=path,
        device=nearest.stat().st_dev,
        free=measure_free_space(nearest),
        exists=path.is_dir(),
        writable=os.access(nearest, os.W_OK | os.X_OK),
    )


def _find_temporary_folder(env: Mapping[str, str], platform: project_names.Platform) -> Path:
    """Return where programs put temporary files."""
    names = ("TMP", "TEMP") if platform == "windows" else ("TMPDIR",)
    default = tempfile.gettempdir() if platform == "windows" else "/tmp"
    return Path(next((env[name] for name in names if env.get(name)), default))


def _inspect_programs(
    env: Mapping[str, str], platform: project_names.Platform
) -> tuple[preflight_checks.BuildProgram, ...]:
    """Start git, and let compilers compile nothing. CMake and ninja are the build environment's own."""
    questions = [("git", "git", ["version"])]
    if platform == "linux":
        for name, variable, kind, words, header in _HOST_COMPILERS:
            present = [word for word in words if shutil.which(word, path=env.get("PATH", ""))]
            first, *more = env.get(variable, "").split() or [(present or words)[0]]  # CC="ccache gcc"
            questions.append(
                (name, first, [*more, "-x", kind, "-include", header, "-fsyntax-only", os.devnull])
            )
    return tuple(
        parallel.run_in_parallel(
            lambda question: _inspect_program(*question, env=env), questions, jobs=len(questions)
        )
    )


def _inspect_program(
    name: str, word: str, question: Sequence[str], *, env: Mapping[str, str]
) -> preflight_checks.BuildProgram:
    location = shutil.which(word, path=env.get("PATH", ""))
    if location is None:
        return preflight_checks.BuildProgram(name, None)
    try:
        process.capture_output(
            [location, *question],
            env=env,
            timeout=_PROGRAM_SECONDS,
            check=errors.UsageError,
            description=name,
        )
    except errors.RocmWheelsError as failure:
        return preflight_checks.BuildProgram(name, Path(location), fault=str(failure).replace("\n", " "))
    return preflight_checks.BuildProgram(name, Path(location))


_COMPILER_VARIABLES = ("CC", "CXX")
_ROCM_PLACES = ("HIP_PATH",)  # which hipcc and FindHIP.cmake take before their own folder


def preflight_plan(planned: plan.PlannedRun) -> tuple[errors.Finding, ...]:
    """Return what is known to go wrong with the steps of a plan that will run, errors first."""
    return preflight_checks.run_preflight_checks(make_subject(planned))


def make_subject(planned: plan.PlannedRun) -> preflight_checks.PreflightSubject:
    """Look at what the steps of a plan that are not current will meet."""
    facts, request = planned.facts, planned.facts.request
    steps = [step for step in planned.plan if step.may_run]
    builds = [(step, load_project(str(step.project))) for step in steps if step.kind in COMPILING_KINDS]
    delivering = [(step, load_project(str(step.project))) for step in steps if step.delivers]
    projects = list({project.name: project for _, project in builds}.values())
    tag, ready, sdk = facts.python.tag, facts.python.ready, facts.sdk
    attention = _expects_flash_attention(facts, planned.plan.targets)
    planner = Planner(planned.steps, facts, planned.plan.steps)
    subject = preflight_checks.PreflightSubject(
        platform=request.platform,
        machine=facts.machine,
        projects=tuple(project.name for project in projects),
        costs=tuple(_make_step_cost(step, planned) for step in steps if not step.brought),
        pythons=(find_headers(facts.python.python, facts.env, tag),) if builds else (),
        targets=planned.plan.targets,
        sdk_targets=sdk.targets if sdk is not None else None,
        rocm_findings=tuple(_judge_installed_rocm(facts, projects)),
        unreleased=_list_unreleased_pythons(facts) if builds else (),
        fetches=tuple(
            fetch
            for project in projects
            for fetch in preflight_checks.list_fetches(
                project,
                request.sources[project.name],
                {
                    **facts.env,
                    **project.get_environment(request.platform),
                    **request.set_env.get(project.name, {}),
                },
                flash_attention=attention,
            )
        ),
        missing={tree.source: tree.missing for tree in facts.trees.values() if tree.missing},
        offline=request.offline,
        jobs=environment_numbers.read_number(facts.env, "MAX_JOBS"),
    )
    return complete_subject(
        subject,
        env=_make_program_environment(facts, projects, ready),
        work=request.work,
        output=request.output,
        sources=request.sources,
        wheels=[
            (project, tag, request.wheels_folder, planner.describe_purpose(step))
            for step, project in delivering
        ],
    )


def _judge_installed_rocm(facts: Facts, projects: Iterable[Project]) -> Iterator[errors.Finding]:
    """Say what torch looks for in an installed ROCm and does not find, and which variables lead elsewhere."""
    request, sdk = facts.request, facts.installed_rocm
    if sdk is None or sdk.prefix is None:
        return
    for project in projects:
        variables = request.set_env.get(project.name, {})
        env = {**facts.env, **project.get_environment(request.platform), **variables}
        packages = torch_features.read_hip_packages(request.sources[project.name], sdk.version)
        for part in sdk.prefix.find_missing(packages, env):
            message, tip = part.explain(sdk.version, sdk.root)
            yield errors.Finding("error" if part.required else "warning", message, tip)
    for name in _ROCM_PLACES:
        place = facts.env.get(name, "")
        if place and not Path(place).resolve().is_relative_to(sdk.root.resolve()):
            message = f"{name}={place} leads to another ROCm than {sdk.root}, which is built on"
            yield errors.Finding("warning", message, f"unset {name}, or name that ROCm: --rocm-path")


def _make_program_environment(
    facts: Facts, projects: Iterable[Project], ready: build_environment.ReadyEnvironment | None
) -> dict[str, str]:
    """Return the environment of the builds, as far as it says where programs are found."""
    request, env = facts.request, dict(facts.env)
    for project in projects:
        variables = request.set_env.get(project.name, {})
        env.update({name: variables[name] for name in _COMPILER_VARIABLES if name in variables})
    if ready is not None:
        prepend_path(env, "PATH", ready.environment.bin, request.platform)
    return env


def _list_unreleased_pythons(facts: Facts) -> tuple[str, ...]:
    """Say of a Python that torch's release line was not released for that it is so."""
    tree = facts.trees.get("pytorch")
    if tree is None or tree.version is None:
        return ()
    line, released = release_lines.get_line_pythons(tree.version)
    version = sdk_environment.shorten_python_version(facts.python.version)
    if not released or version in released:
        return ()
    return (f"line {line} of torch was released for Python {', '.join(released)}, and not for {version}",)


def _make_step_cost(step: Step, planned: plan.PlannedRun) -> preflight_checks.StepCost:
    expected = step.estimate or estimates.estimate_step(
        step.kind, max(len(planned.plan.targets), 1), planned.facts.machine, planned.facts.history
    )
    return preflight_checks.StepCost(
        step.id, step.project if step.kind in COMPILING_KINDS else None, expected
    )


def _expects_flash_attention(facts: Facts, targets: tuple[str, ...]) -> bool:
    """Tell whether torch is expected to get flash attention; what the option rules out is refused later."""
    tree, (triton, _) = facts.trees.get("pytorch"), provided_wheel_checks.find_usable_triton(facts)
    try:
        return torch_features.decide_flash_attention(
            facts.request.flash_attention,
            platform=facts.request.platform,
            with_triton=facts.builds_project("triton") or triton is not None,
            targets=targets,
            aotriton=tree.aotriton if tree is not None else None,
        ).on
    except errors.UsageError:
        return True
