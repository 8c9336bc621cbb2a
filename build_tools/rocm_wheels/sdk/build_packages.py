"""Make the ROCm packages from artifacts: read, check, plan names, requirements, console scripts and files,
write, publish.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.core import environment_numbers, errors, log, parallel, tables
from rocm_wheels.core.files import lock_folder
from rocm_wheels.sdk import package_contents, rocm_prefix
from rocm_wheels.sdk.artifacts import (
    Artifact,
    ArtifactEntry,
    ArtifactTree,
    list_targets,
    merge_artifacts,
    read_artifacts,
    read_requirements,
    sort_targets,
)
from rocm_wheels.wheels import wheel_writer

_TEMPLATES = Path(__file__).with_name("templates")
_DESCRIPTION = (
    "Part of ROCm, AMD's platform for computing on GPUs, as Python packages: see `pip install rocm`.\n"
)


@dataclass(frozen=True)
class PackageSet:
    """All that the packages of one distribution have in common."""

    artifacts: tuple[Artifact, ...]
    version: str
    targets: tuple[str, ...]
    platform_tag: str
    default_epoch: int
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def python_platform(self) -> str:
        """What ``sys.platform`` is where the packages are installed."""
        return "win32" if self.platform_tag.startswith("win") else "linux"

    def device_pins(self) -> dict[str, str]:
        """Return the requirement on the package of every target, of either platform.

        One that a platform has not is required on the other alone; the same families on both platforms give
        the same requirements.
        """
        by_platform = {self.python_platform: self.targets, **self.published}
        pins = {}
        for target in sort_targets(target for targets in by_platform.values() for target in targets):
            having = [platform for platform, targets in by_platform.items() if target in targets]
            only = f'; sys_platform == "{having[0]}"' if len(having) < len(by_platform) else ""
            pins[target] = self.format_pin(f"rocm-sdk-device-{target}") + only
        return pins

    def read_epoch(self, env: Mapping[str, str]) -> int:
        """Return the date of all files, seconds since 1970; UsageError when the environment's is none."""
        epoch = environment_numbers.read_number(env, "SOURCE_DATE_EPOCH")
        return self.default_epoch if epoch is None else epoch

    def format_pin(self, distribution: str) -> str:
        """Return the requirement on another package of this distribution."""
        return f"{distribution}=={self.version}"

    def plan(
        self,
        distribution: str,
        summary: str,
        files: Mapping[str, wheel_writer.PlannedMember],
        requires: Sequence[str] = (),
        *,
        scripts: Mapping[str, str] | None = None,
        extras: Mapping[str, tuple[str, ...]] | None = None,
        any_platform: bool = False,
    ) -> wheel_writer.WheelPlan:
        """Return the plan of one wheel of this distribution."""
        return wheel_writer.WheelPlan(
            distribution=distribution,
            version=self.version,
            summary=summary,
            tag="py3-none-any" if any_platform else f"py3-none-{self.platform_tag}",
            files=files,
            requires=tuple(requires),
            extras=extras or {},
            scripts=scripts or {},
            description=_DESCRIPTION,
        )


def plan_wheels(
    package_set: PackageSet, work: Path, env: Mapping[str, str]
) -> tuple[wheel_writer.WheelPlan, ...]:
    """Plan every wheel; what must be made first (archive, launchers, RPATHs) is made in ``work``."""
    core_from = [a for a in package_set.artifacts if package_contents.in_core(a)]
    libraries_from = [a for a in package_set.artifacts if package_contents.in_libraries(a)]
    profiler_from = [a for a in package_set.artifacts if package_contents.in_profiler(a)]
    core = package_contents.select_runtime(
        "_rocm_sdk_core",
        _drop_folders(merge_artifacts(core_from), package_contents.CORE_LEFT_OUT),
    )
    libraries = package_contents.select_runtime("_rocm_sdk_libraries", merge_artifacts(libraries_from))
    devices = {target: _select_device(package_set, target, libraries) for target in package_set.targets}
    _refuse_shared(devices)

    def prepare(
        package: package_contents.RuntimePackage, *others: package_contents.RuntimePackage
    ) -> dict[str, wheel_writer.PlannedMember]:
        homes = package_contents.list_library_folders(*others)
        return package_contents.prepare_members(package, homes, work, env)

    core_pin, libraries_pin = map(package_set.format_pin, ("rocm-sdk-core", "rocm-sdk-libraries"))
    plans = [
        _plan_meta(package_set, has_profiler=bool(profiler_from)),
        _plan_core(package_set, core, prepare(core, core, libraries), read_requirements(core_from)),
        package_set.plan(
            "rocm-sdk-libraries",
            "ROCm: math and communication libraries",
            {
                **_read_template("rocm_sdk_libraries"),
                **prepare(libraries, core, libraries),
                f"{libraries.module}/__init__.py": wheel_writer.PlannedMember(b""),
            },
            [core_pin, *read_requirements(libraries_from)],
        ),
        _plan_devel(package_set, [core, libraries], work, env),
    ]
    for target, device in devices.items():
        links = package_contents.list_device_links(tuple(device.files), device.module)
        manifest = json.dumps({"version": package_set.version, "links": links}, indent=1)
        device_from = [a for a in package_set.artifacts if package_contents.in_device(a, target)]
        plans.append(
            package_set.plan(
                f"rocm-sdk-device-{target}",
                f"ROCm: device code of the libraries for {target}",
                {
                    **prepare(device, core, libraries, device),
                    f"{device.module}/.devel_links/{target}.json": wheel_writer.PlannedMember(
                        f"{manifest}\n".encode()
                    ),
                },
                [libraries_pin, *read_requirements(device_from)],
            )
        )
    if profiler_from:
        profiler = package_contents.select_runtime("_rocm_profiler", merge_artifacts(profiler_from))
        requires = [core_pin, *read_requirements(profiler_from)]
        plans.append(_plan_profiler(package_set, profiler, prepare(profiler, core, profiler), requires))
    return tuple(plans)


