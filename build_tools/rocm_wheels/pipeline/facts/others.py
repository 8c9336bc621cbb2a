"""What of the projects that others are built against a run has without building it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packaging.utils import canonicalize_name

from rocm_wheels import parallel
from rocm_wheels.errors import UsageError
from rocm_wheels.model.names import get_option_name
from rocm_wheels.model.project import Project, load_project
from rocm_wheels.pipeline.facts.imported import ask_compiler_cxx11_abi, inspect_installed_wheel
from rocm_wheels.pipeline.facts.provided import ProvidedWheel, select_given_wheel, inspect_given_wheel
from rocm_wheels.pipeline.facts.ready import ReadyEnvironment
from rocm_wheels.pipeline.request import WheelsRequest
from rocm_wheels.wheels.names import parse_wheel_name
from rocm_wheels.workspace import Workspace


def find_provided_wheels(
    request: WheelsRequest,
    projects: Sequence[Project],
    ready: ReadyEnvironment | None,
    tag: str,
    env: Mapping[str, str],
) -> dict[str, ProvidedWheel]:
    """Return the wheels that projects are built against and that nobody builds: given, or installed."""
    workspace = Workspace(request.work)
    provided_wheels: dict[str, ProvidedWheel] = {}
    for name in sorted(_list_other_projects(projects)):
        provided: ProvidedWheel | None = None
        if given_wheels := request.given_wheels.get(name):
            provided = inspect_given_wheel(
                name, select_given_wheel(name, given_wheels, tag), request.platform, tag, workspace
            )
        elif ready is not None:
            provided = inspect_installed_wheel(load_project(name), ready, request.platform, workspace, env)
        if provided is not None:
            provided_wheels[name] = provided
    return provided_wheels


def refuse_stray_wheels(request: WheelsRequest, projects: Sequence[Project]) -> None:
    """Raise UsageError for given wheels of another project, or that nothing of this run is built against."""
    others = _list_other_projects(projects)
    for name, wheels in request.given_wheels.items():
        option, distribution = f"--{get_option_name(name)}-wheel", load_project(name).distribution
        for wheel in wheels:
            wheel_name = parse_wheel_name(wheel.name)
            if wheel_name.name != canonicalize_name(distribution):
                raise UsageError(
                    f"{option} {wheel}: it is a wheel of {wheel_name.name}, not of {distribution}"
                )
            if wheel_name.label is not None:
                raise UsageError(
                    f"{option} {wheel}: it is a variant, which installers take for machines that it is for",
                    tip="give the wheel that it was stamped from",
                )
        if name not in others:
            built = ", ".join(project.name for project in projects)
            raise UsageError(
                f"{option}: nothing of this run ({built}) is built against {name}",
                tip="leave it out, or build a project that is",
            )


def ask_compiler_abis(
    request: WheelsRequest, projects: Sequence[Project], env: Mapping[str, str]
) -> dict[str, bool | None]:
    """Ask the C++ compilers of projects that need another one, which nobody builds, for their ABI."""
    built = {project.name for project in projects}
    asking = [project.name for project in projects if set(project.build.needs) - built]
    if request.platform == "windows" or not asking:
        return {}
    environments = {name: {**env, **request.set_env.get(name, {})} for name in asking}
    distinct = {
        (compiler_env.get("CXX", ""), compiler_env.get("CXXFLAGS", "")): compiler_env
        for compiler_env in environments.values()
    }
    abis = dict(
        zip(
            distinct, parallel.run_in_parallel(ask_compiler_cxx11_abi, distinct.values(), jobs=8), strict=True
        )
    )
    return {
        name: abis[compiler_env.get("CXX", ""), compiler_env.get("CXXFLAGS", "")]
        for name, compiler_env in environments.items()
    }


def _list_other_projects(projects: Sequence[Project]) -> set[str]:
    built = {project.name for project in projects}
    return {name for project in projects for name in project.build.after if name not in built}
