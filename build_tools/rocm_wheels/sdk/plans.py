"""Plan the wheels of one ROCm distribution: names, requirements, console scripts, files."""

from __future__ import annotations

import filecmp
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.errors import SdkError, UsageError
from rocm_wheels.sdk import tables
from rocm_wheels.sdk.artifacts import (
    Artifact,
    ArtifactEntry,
    ArtifactTree,
    merge_artifacts,
    read_requirements,
    sort_targets,
)
from rocm_wheels.sdk.devel import map_devel_links, list_device_links, write_devel_archive
from rocm_wheels.sdk.runtime import RuntimePackage, list_library_folders, prepare_members, select_runtime
from rocm_wheels.sdk.wheel_writer import LATEST_EPOCH, PlannedMember, WheelPlan

_TEMPLATES = Path(__file__).with_name("templates")
_DESCRIPTION = (
    "Part of ROCm, AMD's platform for computing on GPUs, as Python packages: see `pip install rocm`.\n"
)


@dataclass(frozen=True)
class PackageSet:
    """All that the packages of one distribution have in common."""

    artifacts: tuple[Artifact, ...]
    version: str
    suffix: str
    targets: tuple[str, ...]
    platform_tag: str
    compress_devel: bool
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

    def module_name(self, package: str) -> str:
        """Return the folder that a package's ROCm tree is installed in."""
        return f"_rocm_sdk_{package}{self.suffix}"

    def read_epoch(self, env: Mapping[str, str]) -> int:
        """Return the date of all files, seconds since 1970; UsageError when the environment's is none."""
        text = env.get("SOURCE_DATE_EPOCH", "")
        if text and not (text.isdecimal() and int(text) <= LATEST_EPOCH):
            raise UsageError(
                f"SOURCE_DATE_EPOCH={text!r} is not a number of seconds from 1970 to 2107",
                tip="archives can state no other dates",
            )
        return int(text) if text else self.default_epoch

    def format_pin(self, distribution: str) -> str:
        """Return the requirement on another package of this distribution."""
        return f"{distribution}=={self.version}"

    @property
    def wheel_tag(self) -> str:
        """The wheel tag of packages with files for one platform."""
        return f"py3-none-{self.platform_tag}"


def plan_wheels(package_set: PackageSet, work: Path, env: Mapping[str, str]) -> tuple[WheelPlan, ...]:
    """Plan every wheel; what must be made first (archive, launchers, RPATHs) is made in ``work``."""
    core_from = [a for a in package_set.artifacts if tables.in_core(a)]
    libraries_from = [a for a in package_set.artifacts if tables.in_libraries(a)]
    core = select_runtime(
        package_set.module_name("core"), _drop_folders(merge_artifacts(core_from), tables.CORE_LEFT_OUT)
    )
    libraries = select_runtime(package_set.module_name("libraries"), merge_artifacts(libraries_from))
    devices = {target: _select_device(package_set, target, libraries) for target in package_set.targets}
    homes = list_library_folders(core, libraries)
    _refuse_shared(devices)
    plans = [
        _plan_meta(package_set),
        _plan_core(package_set, core, prepare_members(core, homes, work, env), read_requirements(core_from)),
        _plan_libraries(
            package_set, prepare_members(libraries, homes, work, env), read_requirements(libraries_from)
        ),
        _plan_devel(package_set, [core, libraries], work, env),
    ]
    for target, device in devices.items():
        members = prepare_members(device, list_library_folders(core, libraries, device), work, env)
        plans.append(_plan_device(package_set, target, device, members))
    if profiler_from := [a for a in package_set.artifacts if tables.in_profiler(a)]:
        profiler = select_runtime(f"_rocm_profiler{package_set.suffix}", merge_artifacts(profiler_from))
        members = prepare_members(profiler, list_library_folders(core, profiler), work, env)
        plans.append(_plan_profiler(package_set, profiler, members, read_requirements(profiler_from)))
    return tuple(plans)