def _plan_meta(package_set: PackageSet, *, has_profiler: bool) -> wheel_writer.WheelPlan:
    """Plan ``rocm``. It has the extra of the profiler where one is made here, or on Linux beside this."""
    files = _read_template("rocm_sdk")
    files["rocm_sdk/_dist_info.py"] = _format_python(
        "What this distribution is.", __version__=package_set.version
    )
    pins = {name: package_set.format_pin(f"rocm-sdk-{name}") for name in ("core", "libraries", "devel")}
    extras: dict[str, tuple[str, ...]] = {"libraries": (pins["libraries"],), "devel": (pins["devel"],)}
    if has_profiler or (package_set.python_platform == "win32" and "linux" in package_set.published):
        on_both = len({package_set.python_platform, *package_set.published}) > 1
        only = '; sys_platform == "linux"' if on_both else ""
        extras["profiler"] = (package_set.format_pin("rocm-profiler") + only,)
    devices = package_set.device_pins()
    # A wheel cannot look at the machine that it is installed on: without a name, all of them.
    extras["device"] = extras["device-all"] = tuple(devices.values())
    extras |= {f"device-{target}": (pin,) for target, pin in devices.items()}
    return package_set.plan(
        "rocm",
        "ROCm as Python packages",
        files,
        [pins["core"]],
        scripts={"rocm-sdk": "rocm_sdk.__main__:main"},
        extras=extras,
        any_platform=True,
    )


def _plan_core(
    package_set: PackageSet,
    core: package_contents.RuntimePackage,
    members: dict[str, wheel_writer.PlannedMember],
    requires: tuple[str, ...],
) -> wheel_writer.WheelPlan:
    exe = ".exe" if package_set.platform_tag.startswith("win") else ""
    tools = {
        name: (
            package_contents.name_console_function(name),
            path,
            name not in package_contents.TOOLS_WITHOUT_DEVEL,
        )
        for name, path in package_contents.CONSOLE_TOOLS.items()
        if f"{path}{exe}" in core.files
    }
    if not tools:
        raise errors.SdkError(
            "the artifacts hold none of ROCm's programs", tip="fetch artifacts like amd-llvm_run_generic"
        )
    about = json.dumps({"dist_amdgpu_targets": ";".join(package_set.targets)})
    files = {
        **_read_template("rocm_sdk_core"),
        **members,
        f"{core.module}/__init__.py": wheel_writer.PlannedMember(b""),
        f"{core.module}/{DIST_INFO_FILE}": wheel_writer.PlannedMember(f"{about}\n".encode()),
        "rocm_sdk_core/_tools.py": _format_python("The programs of this package.", TOOLS=tools),
    }
    scripts = {name: f"rocm_sdk_core._cli:{function}" for name, (function, _, _) in tools.items()}
    return package_set.plan(
        "rocm-sdk-core", "ROCm: compiler, HIP runtime and tools", files, requires, scripts=scripts
    )


