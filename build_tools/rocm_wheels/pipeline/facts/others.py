"""What of the projects that others are built against a run has without building it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packaging.utils import canonicalize_name

from rocm_wheels import parallel
from rocm_wheels.errors import UsageError
from rocm_wheels.model.names import option_name
from rocm_wheels.model.project import Project, load_project
from rocm_wheels.pipeline.facts.imported import compiler_cxx11_abi, look_at_installed
from rocm_wheels.pipeline.facts.provided import Provided, given_for, look_at_given
from rocm_wheels.pipeline.facts.ready import Ready
from rocm_wheels.pipeline.request import WheelsRequest
from rocm_wheels.wheels.names import parse_wheel_name
from rocm_wheels.workspace import Workspace


def others_of(
    request: WheelsRequest,
    projects: Sequence[Project],
    ready: Ready | None,
    tag: str,
    env: Mapping[str, str],
) -> dict[str, Provided]:
    """Return the wheels that projects are built against and that nobody builds: given, or installed."""
    workspace = Workspace(request.work)
    found: dict[str, Provided] = {}
    for name in sorted(_others(projects)):
        one: Provided | None = None
        if given := request.given_wheels.get(name):
            one = look_at_given(name, given_for(name, given, tag), request.platform, tag, workspace)
        elif ready is not None:
            one = look_at_installed(load_project(name), ready, request.platform, workspace, env)
        if one is not None:
            found[name] = one
    return found


def refuse_strange(request: WheelsRequest, projects: Sequence[Project]) -> None:
    """Raise UsageError for given wheels of another project, or that nothing of this run is built against."""
    others = _others(projects)
    for name, wheels in request.given_wheels.items():
        option, distribution = f"--{option_name(name)}-wheel", load_project(name).distribution
        for wheel in wheels:
            found = parse_wheel_name(wheel.name)
            if found.name != canonicalize_name(distribution):
                raise UsageError(f"{option} {wheel}: it is a wheel of {found.name}, not of {distribution}")
            if found.label is not None:
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


def compilers_of(
    request: WheelsRequest, projects: Sequence[Project], env: Mapping[str, str]
) -> dict[str, bool | None]:
    """Ask the C++ compilers of projects that need another one, which nobody builds, for their ABI."""
    built = {project.name for project in projects}
    asking = [project.name for project in projects if set(project.build.needs) - built]
    if request.platform == "windows" or not asking:
        return {}
    said = {name: {**env, **request.set_env.get(name, {})} for name in asking}
    different = {(one.get("CXX", ""), one.get("CXXFLAGS", "")): one for one in said.values()}
    known = dict(zip(different, parallel.each(compiler_cxx11_abi, different.values(), jobs=8), strict=True))
    return {name: known[one.get("CXX", ""), one.get("CXXFLAGS", "")] for name, one in said.items()}


def _others(projects: Sequence[Project]) -> set[str]:
    built = {project.name for project in projects}
    return {name for project in projects for name in project.build.after if name not in built}