def _plan_meta(package_set: PackageSet) -> WheelPlan:
    files = _read_template("rocm_sdk")
    files["rocm_sdk/_dist_info.py"] = _format_python(
        "What this distribution is.", __version__=package_set.version, SUFFIX=package_set.suffix
    )
    devices = {f"device-{target}": (pin,) for target, pin in package_set.device_pins().items()}
    profiler = {"profiler": (_format_profiler_pin(package_set),)} if _has_profiler(package_set) else {}
    all_pins = tuple(pin for pins in devices.values() for pin in pins)
    return WheelPlan(
        distribution="rocm",
        version=package_set.version,
        summary="ROCm as Python packages",
        tag="py3-none-any",
        files=files,
        requires=(package_set.format_pin("rocm-sdk-core"),),
        extras={
            "libraries": (package_set.format_pin("rocm-sdk-libraries"),),
            "devel": (package_set.format_pin("rocm-sdk-devel"),),
            **profiler,
            # A wheel cannot look at the machine that it is installed on: without a name, all of them.
            "device": all_pins,
            "device-all": all_pins,
            **devices,
        },
        scripts={"rocm-sdk": "rocm_sdk.__main__:main"},
        description=_DESCRIPTION,
    )


def _plan_core(
    package_set: PackageSet,
    core: RuntimePackage,
    members: dict[str, PlannedMember],
    requires: tuple[str, ...],
) -> WheelPlan:
    exe = ".exe" if package_set.platform_tag.startswith("win") else ""
    tools = {name: tool for name, tool in tables.CONSOLE_TOOLS.items() if f"{tool.path}{exe}" in core.files}
    if not tools:
        raise SdkError(
            "the artifacts hold none of ROCm's programs", tip="fetch artifacts like amd-llvm_run_generic"
        )
    files = {
        **_read_template("rocm_sdk_core"),
        **members,
        f"{core.module}/__init__.py": PlannedMember(b""),
        f"{core.module}/share/therock/dist_info.json": PlannedMember(
            (json.dumps({"dist_amdgpu_targets": ";".join(package_set.targets)}) + "\n").encode()
        ),
        "rocm_sdk_core/_tools.py": _format_python(
            "The programs of this package.",
            SUFFIX=package_set.suffix,
            TOOLS={
                name: (tables.name_console_function(name), tool.path, tool.devel)
                for name, tool in tools.items()
            },
        ),
    }
    return WheelPlan(
        distribution="rocm-sdk-core",
        version=package_set.version,
        summary="ROCm: compiler, HIP runtime and tools",
        tag=package_set.wheel_tag,
        files=files,
        requires=requires,
        scripts={name: f"rocm_sdk_core._cli:{tables.name_console_function(name)}" for name in tools},
        description=_DESCRIPTION,
    )


def _plan_libraries(
    package_set: PackageSet, members: dict[str, PlannedMember], requires: tuple[str, ...]
) -> WheelPlan:
    module = package_set.module_name("libraries")
    return WheelPlan(
        distribution="rocm-sdk-libraries",
        version=package_set.version,
        summary="ROCm: math and communication libraries",
        tag=package_set.wheel_tag,
        files={
            **_read_template("rocm_sdk_libraries"),
            **members,
            f"{module}/__init__.py": PlannedMember(b""),
        },
        requires=(package_set.format_pin("rocm-sdk-core"), *requires),
        description=_DESCRIPTION,
    )


def _has_profiler(package_set: PackageSet) -> bool:
    """Tell whether there is a ``rocm-profiler``: that of this run, or of Linux, where both publish."""
    in_this_run = any(tables.in_profiler(artifact) for artifact in package_set.artifacts)
    return in_this_run or (package_set.python_platform == "win32" and "linux" in package_set.published)


def _format_profiler_pin(package_set: PackageSet) -> str:
    on_both = len({package_set.python_platform, *package_set.published}) > 1
    return package_set.format_pin("rocm-profiler") + ('; sys_platform == "linux"' if on_both else "")


def _plan_profiler(
    package_set: PackageSet,
    profiler: RuntimePackage,
    members: dict[str, PlannedMember],
    requires: tuple[str, ...],
) -> WheelPlan:
    tools = {}
    for path in sorted(profiler.files):
        if path.startswith(tables.PROFILER_TOOLS):
            name = path.rpartition("/")[2]
            program = f"{tables.PROFILER_PROGRAMS}/{name}"
            tools[name] = (tables.name_console_function(name), program if program in profiler.files else path)
    files = {
        **_read_template("rocm_profiler"),
        **members,
        f"{profiler.module}/__init__.py": PlannedMember(b""),
        "rocm_profiler/_tools.py": _format_python(
            "The programs of this package.", SUFFIX=package_set.suffix, TOOLS=tools
        ),
    }
    return WheelPlan(
        distribution="rocm-profiler",
        version=package_set.version,
        summary="ROCm: rocprofiler-systems and rocprofiler-compute",
        tag=package_set.wheel_tag,
        files=files,
        requires=(package_set.format_pin("rocm-sdk-core"), *requires),
        scripts={name: f"rocm_profiler._cli:{function}" for name, (function, _) in tools.items()},
        description=_DESCRIPTION,
    )