def _plan_profiler(
    package_set: PackageSet,
    profiler: package_contents.RuntimePackage,
    members: dict[str, wheel_writer.PlannedMember],
    requires: Sequence[str],
) -> wheel_writer.WheelPlan:
    tools = {}
    for path in sorted(profiler.files):
        if path.startswith(package_contents.PROFILER_TOOLS):
            name = path.rpartition("/")[2]
            program = f"{package_contents.PROFILER_PROGRAMS}/{name}"
            function = package_contents.name_console_function(name)
            tools[name] = (function, program if program in profiler.files else path)
    files = {
        **_read_template("rocm_profiler"),
        **members,
        f"{profiler.module}/__init__.py": wheel_writer.PlannedMember(b""),
        "rocm_profiler/_tools.py": _format_python("The programs of this package.", TOOLS=tools),
    }
    scripts = {name: f"rocm_profiler._cli:{function}" for name, (function, _) in tools.items()}
    summary = "ROCm: rocprofiler-systems and rocprofiler-compute"
    return package_set.plan("rocm-profiler", summary, files, requires, scripts=scripts)


def _select_device(
    package_set: PackageSet, target: str, libraries: package_contents.RuntimePackage
) -> package_contents.RuntimePackage:
    """Choose a target's files, which are installed into the tree of the libraries package."""
    tree = merge_artifacts(a for a in package_set.artifacts if package_contents.in_device(a, target))
    chosen = package_contents.select_runtime(libraries.module, tree)
    for relative, payload in chosen.files.items():
        other = libraries.files.get(relative)
        if other is not None and not filecmp.cmp(other.path, payload.path, shallow=False):
            raise errors.SdkError(
                f"{tree[relative].artifact} holds {relative}, which rocm-sdk-libraries has otherwise",
                tip="two packages cannot install the same file; the artifacts are of different builds",
            )
    files = {path: payload for path, payload in chosen.files.items() if path not in libraries.files}
    if not files:
        raise errors.SdkError(f"the artifacts for {target} are empty", tip="fetch them again")
    return package_contents.RuntimePackage(libraries.module, files)


def _refuse_shared(devices: Mapping[str, package_contents.RuntimePackage]) -> None:
    """Refuse a path that two targets fill differently: the last one installed would win."""
    first: dict[str, tuple[str, Path]] = {}
    for target, device in devices.items():
        for relative, payload in device.files.items():
            other, path = first.setdefault(relative, (target, payload.path))
            if other != target and not filecmp.cmp(path, payload.path, shallow=False):
                raise errors.SdkError(
                    f"the artifacts for {other} and for {target} hold different files for {relative}",
                    tip="both are installed into one tree; package one of them with --gfx",
                )


def _plan_devel(
    package_set: PackageSet,
    packages: list[package_contents.RuntimePackage],
    work: Path,
    env: Mapping[str, str],
) -> wheel_writer.WheelPlan:
    tree = merge_artifacts(a for a in package_set.artifacts if package_contents.in_devel(a))
    module = "_rocm_sdk_devel"
    name = "_devel.tar"
    listing = package_contents.write_devel_archive(
        tree, package_contents.map_devel_links(tree, packages), module, work / name,
        epoch=package_set.read_epoch(env),
    )  # fmt: skip
    files = {
        **_read_template("rocm_sdk_devel"),
        f"rocm_sdk_devel/{name}": wheel_writer.PlannedMember(work / name),
        "rocm_sdk_devel/_devel_files.txt": wheel_writer.PlannedMember(
            "".join(f"{line}\n" for line in listing).encode()
        ),
        "rocm_sdk_devel/_lock": wheel_writer.PlannedMember(b""),
    }
    summary = "ROCm: headers, CMake packages and all else that building against it takes"
    requires = [package_set.format_pin("rocm-sdk-core"), package_set.format_pin("rocm-sdk-libraries")]
    return package_set.plan("rocm-sdk-devel", summary, files, requires)


def _drop_folders(tree: ArtifactTree, folders: tuple[str, ...]) -> dict[str, ArtifactEntry]:
    """Leave out what lies in a folder of one of these names, at any depth."""
    return {path: entry for path, entry in tree.items() if not set(path.split("/")[:-1]) & set(folders)}


def _read_template(package: str) -> dict[str, wheel_writer.PlannedMember]:
    return {
        f"{package}/{path.name}": wheel_writer.PlannedMember(path.read_bytes())
        for path in sorted((_TEMPLATES / package).glob("*.py"))
    }


def _format_python(docstring: str, **values: object) -> wheel_writer.PlannedMember:
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    return wheel_writer.PlannedMember("\n".join([f'"""{docstring}"""', "", *lines, ""]).encode())


