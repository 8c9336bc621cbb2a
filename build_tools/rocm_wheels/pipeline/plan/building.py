"""What a project's build depends on, by name: what is not named here cannot cause a rebuild."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from rocm_wheels.compile.environment import build_environment, exact_pins
from rocm_wheels.compile.request import BuildRequest
from rocm_wheels.compile.trees import tree_key
from rocm_wheels.compile.variables import prepend_path
from rocm_wheels.model.flash_attention import FlashAttention, use_flash_attention
from rocm_wheels.model.project import Project
from rocm_wheels.model.versions import wheel_version
from rocm_wheels.pipeline.facts.gather import Facts, Tree, torch_version
from rocm_wheels.pipeline.facts.layers import layer_of
from rocm_wheels.pipeline.facts.ready import Ready
from rocm_wheels.shell import kept_value

# What the user may have set that reaches a wheel, or the programs that make it, without a configure step
_USERS = ("PYTHONPATH", "PYTHONHASHSEED", "SOURCE_DATE_EPOCH", "PYTORCH_VERSION", "TORCH_PACKAGE_NAME")
CODE_VERSION = "3"  # raise it when this step would make other bytes from the same inputs


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


def configured_by(inputs: Mapping[str, str]) -> dict[str, str]:
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
class Beside:
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
    project: Project, facts: Facts, ready: Ready, targets: tuple[str, ...], beside: Beside
) -> PlannedBuild:
    """Settle a project's build."""
    attention = _attention(facts, targets, beside) if project.name == "pytorch" else None
    request = _request(project, facts, ready, targets, beside=beside, attention=attention)
    base = dict(facts.env)
    layer = layer_of(project.name, ready, facts.workspace)
    for folder in (ready.environment.bin, layer.bin):  # its cmake, not the machine's
        prepend_path(base, "PATH", folder, request.platform)
    environment = build_environment(request, base)
    pins = exact_pins(request, environment)
    identity = facts.trees[project.name].identity
    inputs = {
        **_configuration(request, environment, facts, ready, layer.python),
        **{f"build package {name}": value for name, value in beside.packages.items()},
        **beside.wheels,
        **({"pins": ", ".join(pins)} if project.build.pins else {}),
        "commit": identity.commit,
        "sources": identity.tree,
    }
    said = f"{'on' if attention.on else 'off'}, {attention.reason}" if attention else None
    return PlannedBuild(request, facts.env, environment, dict(sorted(inputs.items())), said, pins)


def _attention(facts: Facts, targets: tuple[str, ...], beside: Beside) -> FlashAttention:
    """Decide whether torch gets flash attention."""
    return use_flash_attention(
        facts.request.flash_attention,
        platform=facts.request.platform,
        with_triton=beside.triton is not None,
        targets=targets,
        aotriton=facts.trees["pytorch"].aotriton,
        why_not=beside.without_triton,
    )


def _request(
    project: Project,
    facts: Facts,
    ready: Ready,
    targets: tuple[str, ...],
    *,
    beside: Beside,
    attention: FlashAttention | None,
) -> BuildRequest:
    asked, tree = facts.request, facts.trees[project.name]
    suffix = facts.suffix(ready.sdk.version, project.name)
    return BuildRequest(
        project=project,
        source=tree.source,
        platform=asked.platform,
        sdk=ready.tree,
        targets=targets,
        version=_version(project, tree, suffix, asked.release_type),
        suffix=suffix,
        build_number=asked.build_number,
        triton_requirement=beside.triton,
        triton_environment=facts.triton_environment,
        against=beside.versions,
        flash_attention=attention.on if attention else None,
        commit_epoch=tree.identity.epoch,
        commit=tree.identity.source if tree.identity.source not in ("", tree.identity.commit) else None,
        cache=facts.cache,
        torch_line=_torch_line(facts, beside),
        offline=asked.offline,
        set_env=asked.set_env.get(project.name, {}),
    )


def _torch_line(facts: Facts, beside: Beside) -> str | None:
    """Return the series of the torch that is built or built against, such as 2.10."""
    tree = facts.trees.get("pytorch")
    if tree is not None:
        version = tree.version
    else:
        version = beside.versions.get("pytorch") or torch_version(facts.request)
    return ".".join(map(str, Version(version).release[:2])) if version is not None else None


def _version(project: Project, tree: Tree, suffix: str, release_type: str) -> str | None:
    """Return the whole version of the wheel; ``None`` where the project makes its own."""
    if tree.version is None:
        return None
    commit = tree.identity.upstream or tree.identity.commit
    return wheel_version(
        tree.version, suffix, release_type=release_type, commit=commit, git_tag=project.version.git_tag
    )


def _configuration(
    request: BuildRequest, environment: Mapping[str, str], facts: Facts, ready: Ready, python: Path
) -> Mapping[str, str]:
    """Return the inputs that are not sources: variables, ROCm, and this step's own code."""
    key = tree_key(request, environment, python=python, python_tag=ready.python_tag)
    rules = request.project.version
    told = [*rules.variables, rules.build_number, rules.suffix_variable, "PYTORCH_EXTRA_INSTALL_REQUIREMENTS"]
    told += [pin.variable for pin in request.project.build.pins]
    if request.project.name == "triton":
        told += request.triton_environment
    build = request.project.build
    found = {
        **{name: value for name, value in key.parts.items() if "LAUNCHER" not in name},
        **{name: kept_value(name, environment[name]) for name in told if name and name in environment},
        **{name: kept_value(name, environment[name]) for name in _USERS if name in facts.env},
        "front end": " ".join([build.front_end, *build.config_settings]),
        "ROCm packages": ready.content,
        "step": CODE_VERSION,
    }
    if not request.project.has_device_code:
        found.pop("PYTORCH_ROCM_ARCH", None)  # nothing of it reaches the wheel
    return found
