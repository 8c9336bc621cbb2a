"""Look up all that the plan of a cell needs: trees, its Python, ROCm packages, what was done before.

Each thing is looked up once; only what programs were asked is remembered on the disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from rocm_wheels.compile import cache_trust, compiler_cache
from rocm_wheels.compile.hooks import triton
from rocm_wheels.core import errors, log, parallel
from rocm_wheels.core.files import hash_file
from rocm_wheels.core.workspace import Workspace
from rocm_wheels.models import lock, release_lines, torch_features, versions
from rocm_wheels.models.project import Project
from rocm_wheels.pipeline import build_environment, estimates, outputs, provided_wheels, source_checks
from rocm_wheels.pipeline.machine import MachineResources, measure_machine
from rocm_wheels.pipeline.request import SdkRequest, WheelsRequest
from rocm_wheels.sdk import rocm_sdk
from rocm_wheels.sdk.build_environment import BuildEnvironment, check_environment, query_python_version
from rocm_wheels.sources import source_names
from rocm_wheels.sources.trees import TreeIdentity, list_missing_submodules

_FRONT_END_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in")
_UNKNOWN_IDENTITY = TreeIdentity("", None, "", False, 0)


@dataclass(frozen=True)
class TreeFacts:
    """A source tree as it is now. ``files``: digests of its requirements files, ``requires``: names in them.

    ``version``: the base version, where the recipe says which file has it. ``aotriton``: of torch.
    ``front_end``: digests of the files that a front end goes by, where it is to run for them alone.
    ``names``: a digest of which files there are (``digest_names``), empty where nobody asked; ``missing``:
    the submodules that nobody fetched.
    """

    source: Path
    identity: TreeIdentity
    version: str | None
    aotriton: str | None
    requires: tuple[str, ...]
    files: Mapping[str, str]
    front_end: Mapping[str, str] = field(default_factory=dict)
    names: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class PythonFacts:
    """An interpreter and the build environment that is made of it.

    ``why_install``: why the environment will be made (``""``: it is current or taken as it is). ``ready`` is
    what it has, ``None`` while that is yet to be known. ``provided``: wheels that this run does not build, by
    project: given ones, and those that are installed.
    """

    python: Path
    version: str
    tag: str
    inputs: Mapping[str, str]
    why_install: str
    ready: build_environment.ReadyEnvironment | None
    provided: Mapping[str, provided_wheels.ProvidedWheel]


@dataclass(frozen=True)
class DoneStep:
    """What a step did last: its stamp, and what is wrong with its outputs since."""

    stamp: outputs.StepStamp
    fault: str | None


@dataclass(frozen=True)
class Facts:
    """Everything that the plan of a cell is made of. ``installed_rocm``: that of ``--rocm-path``.

    ``configured_first``: projects whose recipe asks for that, and whose tree has a CMakeLists.txt.
    """

    request: WheelsRequest
    projects: tuple[Project, ...]
    env: Mapping[str, str]
    python: PythonFacts
    trees: Mapping[str, TreeFacts]
    done: Mapping[str, DoneStep]
    machine: MachineResources
    history: estimates.History
    tools: tuple[str, ...] = ()
    cache: compiler_cache.CompilerCache | None = None
    cache_version: str = ""
    cache_settings: str = ""
    triton_environment: Mapping[str, str] = field(default_factory=dict)
    locked: source_checks.LockedBuild | None = None
    installed_rocm: rocm_sdk.RocmSdk | None = None
    configured_first: tuple[str, ...] = ()

    @property
    def workspace(self) -> Workspace:
        """The places of the work directory."""
        return Workspace(self.request.work)

    @property
    def cell(self) -> str:
        """How Python and target set are spelled in the ids of steps: ``cp313t``, ``cp312-gfx942``."""
        return "-".join(filter(None, (self.python.tag, self.request.target_set)))

    @property
    def sdk_request(self) -> SdkRequest:
        """The request of ROCm packages: those of the lock, where it has them."""
        return get_sdk_request(self.request, self.python.version, self.locked)

    @property
    def sdk(self) -> rocm_sdk.RocmSdk | None:
        """The ROCm that is built with; ``None`` while its packages are not installed."""
        return self.installed_rocm if self.python.ready is None else self.python.ready.sdk

    @property
    def locked_tools(self) -> lock.LockedTools | None:
        """What the lock has to build with this Python; ``None`` where it has no tools."""
        return None if self.locked is None else self.locked.get_tools(self.python.version)

    def builds_project(self, name: str) -> bool:
        """Tell whether a project is built in this run."""
        return any(project.name == name for project in self.projects)

    def wheel_suffix(self, rocm: str, name: str) -> str:
        """Return what the version of a project's wheel has behind its base: of ROCm, lock and mode."""
        parts = self.locked.lock.get_local_parts(name) if self.locked is not None else ()
        suffix = versions.add_version_parts(
            versions.make_version_suffix(rocm, self.request.version_suffix), *parts
        )
        return versions.add_asan_label(suffix) if self.request.packaging == "asan" else suffix

    def refresh_after_step(self, step: str, *, environment: bool = False) -> Facts:
        """Return the facts after a step: its stamp; ``environment``: and what the environment has now.

        An environment that was made anew has lost what other steps had put there.
        """
        touched = [step, *self.done] if environment else [step]
        done = {name: done_step for name, done_step in self.done.items() if name not in touched}
        done.update(_read_done_steps(self.workspace, touched))
        python = self.python
        if environment:
            python = inspect_python(self.request, self.projects, self.env, self.locked, environment_made=True)
        return replace(self, done=done, python=python)