BUILD_MANIFEST = "share/therock/therock_manifest.json"
DIST_INFO_FILE = "share/therock/dist_info.json"
_PLATFORM_TAG = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class PackageRequest:
    """What to make. Empty ``version``, ``targets``, ``platform_tag``: what artifacts and machine say.

    ``source`` is a folder of artifacts, or with ``installed`` that of an installed ROCm. ``published`` are
    the targets that packages are made for on each platform (``linux``, ``win32``), in this run or another
    one: of this platform all must be there, and the extras of ``rocm`` are those of both.
    """

    source: Path
    destination: Path
    version: str = ""
    targets: tuple[str, ...] = ()
    platform_tag: str = ""
    installed: bool = False
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def build_rocm_packages(request: PackageRequest, env: Mapping[str, str]) -> tuple[Path, ...]:
    """Write the wheels of all ROCm packages into ``<destination>/dist`` and return them, sorted.

    They appear together or not at all; the same artifacts give the same bytes (dates come from
    ``SOURCE_DATE_EPOCH``). SdkError: artifacts that are missing, incomplete or contradict
    each other; UsageError: an option that cannot be used.
    """
    package_set = read_package_set(request)
    destination = request.destination
    dist = destination / "dist"
    with _remove_on_failure(destination), lock_folder(destination, purpose="making ROCm packages"):
        for leftover in destination.glob(".packages-*"):
            shutil.rmtree(leftover)  # of a run that was killed; we are alone here
        with tempfile.TemporaryDirectory(prefix=".packages-", dir=destination) as name:
            work, fresh = Path(name) / "work", Path(name) / "fresh"
            work.mkdir()
            fresh.mkdir()
            epoch = package_set.read_epoch(env)
            plans = plan_wheels(package_set, work, env)
            names = sorted(plan.file_name for plan in plans)
            wheel_writer.refuse_foreign_files(dist, set(names))  # before the long work, not after it
            # zlib and hashlib work outside the interpreter lock, so that threads do
            parallel.run_in_parallel(
                lambda plan: wheel_writer.write_wheel(plan, fresh, epoch=epoch),
                plans,
                jobs=os.cpu_count() or 1,
            )
            remark = "" if wheel_writer.publish_wheels(fresh, dist) else ", as before"
    count = tables.format_count(len(names), "package")
    log.log_note(f"{count} of ROCm {package_set.version} in {dist}{remark}")
    return tuple(dist / name for name in names)


@contextlib.contextmanager
def _remove_on_failure(destination: Path) -> Iterator[None]:
    """Remove a destination that was not there before, when what is done in it fails."""
    existed = destination.exists()
    try:
        yield
    except BaseException:
        if not existed:
            shutil.rmtree(destination, ignore_errors=True)
        raise


def read_package_set(request: PackageRequest) -> PackageSet:
    """Read the artifacts or the installed ROCm; settle version, targets and platform. Nothing is written."""
    if request.installed:
        artifacts = rocm_prefix.read_installed_rocm(request.source)
        build: dict[str, object] = {
            "rocm_package_version": request.version or rocm_prefix.read_rocm_version(request.source)
        }
        log.log_note(
            f"code inside the libraries of {request.source} goes to rocm-sdk-libraries, for all targets"
        )
    else:
        artifacts = read_artifacts(request.source)
        build = _read_build_manifest(artifacts, request.source)
    _require_packages(artifacts, request.source)
    platform_tag = _choose_platform_tag(request.platform_tag)
    requested = _read_requested_targets(request, platform_tag)
    if request.installed:
        rocm_prefix.refuse_unknown_targets(artifacts, request.source, requested)
    package_set = PackageSet(
        artifacts=artifacts,
        version=_choose_version(request.version, build),
        targets=_choose_targets(artifacts, requested),
        platform_tag=platform_tag,
        published=request.published,
        default_epoch=wheel_writer.DEFAULT_EPOCH,
    )
    if request.published:
        available = _list_available_targets(artifacts)
        if unpackaged := [target for target in available if target not in package_set.targets]:
            log.log_warning(
                f"no packages for {', '.join(unpackaged)}, which are of none of the families of this platform"
            )
    for artifact in artifacts:
        if not package_contents.is_known_artifact(artifact) and artifact.component in ("lib", "run"):
            log.log_warning(f"{artifact.folder.name} is of no runtime package; it is in rocm-sdk-devel only")
    return package_set


