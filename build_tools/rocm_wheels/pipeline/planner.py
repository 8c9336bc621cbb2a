"""What steps ask of each other and of the facts while they are settled; what a build depends on.

What is known only later raises ``NotYet``. The inputs of a build have names: what is not named here cannot
cause a rebuild."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.version import Version

from rocm_wheels.binaries import asan
from rocm_wheels.compile import build_request, build_trees
from rocm_wheels.compile.environment import compose_environment, list_exact_pins
from rocm_wheels.compile.variables import USER_VARIABLES, prepend_path
from rocm_wheels.core import errors, shell
from rocm_wheels.models import gfx, torch_features
from rocm_wheels.models.project import Project, load_project
from rocm_wheels.models.versions import add_version_marks, make_wheel_version, strip_version_marks
from rocm_wheels.pipeline import build_environment, outputs, provided_wheel_checks, provided_wheels
from rocm_wheels.pipeline.facts import Facts, find_torch_version
from rocm_wheels.pipeline.step import NotYet, Step
from rocm_wheels.sdk import resolve_packages, rocm_sdk

_EXTRA_REQUIREMENTS = "PYTORCH_EXTRA_INSTALL_REQUIREMENTS"
BUILD_STEP_VERSION = "6"  # raise it when this step would make other bytes from the same inputs


@dataclass(frozen=True)
class PlannedBuild:
    """A build before it runs: what is asked, its whole environment, and its inputs by name.

    ``base`` is the environment that a user would repeat it in. ``pins``: what the wheel requires at the very
    version that it is built against (``torch==2.9.0+rocm7.1.0``). ``attention`` says in words whether torch
    gets flash attention and why; ``None`` for other projects. ``tools`` are installed in its layer.
    """

    request: build_request.BuildRequest
    base: Mapping[str, str]
    environment: Mapping[str, str]
    inputs: Mapping[str, str]
    attention: str | None = None
    pins: tuple[str, ...] = ()
    tools: Mapping[str, resolve_packages.InstalledPackage] = field(default_factory=dict)


def select_configure_inputs(inputs: Mapping[str, str]) -> dict[str, str]:
    """Return those inputs of a build that decide whether CMake finds what is asked for.

    Of sources these are their names, and their version without what an edit changes in it: the build itself
    compares the cache again.
    """
    others = ("commit", "sources", "pins", "requires", "suffix", _EXTRA_REQUIREMENTS)
    return {
        name: strip_version_marks(value)
        for name, value in inputs.items()
        if name not in others and not name.startswith("wheel of ")
    }


@dataclass(frozen=True)
class BuildDependencies:
    """What a project is built with, besides its sources and ROCm.

    ``triton``: what torch shall require of it; ``without_triton``: why that is nothing, if so. ``wheels``:
    digests of the wheels that it is built against; ``versions`` of those that its recipe pins, by project;
    ``packages``: identities of build packages; ``tools``: the files that all of them were installed from.
    """

    triton: str | None
    without_triton: str
    wheels: Mapping[str, str]
    versions: Mapping[str, str]
    packages: Mapping[str, str]
    tools: Mapping[str, resolve_packages.InstalledPackage] = field(default_factory=dict)


def plan_build(
    project: Project,
    facts: Facts,
    ready: build_environment.ReadyEnvironment,
    targets: tuple[str, ...],
    dependencies: BuildDependencies,
) -> PlannedBuild:
    """Settle a project's build."""
    run_request, tree, identity = facts.request, facts.trees[project.name], facts.trees[project.name].identity
    attention: torch_features.FlashAttention | None = None
    if project.name == "pytorch":
        attention = torch_features.decide_flash_attention(
            run_request.flash_attention,
            platform=run_request.platform,
            with_triton=dependencies.triton is not None,
            targets=targets,
            aotriton=tree.aotriton,
            why_not=dependencies.without_triton,
        )
    suffix = _mark_suffix(facts.wheel_suffix(ready.sdk.version, project.name), project, facts, targets)
    version = None
    if tree.version is not None:
        version = make_wheel_version(
            tree.version,
            suffix,
            release_type=run_request.release_type,
            commit=identity.source or identity.upstream or identity.commit,
            git_tag=project.version.git_tag,
        )
    if (torch := facts.trees.get("pytorch")) is not None:
        torch_version = torch.version
    else:
        torch_version = dependencies.versions.get("pytorch") or find_torch_version(run_request)
    request = build_request.BuildRequest(
        project=project,
        source=tree.source,
        platform=run_request.platform,
        sdk=ready.sdk_tree,
        targets=targets,
        version=version,
        suffix=suffix,
        build_number=run_request.build_number,
        triton_requirement=dependencies.triton,
        triton_environment=facts.triton_environment,
        against=dependencies.versions,
        flash_attention=attention.on if attention else None,
        commit_epoch=identity.epoch,
        commit=identity.source if identity.source not in ("", identity.commit) else None,
        cache=facts.cache,
        torch_line=".".join(map(str, Version(torch_version).release[:2])) if torch_version else None,
        offline=run_request.offline,
        set_env=run_request.set_env.get(project.name, {}),
        source_names=tree.names,
    )
    base, layer = dict(facts.env), build_environment.find_project_layer(project.name, ready, facts.workspace)
    for folder in (ready.environment.bin, layer.bin):  # its cmake, not the machine's
        prepend_path(base, "PATH", folder, request.platform)
    environment = compose_environment(request, base)
    if run_request.packaging == "asan":
        asan.add_build_variables(environment, imports=bool(project.build.after))
    pins = list_exact_pins(request, environment)

    inputs = _list_inputs(request, environment, facts, ready, dependencies, python=layer.python)
    inputs |= {"pins": ", ".join(pins)} if project.build.pins else {}
    return PlannedBuild(
        request,
        facts.env,
        environment,
        dict(sorted(inputs.items())),
        f"{'on' if attention.on else 'off'}, {attention.reason}" if attention else None,
        pins,
        dependencies.tools,
    )