def _select_device(package_set: PackageSet, target: str, libraries: RuntimePackage) -> RuntimePackage:
    """Choose a target's files, which are installed into the tree of the libraries package."""
    tree = merge_artifacts(a for a in package_set.artifacts if tables.in_device(a, target))
    chosen = select_runtime(libraries.module, tree)
    for relative, payload in chosen.files.items():
        other = libraries.files.get(relative)
        if other is not None and not filecmp.cmp(other.path, payload.path, shallow=False):
            raise SdkError(
                f"{tree[relative].artifact} holds {relative}, which rocm-sdk-libraries has otherwise",
                tip="two packages cannot install the same file; the artifacts are of different builds",
            )
    files = {path: payload for path, payload in chosen.files.items() if path not in libraries.files}
    if not files:
        raise SdkError(f"the artifacts for {target} are empty", tip="fetch them again")
    return RuntimePackage(libraries.module, files)


def _refuse_shared(devices: Mapping[str, RuntimePackage]) -> None:
    """Refuse a path that two targets fill differently: the last one installed would win."""
    first: dict[str, tuple[str, Path]] = {}
    for target, device in devices.items():
        for relative, payload in device.files.items():
            other, path = first.setdefault(relative, (target, payload.path))
            if other != target and not filecmp.cmp(path, payload.path, shallow=False):
                raise SdkError(
                    f"the artifacts for {other} and for {target} hold different files for {relative}",
                    tip="both are installed into one tree; package one of them with --targets",
                )


def _plan_device(
    package_set: PackageSet, target: str, device: RuntimePackage, members: dict[str, PlannedMember]
) -> WheelPlan:
    links = {"version": package_set.version, "links": list_device_links(tuple(device.files), device.module)}
    manifest = f"{device.module}/.devel_links/{target}.json"
    needed = read_requirements(a for a in package_set.artifacts if tables.in_device(a, target))
    return WheelPlan(
        distribution=f"rocm-sdk-device-{target}",
        version=package_set.version,
        summary=f"ROCm: device code of the libraries for {target}",
        tag=package_set.wheel_tag,
        files={**members, manifest: PlannedMember((json.dumps(links, indent=1) + "\n").encode())},
        requires=(package_set.format_pin("rocm-sdk-libraries"), *needed),
        description=_DESCRIPTION,
    )


def _plan_devel(
    package_set: PackageSet, packages: list[RuntimePackage], work: Path, env: Mapping[str, str]
) -> WheelPlan:
    tree = merge_artifacts(a for a in package_set.artifacts if tables.in_devel(a))
    module = package_set.module_name("devel")
    name = "_devel.tar.xz" if package_set.compress_devel else "_devel.tar"
    listing = write_devel_archive(
        tree, map_devel_links(tree, packages), module, work / name,
        epoch=package_set.read_epoch(env), compress=package_set.compress_devel,
    )  # fmt: skip
    files = {
        **_read_template("rocm_sdk_devel"),
        f"rocm_sdk_devel/{name}": PlannedMember(work / name),
        "rocm_sdk_devel/_devel_files.txt": PlannedMember("".join(f"{line}\n" for line in listing).encode()),
        "rocm_sdk_devel/_lock": PlannedMember(b""),
    }
    return WheelPlan(
        distribution="rocm-sdk-devel",
        version=package_set.version,
        summary="ROCm: headers, CMake packages and all else that building against it takes",
        tag=package_set.wheel_tag,
        files=files,
        requires=(package_set.format_pin("rocm-sdk-core"), package_set.format_pin("rocm-sdk-libraries")),
        description=_DESCRIPTION,
    )


def _drop_folders(tree: ArtifactTree, folders: tuple[str, ...]) -> dict[str, ArtifactEntry]:
    """Leave out what lies in a folder of one of these names, at any depth."""
    return {path: entry for path, entry in tree.items() if not set(path.split("/")[:-1]) & set(folders)}


def _read_template(package: str) -> dict[str, PlannedMember]:
    return {
        f"{package}/{path.name}": PlannedMember(path.read_bytes())
        for path in sorted((_TEMPLATES / package).glob("*.py"))
    }


def _format_python(docstring: str, **values: object) -> PlannedMember:
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    return PlannedMember("\n".join([f'"""{docstring}"""', "", *lines, ""]).encode())