def gather_facts(
    request: WheelsRequest,
    projects: Sequence[Project],
    env: Mapping[str, str],
    locked: source_checks.LockedBuild | None = None,
    *,
    trees: Mapping[str, TreeFacts] | None = None,
    looks: Mapping[str, source_checks.SourceLook] = MappingProxyType({}),
    installed: bool = False,
    kind: str | None = None,
) -> Facts:
    """Look everything up; ``trees``: of those of ``projects`` only what is in it counts, already looked at.

    ``looks`` at source trees that nobody changed since. With a ``kind`` of steps only what one of it needs.
    ``installed``: of somebody's own environment (``--current-env``) counts what it has, for ROCm was
    installed there. Raises what the looks raise.
    """
    if request.offline:
        env = {**env, "UV_OFFLINE": "1"}  # as where the plan was made
    cache = None
    if request.cache is not None:
        cache = compiler_cache.find_compiler_cache(request.cache, env)
    workspace, tries_cache = Workspace(request.work), kind in (None, "check-cache")
    return Facts(
        request=request,
        projects=tuple(projects),
        env=env,
        python=inspect_python(
            request, projects, env, locked, environment_made=installed and request.sdk.current_env
        ),
        trees=gather_trees(request, projects, env, locked, looks) if trees is None else trees,
        done=_read_done_steps(workspace, sorted(path.stem for path in workspace.steps.glob("*.json"))),
        machine=measure_machine(env),
        history=estimates.read_history(workspace.runs) if kind is None else {},
        tools=_list_line_tools(request),
        cache=cache,
        cache_version=cache.ask_version(env) if cache is not None and tries_cache else "",
        cache_settings=cache_trust.read_user_settings(cache, env)
        if cache is not None and tries_cache
        else "",
        triton_environment=triton.read_triton_environment(request.sources["triton"])
        if any(project.name == "triton" for project in projects)
        else {},
        locked=locked,
        installed_rocm=None
        if request.sdk.rocm_path is None
        else rocm_sdk.read_installed_sdk(request.sdk.rocm_path, env),
        configured_first=tuple(
            project.name
            for project in projects
            if project.build.configure_first and (request.sources[project.name] / "CMakeLists.txt").is_file()
        ),
    )


def inspect_python(
    request: WheelsRequest,
    projects: Sequence[Project],
    env: Mapping[str, str],
    locked: source_checks.LockedBuild | None = None,
    *,
    environment_made: bool = False,
) -> PythonFacts:
    """Look at the interpreter of a cell and its environment; ``environment_made``: install-rocm is over, and
    its environment counts. Raises UsageError when ROCm is not to be installed and is not there.
    """
    python, workspace = request.sdk.python, Workspace(request.work)
    version = query_python_version(python, env)
    sdk = get_sdk_request(request, version, locked)
    if sdk.current_env:
        environment: BuildEnvironment | None = BuildEnvironment(
            python, python.parent, python.parent.parent, created=False
        )
        inputs = {"requirement": sdk.requirement, "python": str(python)}
        why = "--current-env" if request.install_rocm and not environment_made else ""
    else:
        lookup = check_environment(sdk, workspace, env)
        environment, inputs = lookup.environment, dict(lookup.inputs)
        why = lookup.why if request.install_rocm and not environment_made else ""
        if environment is None and not why:
            raise errors.UsageError(
                f"no build environment with rocm{sdk.rocm_spec} for {python} is in {workspace.environments}",
                tip="add --install-rocm, or name an installed ROCm with --rocm-path; packages of an earlier"
                " run count with the same --rocm and --work-dir",
            )
        if sdk.packages and lookup.why and not request.install_rocm:
            raise errors.SdkError(
                f"the build environment of {python} is {lookup.why}",
                tip="install what it has: --install-rocm",
            )
    ready = None
    if environment is not None and not why:
        ready = build_environment.inspect_environment(environment, sdk, workspace, env)
    tag = make_python_tag(version)
    provided = provided_wheels.find_provided_wheels(request, projects, ready, tag, env)
    return PythonFacts(python, version, tag, inputs, why, ready, provided)