def _list_inputs(
    request: build_request.BuildRequest,
    environment: Mapping[str, str],
    facts: Facts,
    ready: build_environment.ReadyEnvironment,
    dependencies: BuildDependencies,
    *,
    python: Path,
) -> dict[str, str]:
    """Return the inputs of a build by name, but for its pins: variables, ROCm, tools, wheels, sources, and
    what the finished wheel is given that no variable tells its own build.
    """
    rules, build = request.project.version, request.project.build
    variables = [*rules.variables, rules.build_number, rules.suffix_variable, _EXTRA_REQUIREMENTS]
    variables += [pin.variable for pin in build.pins]
    variables += request.triton_environment if request.project.name == "triton" else ()
    reaching = {name for name in variables if name and name in environment}
    reaching |= {name for name in USER_VARIABLES if name in facts.env}
    key = build_trees.make_tree_key(request, environment, python=python, python_tag=ready.python_tag)
    inputs = {name: value for name, value in key.parts.items() if "LAUNCHER" not in name}
    inputs |= {name: shell.redact_for_comparison(name, environment[name]) for name in reaching}
    if not request.project.has_device_code:
        inputs.pop("PYTORCH_ROCM_ARCH", None)  # nothing of it reaches the wheel
    inputs |= {"front end": " ".join([build.front_end, *build.config_settings]), "step": BUILD_STEP_VERSION}
    inputs |= {f"build package {name}": value for name, value in dependencies.packages.items()}
    inputs |= {"ROCm packages": ready.content, **dependencies.wheels}
    rocm = request.rocm_requirement
    if rocm and rocm not in environment.get(_EXTRA_REQUIREMENTS, ""):
        inputs["requires"] = rocm
    if rules.append_suffix:
        inputs["suffix"] = request.suffix
    tree = facts.trees[request.project.name]
    sources = {"commit": tree.identity.commit, "sources": tree.identity.tree, "source names": tree.names}
    return {**inputs, **sources}


_DEVELOPER_RELEASES = ("dev", "dev-bkc")
_TRUE_WORDS = ("1", "ON", "YES", "TRUE", "Y")  # as torch's setup.py reads its variables


