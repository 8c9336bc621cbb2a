"""What a project's build depends on, by name: what is not named here cannot cause a rebuild."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocm_wheels.compile.cache import CompilerCache
from rocm_wheels.compile.environment import build_environment
from rocm_wheels.compile.request import BuildRequest
from rocm_wheels.compile.sdk_tree import SdkTree
from rocm_wheels.compile.trees import tree_key
from rocm_wheels.compile.variables import prepend_path
from rocm_wheels.model.flash_attention import aotriton_release, use_flash_attention
from rocm_wheels.model.project import Project
from rocm_wheels.model.versions import project_version, version_suffix
from rocm_wheels.pipeline.environment import Ready
from rocm_wheels.pipeline.locked import LockedBuild
from rocm_wheels.pipeline.request import WheelsRequest
from rocm_wheels.sources.identity import TreeIdentity, tree_identity
from rocm_wheels.workspace import Workspace

# What the user may have set that reaches a wheel, or the programs that make it, without a configure step
_USERS = ("PYTHONPATH", "PYTHONHASHSEED", "SOURCE_DATE_EPOCH", "PYTORCH_VERSION", "TORCH_PACKAGE_NAME")
CODE_VERSION = "2"  # raise it when this step would make other bytes from the same inputs


@dataclass(frozen=True)
class Setting:
    """What holds for every project of a run. ``run`` names this run's logs; ``env`` is the user's."""

    request: WheelsRequest
    workspace: Workspace
    ready: Ready
    sdk: SdkTree
    targets: tuple[str, ...]
    cache: CompilerCache | None
    tools: tuple[str, ...]  # requirements of the build environment: cmake, ninja, …
    triton_environment: Mapping[str, str]
    env: Mapping[str, str]
    run: str
    locked: LockedBuild | None = None

    def identity(self, name: str) -> TreeIdentity:
        """Return what a project's tree holds now."""
        tree = self.request.sources[name]
        if self.locked is not None:
            return self.locked.identity(name, tree, self.env)
        return tree_identity(tree, env=self.env)


@dataclass(frozen=True)
class PlannedBuild:
    """A build before it runs: what is asked, its whole environment, and its inputs by name.

    ``attention`` says in words whether torch gets flash attention and why; ``None`` for other projects.
    """

    request: BuildRequest
    environment: Mapping[str, str]
    inputs: Mapping[str, str]
    attention: str | None = None


def plan_build(
    project: Project, setting: Setting, *, triton_requirement: str | None, wheels: Mapping[str, str]
) -> PlannedBuild:
    """Settle a project's build; ``wheels`` are digests of the wheels that it is built against."""
    asked = setting.request
    source = asked.sources[project.name]
    identity = setting.identity(project.name)
    suffix = version_suffix(setting.ready.sdk.version, asked.version_suffix)
    version = project_version(
        project,
        source,
        suffix,
        release_type=asked.release_type,
        commit=identity.upstream or identity.commit,
    )
    attention = None
    if project.name == "pytorch":
        attention = use_flash_attention(
            asked.flash_attention,
            platform=asked.platform,
            with_triton=triton_requirement is not None,
            targets=setting.targets,
            aotriton=aotriton_release(source),
        )
    request = BuildRequest(
        project=project,
        source=source,
        platform=asked.platform,
        sdk=setting.sdk,
        targets=setting.targets,
        version=version,
        suffix=suffix,
        build_number=asked.build_number,
        triton_requirement=triton_requirement,
        triton_environment=setting.triton_environment,
        flash_attention=attention.on if attention else None,
        commit_epoch=identity.epoch,
        cache=setting.cache,
    )
    base = dict(setting.env)
    prepend_path(base, "PATH", setting.ready.environment.bin, asked.platform)  # its cmake, not the machine's
    environment = build_environment(request, base)
    inputs = {
        **_configuration(request, environment, setting),
        **wheels,
        "commit": identity.commit,
        "sources": identity.tree,
    }
    said = f"{'on' if attention.on else 'off'}, {attention.reason}" if attention else None
    return PlannedBuild(request, environment, dict(sorted(inputs.items())), said)


def _configuration(
    request: BuildRequest, environment: Mapping[str, str], setting: Setting
) -> Mapping[str, str]:
    """Return the inputs that are not sources: variables, ROCm, tools, and this step's own code."""
    ready = setting.ready
    key = tree_key(request, environment, python=ready.environment.python, python_tag=ready.python_tag)
    rules = request.project.version
    told = [*rules.variables, rules.build_number, rules.suffix_variable, "PYTORCH_EXTRA_INSTALL_REQUIREMENTS"]
    return {
        **{name: value for name, value in key.parts.items() if "LAUNCHER" not in name},
        **{name: environment[name] for name in told if name and name in environment},
        **{name: setting.env[name] for name in _USERS if name in setting.env},
        "ROCm packages": ready.content,
        "build tools": " ".join(setting.tools),
        "step": CODE_VERSION,
    }