def get_sdk_request(
    request: WheelsRequest, version: str, locked: source_checks.LockedBuild | None
) -> SdkRequest:
    """Return the request of ROCm packages for a Python of a ``version``, under a lock where there is one."""
    return request.sdk if locked is None else locked.lock_sdk(request.sdk, version)


def make_python_tag(version: str) -> str:
    """Return the ABI tag of a Python of a version: ``cp312``, ``cp313t``."""
    major, minor, rest = version.split(".", 2)
    return f"cp{major}{minor}{'t' if rest.endswith('t') else ''}"


def gather_trees(
    request: WheelsRequest,
    projects: Sequence[Project],
    env: Mapping[str, str],
    locked: source_checks.LockedBuild | None,
    looks: Mapping[str, source_checks.SourceLook] = MappingProxyType({}),
    *,
    identified: bool = True,
) -> dict[str, TreeFacts]:
    """Look at source trees side by side; only where ``identified`` at the contents of all their files."""

    def inspect(project: Project) -> TreeFacts:
        look, source = None, request.sources[project.name]
        if identified:
            look = looks.get(project.name) or source_checks.look_at_source(source, env)
            if locked is not None:
                locked.refuse_change(project.name, source, look.identity)
        return _inspect_tree(request, project, source, look)

    trees = parallel.run_in_parallel(inspect, projects, jobs=8)
    return {project.name: tree for project, tree in zip(projects, trees, strict=True)}


def _inspect_tree(
    request: WheelsRequest, project: Project, source: Path, look: source_checks.SourceLook | None
) -> TreeFacts:
    files = [source / name for name in project.build.requirements if (source / name).is_file()]
    return TreeFacts(
        source=source,
        identity=_UNKNOWN_IDENTITY if look is None else look.identity,
        version=versions.read_base_version(source, project.version.file) if project.version.file else None,
        aotriton=torch_features.read_aotriton_release(source) if project.name == "pytorch" else None,
        requires=build_environment.list_required_names(
            build_environment.read_requirement_files(files).requirements
        ),
        files={
            str(file.relative_to(source)): build_environment.read_requirement_files([file]).digest
            for file in files
        },
        front_end={
            path.relative_to(source).as_posix(): hash_file(path)[:12]
            for path in (list_front_end_files(project, source) if request.develop else ())
        },
        names="" if look is None else source_names.digest_names(look.parts),
        missing=() if look is None else tuple(list_missing_submodules(look.parts)),
    )


def list_front_end_files(project: Project, source: Path) -> list[Path]:
    """Return the files of a tree that its front end reads, and ninja does not."""
    names = [f"{folder}/{name}" for folder in project.build.folders for name in _FRONT_END_FILES]
    names += [project.version.file or "", *project.build.requirements]
    paths = dict.fromkeys(source / name for name in names if name)
    return [path for path in paths if path.is_file()]


def _read_done_steps(workspace: Workspace, steps: Sequence[str]) -> dict[str, DoneStep]:
    done: dict[str, DoneStep] = {}
    for step in steps:
        stamp = outputs.read_stamp(workspace.steps, step)
        if stamp is None:
            continue
        checked, fault = stamp.check_outputs()
        # an output whose times alone changed is hashed once; who did the step meanwhile knows better
        if checked != stamp and outputs.read_stamp(workspace.steps, step) == stamp:
            outputs.write_stamp(workspace.steps, checked)
        done[step] = DoneStep(checked, fault)
    return done


def _list_line_tools(request: WheelsRequest) -> tuple[str, ...]:
    """Return the requirements of the build environment by torch's release line: cmake, ninja, …"""
    version = find_torch_version(request)
    if version is None:
        return release_lines.get_newest_line_tools().list_requirements(request.platform)
    line = release_lines.get_line_tools(version)
    if not line.exact:
        log.log_warning(
            f"torch {version} is newer than every release line known; its tools are those of {line.torch}"
        )
    return line.list_requirements(request.platform)


def find_torch_version(request: WheelsRequest) -> str | None:
    """Return the version of the torch that is built or built against; ``None`` when there is neither."""
    torch, provided = request.sources["pytorch"], request.given_wheels.get("pytorch")
    if provided:
        from rocm_wheels.wheels import dist_info

        return dist_info.parse_wheel_name(provided[0].name).version.public
    return versions.read_base_version(torch) if torch.is_dir() else None