def _mark_suffix(suffix: str, project: Project, facts: Facts, targets: tuple[str, ...]) -> str:
    """Return the suffix of a wheel with what tells a developer's build from others.

    What is released has none of it: a tree as it was checked out, not for debugging, of a release type that
    is no developer's. A suffix that was given is the user's word. Targets are of the name beside other marks,
    and in developers' release types, where no lock says them.
    """
    request, identity = facts.request, facts.trees[project.name].identity
    if request.version_suffix:
        return suffix
    developing = request.release_type in _DEVELOPER_RELEASES
    named = facts.trees[project.name].version is None or (developing and project.version.git_tag)
    has_own = identity.upstream is not None and identity.source not in ("", identity.upstream)
    own_commit = identity.source if has_own and not named else ""
    changes, debug = identity.tree if identity.dirty else "", ""
    own_variables = request.set_env.get(project.name, {})
    env = {**facts.env, **project.get_environment(request.platform), **own_variables}
    build_type = env.get("CMAKE_BUILD_TYPE", "").lower()
    if env.get("DEBUG", "").upper() in _TRUE_WORDS or build_type == "debug":
        debug = "debug"
    elif env.get("REL_WITH_DEB_INFO", "").upper() in _TRUE_WORDS or build_type == "relwithdebinfo":
        debug = "relwithdebinfo"
    marked = bool(developing or own_commit or changes or debug)
    shows_targets = marked and project.has_device_code and facts.locked is None
    return add_version_marks(
        suffix,
        targets=sorted(targets) if shows_targets else (),
        debug=debug,
        commit=own_commit,
        changes=changes,
    )


@dataclass(frozen=True)
class Planner:
    """What is known when a step is settled: the facts, all ``steps``, and those ``settled`` before it."""

    steps: Mapping[str, Step]
    facts: Facts
    settled: Mapping[str, Step]

    def is_current(self, name: str) -> bool:
        """Tell whether what a step makes is there and counts."""
        return name in self.settled and self.settled[name].verdict == "skip"

    def find_targets(self) -> tuple[str, ...]:
        """Return what is compiled for. Raises NotYet, and UsageError for what the installed ROCm has not."""
        requested, request = self.requested_targets(), self.facts.request
        if self.facts.sdk is not None and not request.unlisted_targets:
            refuse_missing_targets(requested, self.facts.sdk)
        if request.packaging == "variant":
            from rocm_wheels.variants import targets as variant_targets

            variant_targets.choose_targets(
                "--packaging variant: the build", variant_targets.parse_target_ids(requested)
            )
        return requested

    def requested_targets(self) -> tuple[str, ...]:
        """Return the targets as they are asked for. Raises NotYet."""
        if (targets := self.facts.request.chosen_targets) is not None:
            return targets
        if self.facts.sdk is None:
            raise NotYet(f"install-rocm-{self.facts.python.tag}")
        return gfx.choose_sdk_targets(self.facts.sdk.targets)

    def known_targets(self) -> tuple[str, ...]:
        """Return what is compiled for; none while that is not known."""
        try:
            return self.find_targets()
        except NotYet:
            return ()

    def describe_purpose(self, step: Step) -> str:
        """Say what a step's wheel is for: targets, as they are asked for, and release type.

        Empty where it is the same for all, or the targets are not known yet.
        """
        if not load_project(str(step.project)).has_device_code:
            return ""
        try:
            targets = self.requested_targets()
        except NotYet:
            return ""
        return f"{', '.join(sorted(targets))} ({self.facts.request.release_type})"

    @property
    def ready(self) -> build_environment.ReadyEnvironment:
        """The build environment with ROCm in it. Raises NotYet."""
        if self.facts.python.ready is None:
            raise NotYet(f"install-rocm-{self.facts.python.tag}")
        return self.facts.python.ready

    def plan_step_build(self, step: Step) -> PlannedBuild:
        """Return the settled build of a step. Raises NotYet.

        To configure a tree, nothing that this run builds is waited for.
        """
        project, provided_by_name = load_project(str(step.project)), self.facts.python.provided
        provided_wheel_checks.refuse_misfits(self.facts, [(project, self.known_targets())])
        ready, targets = self.ready, self.find_targets()
        tools = f"install-tools-{self.facts.python.tag}"
        if not self.is_current(tools):
            raise NotYet(tools)
        triton, why_not = provided_wheel_checks.find_usable_triton(self.facts)
        wheels: dict[str, str] = {}
        for other in project.build.after:
            if not self.facts.builds_project(other):
                provided = triton if other == "triton" else provided_by_name.get(other)
                if provided is not None:
                    wheels[f"wheel of {other}"] = provided.content
                continue
            if step.kind == "configure":
                continue
            needed = self.find_build_step(step, other)
            if not self.is_current(needed):
                raise NotYet(needed)
            wheels[f"wheel of {other}"] = str(self.facts.done[needed].stamp.facts["content"])
        installed = self.facts.done[tools].stamp.facts
        dependencies = BuildDependencies(
            triton=self._triton_requirement(step, project, triton),
            without_triton=why_not,
            wheels=wheels,
            versions={
                pin.project: self._known_wheel_version(step, pin.project) for pin in project.build.pins
            },
            packages=installed["packages"].get(project.name, {}),
            tools={
                name: resolve_packages.InstalledPackage(**entry)
                for name, entry in installed.get("files", {}).get(project.name, {}).items()
            },
        )
        return plan_build(project, self.facts, ready, targets, dependencies)

    def find_build_step(self, step: Step, other: str) -> str:
        """Return the step that builds a project which a step is built against."""
        needed = {name: self.steps[name] for name in step.after}
        return next(
            n for n, candidate in needed.items() if candidate.kind == "build" and candidate.project == other
        )

    def _known_wheel_version(self, step: Step, other: str) -> str:
        if self.facts.builds_project(other):
            return str(self.facts.done[self.find_build_step(step, other)].stamp.facts["version"])
        return self.facts.python.provided[other].version

    def _triton_requirement(
        self, step: Step, project: Project, provided: provided_wheels.ProvidedWheel | None
    ) -> str | None:
        """Return the requirement on triton: built in this run, given or installed."""
        if "triton" not in project.build.after:
            return None
        if self.facts.builds_project("triton") and step.kind == "configure":
            return f"{load_project('triton').distribution}==0"  # not built yet; no wheel comes of this
        if self.facts.builds_project("triton"):
            version = self._known_wheel_version(step, "triton")
        elif provided is not None:
            version = provided.version
        else:
            return None
        return f"{load_project('triton').distribution}=={version}"


