"""The inputs of a project's build, by name: what is not named here cannot cause a rebuild."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from rocm_wheels.compile import (
    BuildRequest,
    compose_environment,
    list_exact_pins,
    make_tree_key,
    prepend_path,
)
from rocm_wheels.core import redact_for_comparison
from rocm_wheels.models import FlashAttention, Project, decide_flash_attention, make_wheel_version
from rocm_wheels.pipeline.build_environment import ReadyEnvironment, find_project_layer
from rocm_wheels.pipeline.facts import Facts, TreeFacts, find_torch_version

# What the user may have set that reaches a wheel, or the programs that make it, without a configure step
_USER_VARIABLES = (
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "SOURCE_DATE_EPOCH",
    "PYTORCH_VERSION",
    "TORCH_PACKAGE_NAME",
)
BUILD_STEP_VERSION = "3"  # raise it when this step would make other bytes from the same inputs


@dataclass(frozen=True)
class PlannedBuild:
    """A build before it runs: what is asked, its whole environment, and its inputs by name.

    ``base`` is the environment that a user would repeat it in. ``pins``: what the wheel requires at the very
    version that it is built against (``torch==2.9.0+rocm7.1.0``). ``attention`` says in words whether torch
    gets flash attention and why; ``None`` for other projects.
    """

    request: BuildRequest
    base: Mapping[str, str]
    environment: Mapping[str, str]
    inputs: Mapping[str, str]
    attention: str | None = None
    pins: tuple[str, ...] = ()


def select_configure_inputs(inputs: Mapping[str, str]) -> dict[str, str]:
    """Return those inputs of a build that decide whether CMake finds what is asked for.

    Sources are none but for their version: the build itself compares the cache again.
    """
    others = ("commit", "sources", "pins", "PYTORCH_EXTRA_INSTALL_REQUIREMENTS")
    return {
        name: value
        for name, value in inputs.items()
        if name not in others and not name.startswith("wheel of ")
    }


@dataclass(frozen=True)
class BuildDependencies:
    """What a project is built with, besides its sources and ROCm.

    ``triton``: what torch shall require of it; ``without_triton``: why that is nothing, if so. ``wheels``:
    digests of the wheels that it is built against; ``versions`` of those that its recipe pins, by project;
    ``packages``: identities of build packages.
    """

    triton: str | None
    without_triton: str
    wheels: Mapping[str, str]
    versions: Mapping[str, str]
    packages: Mapping[str, str]


def plan_build(
    project: Project,
    facts: Facts,
    ready: ReadyEnvironment,
    targets: tuple[str, ...],
    dependencies: BuildDependencies,
) -> PlannedBuild:
    """Settle a project's build."""
    attention = _decide_attention(facts, targets, dependencies) if project.name == "pytorch" else None
    request = _make_build_request(
        project, facts, ready, targets, dependencies=dependencies, attention=attention
    )
    base = dict(facts.env)
    layer = find_project_layer(project.name, ready, facts.workspace)
    for folder in (ready.environment.bin, layer.bin):  # its cmake, not the machine's
        prepend_path(base, "PATH", folder, request.platform)
    environment = compose_environment(request, base)
    pins = list_exact_pins(request, environment)
    identity = facts.trees[project.name].identity
    inputs = {
        **_list_configuration_inputs(request, environment, facts, ready, layer.python),
        **{f"build package {name}": value for name, value in dependencies.packages.items()},
        **dependencies.wheels,
        **({"pins": ", ".join(pins)} if project.build.pins else {}),
        "commit": identity.commit,
        "sources": identity.tree,
    }
    attention_text = f"{'on' if attention.on else 'off'}, {attention.reason}" if attention else None
    return PlannedBuild(request, facts.env, environment, dict(sorted(inputs.items())), attention_text, pins)


def _decide_attention(
    facts: Facts, targets: tuple[str, ...], dependencies: BuildDependencies
) -> FlashAttention:
    """Decide whether torch gets flash attention."""
    return decide_flash_attention(
        facts.request.flash_attention,
        platform=facts.request.platform,
        with_triton=dependencies.triton is not None,
        targets=targets,
        aotriton=facts.trees["pytorch"].aotriton,
        why_not=dependencies.without_triton,
    )


def _make_build_request(
    project: Project,
    facts: Facts,
    ready: ReadyEnvironment,
    targets: tuple[str, ...],
    *,
    dependencies: BuildDependencies,
    attention: FlashAttention | None,
) -> BuildRequest:
    run_request, tree = facts.request, facts.trees[project.name]
    suffix = facts.wheel_suffix(ready.sdk.version, project.name)
    return BuildRequest(
        project=project,
        source=tree.source,
        platform=run_request.platform,
        sdk=ready.sdk_tree,
        targets=targets,
        version=_make_wheel_version(project, tree, suffix, run_request.release_type),
        suffix=suffix,
        build_number=run_request.build_number,
        triton_requirement=dependencies.triton,
        triton_environment=facts.triton_environment,
        against=dependencies.versions,
        flash_attention=attention.on if attention else None,
        commit_epoch=tree.identity.epoch,
        commit=tree.identity.source if tree.identity.source not in ("", tree.identity.commit) else None,
        cache=facts.cache,
        torch_line=_find_torch_line(facts, dependencies),
        offline=run_request.offline,
        set_env=run_request.set_env.get(project.name, {}),
    )


def _find_torch_line(facts: Facts, dependencies: BuildDependencies) -> str | None:
    """Return the series of the torch that is built or built against, such as 2.10."""
    tree = facts.trees.get("pytorch")
    if tree is not None:
        version = tree.version
    else:
        version = dependencies.versions.get("pytorch") or find_torch_version(facts.request)
    return ".".join(map(str, Version(version).release[:2])) if version is not None else None


def _make_wheel_version(project: Project, tree: TreeFacts, suffix: str, release_type: str) -> str | None:
    """Return the whole version of the wheel; ``None`` where the project makes its own."""
    if tree.version is None:
        return None
    commit = tree.identity.upstream or tree.identity.commit
    return make_wheel_version(
        tree.version, suffix, release_type=release_type, commit=commit, git_tag=project.version.git_tag
    )


def _list_configuration_inputs(
    request: BuildRequest, environment: Mapping[str, str], facts: Facts, ready: ReadyEnvironment, python: Path
) -> Mapping[str, str]:
    """Return the inputs that are not sources: variables, ROCm, and this step's own code."""
    key = make_tree_key(request, environment, python=python, python_tag=ready.python_tag)
    rules = request.project.version
    variables = [
        *rules.variables,
        rules.build_number,
        rules.suffix_variable,
        "PYTORCH_EXTRA_INSTALL_REQUIREMENTS",
    ]
    variables += [pin.variable for pin in request.project.build.pins]
    if request.project.name == "triton":
        variables += request.triton_environment
    build = request.project.build
    inputs = {
        **{name: value for name, value in key.parts.items() if "LAUNCHER" not in name},
        **{
            name: redact_for_comparison(name, environment[name])
            for name in variables
            if name and name in environment
        },
        **{
            name: redact_for_comparison(name, environment[name])
            for name in _USER_VARIABLES
            if name in facts.env
        },
        "front end": " ".join([build.front_end, *build.config_settings]),
        "ROCm packages": ready.content,
        "step": BUILD_STEP_VERSION,
    }
    if not request.project.has_device_code:
        inputs.pop("PYTORCH_ROCM_ARCH", None)  # nothing of it reaches the wheel
    return inputs