def _read_build_manifest(artifacts: Sequence[Artifact], folder: Path) -> dict[str, object]:
    bases = [
        base
        for a in artifacts
        if (a.name, a.component, a.generic) == ("base", "lib", True)
        for base in a.bases
    ]
    path = next((base / BUILD_MANIFEST for base in bases if (base / BUILD_MANIFEST).is_file()), None)
    if path is None:
        raise errors.SdkError(
            f"{folder} has no base_lib_generic with {BUILD_MANIFEST}",
            tip="the artifacts are incomplete; fetch base_lib_generic of the same build",
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as cause:
        raise errors.SdkError(f"{path} is not JSON") from cause
    if not isinstance(manifest, dict):
        raise errors.SdkError(f"{path} is not a JSON object")
    flags = manifest.get("flags")
    if isinstance(flags, dict) and flags.get("KPACK_SPLIT_ARTIFACTS") is False:
        raise errors.SdkError(
            f"{path}: the build did not split device code (KPACK_SPLIT_ARTIFACTS is off)",
            tip="packages a gfx target are made from split artifacts only",
        )
    return manifest


def _require_packages(artifacts: Sequence[Artifact], folder: Path) -> None:
    core = [a for a in artifacts if package_contents.in_core(a) and a.name != "base" and a.component != "dev"]
    libraries = [a for a in artifacts if package_contents.in_libraries(a)]
    devel = [a for a in artifacts if a.component == "dev" and a.generic]
    for package, parts, example in (
        ("rocm-sdk-core", core, "core-hip_lib_generic"),
        ("rocm-sdk-libraries", libraries, "blas_lib_generic"),
        ("rocm-sdk-devel", devel, "core-hip_dev_generic"),
    ):
        if not parts:
            raise errors.SdkError(
                f"{folder} has nothing for {package}",
                tip=f"the artifacts are incomplete; it wants some like {example}",
            )


def _list_available_targets(artifacts: Sequence[Artifact]) -> tuple[str, ...]:
    return list_targets(
        a for a in artifacts if a.name in package_contents.LIBRARY_ARTIFACTS and a.component == "lib"
    )


def _choose_version(requested: str, build: dict[str, object]) -> str:
    from packaging.version import InvalidVersion, Version

    text = requested or build.get("rocm_package_version")
    if not text:
        raise errors.SdkError(
            f"{BUILD_MANIFEST} says no rocm_package_version",
            tip="give the version with --version, such as 7.1.0",
        )
    try:
        return str(Version(str(text)))
    except InvalidVersion as cause:
        raise errors.SdkError(
            f"{text!r} is not a version (PEP 440)", tip="such as 7.1.0, 7.2.0rc1 or 7.1.0+local"
        ) from cause


def _choose_targets(artifacts: Sequence[Artifact], requested: tuple[str, ...]) -> tuple[str, ...]:
    """Return the gfx targets to package: those wanted, or all that the build says it has."""
    available = _list_available_targets(artifacts)
    promised = sort_targets(requested) or _read_promised_targets(artifacts) or available
    if missing := [target for target in promised if target not in available]:
        there = ", ".join(available) or "no target"
        raise errors.SdkError(
            f"no artifacts for {', '.join(missing)}; there are some for {there}",
            tip="fetch them, or package fewer targets with --gfx",
        )
    if not promised:
        raise errors.SdkError("no artifact holds device code", tip="fetch some like blas_lib_gfx942")
    if not requested and (extra := [target for target in available if target not in promised]):
        raise errors.SdkError(
            f"there are artifacts for {', '.join(extra)}, of which {DIST_INFO_FILE} says nothing",
            tip="the artifacts are of different builds; or choose with --gfx",
        )
    return promised


def _read_requested_targets(request: PackageRequest, platform_tag: str) -> tuple[str, ...]:
    """Return the targets that packages are wanted for; none: all that there are. Raises UsageError."""
    published = request.published.get("win32" if platform_tag.startswith("win") else "linux", ())
    if published and request.targets:
        raise errors.UsageError(
            "--gfx and the families of this platform say two things", tip="leave one of them out"
        )
    return request.targets or published


def _read_promised_targets(artifacts: Sequence[Artifact]) -> tuple[str, ...]:
    entry = merge_artifacts(a for a in artifacts if package_contents.in_core(a)).get(DIST_INFO_FILE)
    if entry is None:
        return ()
    try:
        text = json.loads(entry.path.read_text(encoding="utf-8"))["dist_amdgpu_targets"]
    except (ValueError, KeyError, TypeError) as cause:
        raise errors.SdkError(f"{entry.path} does not name its dist_amdgpu_targets") from cause
    return sort_targets(word.split(":")[0] for word in re.split(r"[;,\s]+", str(text)) if word)


def _choose_platform_tag(requested: str) -> str:
    import sysconfig

    tag = requested or re.sub(r"[-.]", "_", sysconfig.get_platform())
    if not _PLATFORM_TAG.fullmatch(tag):
        raise errors.UsageError(
            f"--platform-tag {tag!r} is no platform tag", tip="such as linux_x86_64 or win_amd64"
        )
    return tag