def refuse_missing_targets(targets: Sequence[str], sdk: rocm_sdk.RocmSdk) -> None:
    """Refuse targets that the installed ROCm has no device libraries for."""
    missing = [target for target in targets if gfx.strip_features(target) not in sdk.targets]
    if missing:
        install = (
            f"install its packages (--install-rocm --rocm-extras device-{gfx.strip_features(missing[0])})"
        )
        if sdk.prefix is not None:
            install = f"install the kernels of its libraries into {sdk.root}"
        raise errors.UsageError(
            f"{', '.join(missing)} is not among the targets of the installed ROCm "
            f"{sdk.version}: {', '.join(sdk.targets) or 'its libraries have kernels for none'}",
            tip=f"{install}, or compile without kernels of ROCm's libraries: --allow-unlisted-targets",
        )


def decide_verdict(planner: Planner, step: Step, inputs: Mapping[str, str], command: str = "") -> Step:
    """Return a step with its verdict, from its inputs as far as they are known and what it did last."""
    step = replace(step, inputs=dict(inputs), command=command)
    done = planner.facts.done.get(step.id)
    if done is None:
        return replace(step, verdict="run", why=outputs.NO_EARLIER_RESULT)
    # its outputs were looked at with the facts
    last_stamp = replace(make_comparable_stamp(step, done.stamp), outputs=())
    if why := outputs.explain_run(last_stamp, step.inputs) or done.fault:
        return replace(step, verdict="run", why=why)
    if step.waits_for is not None:
        return replace(step, verdict="known later", why=f"known after {step.waits_for}")
    return replace(step, verdict="skip", why="up to date")


def make_comparable_stamp(step: Step, stamp: outputs.StepStamp) -> outputs.StepStamp:
    """Return a stamp with those of its inputs that a step is compared with: as far as they are known.

    Tools that were installed for more projects serve fewer: what is installed for others stays.
    """
    if step.waits_for is None and step.kind != "install-tools":
        return stamp
    return replace(stamp, inputs={name: value for name, value in stamp.inputs.items() if name in step.inputs})
