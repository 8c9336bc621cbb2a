"""Plan the wheels of one ROCm distribution: names, requirements, console scripts, files."""

from __future__ import annotations

import filecmp
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.errors import SdkError, UsageError
from rocm_wheels.sdk import tables
from rocm_wheels.sdk.artifacts import Artifact, Entry, Tree, merge, requirements, sort_targets
from rocm_wheels.sdk.devel import devel_links, device_links, write_tar
from rocm_wheels.sdk.runtime import Runtime, library_homes, prepare, runtime
from rocm_wheels.sdk.wheel_writer import LATEST, Member, WheelPlan

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
            pins[target] = self.pin(f"rocm-sdk-device-{target}") + only
        return pins

    def module(self, package: str) -> str:
        """Return the folder that a package's ROCm tree is installed in."""
        return f"_rocm_sdk_{package}{self.suffix}"

    def epoch(self, env: Mapping[str, str]) -> int:
        """Return the date of all files, seconds since 1970; UsageError when the environment's is none."""
        text = env.get("SOURCE_DATE_EPOCH", "")
        if text and not (text.isdecimal() and int(text) <= LATEST):
            raise UsageError(
                f"SOURCE_DATE_EPOCH={text!r} is not a number of seconds from 1970 to 2107",
                tip="archives can state no other dates",
            )
        return int(text) if text else self.default_epoch

    def pin(self, distribution: str) -> str:
        """Return the requirement on another package of this distribution."""
        return f"{distribution}=={self.version}"

    @property
    def platform(self) -> str:
        """The wheel tag of packages with files for one platform."""
        return f"py3-none-{self.platform_tag}"


def plan_wheels(wanted: PackageSet, work: Path, env: Mapping[str, str]) -> tuple[WheelPlan, ...]:
    """Plan every wheel; what must be made first (archive, launchers, RPATHs) is made in ``work``."""
    core_from = [a for a in wanted.artifacts if tables.in_core(a)]
    libraries_from = [a for a in wanted.artifacts if tables.in_libraries(a)]
    core = runtime(wanted.module("core"), _without(merge(core_from), tables.CORE_LEFT_OUT))
    libraries = runtime(wanted.module("libraries"), merge(libraries_from))
    devices = {target: _device(wanted, target, libraries) for target in wanted.targets}
    homes = library_homes(core, libraries)
    _refuse_shared(devices)
    plans = [
        _meta(wanted),
        _core(wanted, core, prepare(core, homes, work, env), requirements(core_from)),
        _libraries(wanted, prepare(libraries, homes, work, env), requirements(libraries_from)),
        _devel(wanted, [core, libraries], work, env),
    ]
    for target, device in devices.items():
        members = prepare(device, library_homes(core, libraries, device), work, env)
        plans.append(_device_wheel(wanted, target, device, members))
    if profiler_from := [a for a in wanted.artifacts if tables.in_profiler(a)]:
        profiler = runtime(f"_rocm_profiler{wanted.suffix}", merge(profiler_from))
        members = prepare(profiler, library_homes(core, profiler), work, env)
        plans.append(_profiler(wanted, profiler, members, requirements(profiler_from)))
    return tuple(plans)


def _meta(wanted: PackageSet) -> WheelPlan:
    files = _template("rocm_sdk")
    files["rocm_sdk/_dist_info.py"] = _python(
        "What this distribution is.", __version__=wanted.version, SUFFIX=wanted.suffix
    )
    devices = {f"device-{target}": (pin,) for target, pin in wanted.device_pins().items()}
    profiler = {"profiler": (_profiler_pin(wanted),)} if _has_profiler(wanted) else {}
    everything = tuple(pin for pins in devices.values() for pin in pins)
    return WheelPlan(
        distribution="rocm",
        version=wanted.version,
        summary="ROCm as Python packages",
        tag="py3-none-any",
        files=files,
        requires=(wanted.pin("rocm-sdk-core"),),
        extras={
            "libraries": (wanted.pin("rocm-sdk-libraries"),),
            "devel": (wanted.pin("rocm-sdk-devel"),),
            **profiler,
            # A wheel cannot look at the machine that it is installed on: without a name, all of them.
            "device": everything,
            "device-all": everything,
            **devices,
        },
        scripts={"rocm-sdk": "rocm_sdk.__main__:main"},
        description=_DESCRIPTION,
    )


def _core(
    wanted: PackageSet, core: Runtime, members: dict[str, Member], requires: tuple[str, ...]
) -> WheelPlan:
    exe = ".exe" if wanted.platform_tag.startswith("win") else ""
    tools = {name: tool for name, tool in tables.TOOLS.items() if f"{tool.path}{exe}" in core.files}
    if not tools:
        raise SdkError(
            "the artifacts hold none of ROCm's programs", tip="fetch artifacts like amd-llvm_run_generic"
        )
    files = {
        **_template("rocm_sdk_core"),
        **members,
        f"{core.module}/__init__.py": Member(b""),
        f"{core.module}/share/therock/dist_info.json": Member(
            (json.dumps({"dist_amdgpu_targets": ";".join(wanted.targets)}) + "\n").encode()
        ),
        "rocm_sdk_core/_tools.py": _python(
            "The programs of this package.",
            SUFFIX=wanted.suffix,
            TOOLS={name: (tables.python_name(name), tool.path, tool.devel) for name, tool in tools.items()},
        ),
    }
    return WheelPlan(
        distribution="rocm-sdk-core",
        version=wanted.version,
        summary="ROCm: compiler, HIP runtime and tools",
        tag=wanted.platform,
        files=files,
        requires=requires,
        scripts={name: f"rocm_sdk_core._cli:{tables.python_name(name)}" for name in tools},
        description=_DESCRIPTION,
    )


def _libraries(wanted: PackageSet, members: dict[str, Member], requires: tuple[str, ...]) -> WheelPlan:
    module = wanted.module("libraries")
    return WheelPlan(
        distribution="rocm-sdk-libraries",
        version=wanted.version,
        summary="ROCm: math and communication libraries",
        tag=wanted.platform,
        files={**_template("rocm_sdk_libraries"), **members, f"{module}/__init__.py": Member(b"")},
        requires=(wanted.pin("rocm-sdk-core"), *requires),
        description=_DESCRIPTION,
    )


def _has_profiler(wanted: PackageSet) -> bool:
    """Tell whether there is a ``rocm-profiler``: that of this run, or of Linux, where both publish."""
    made = any(tables.in_profiler(artifact) for artifact in wanted.artifacts)
    return made or (wanted.python_platform == "win32" and "linux" in wanted.published)


def _profiler_pin(wanted: PackageSet) -> str:
    both = len({wanted.python_platform, *wanted.published}) > 1
    return wanted.pin("rocm-profiler") + ('; sys_platform == "linux"' if both else "")


def _profiler(
    wanted: PackageSet, profiler: Runtime, members: dict[str, Member], requires: tuple[str, ...]
) -> WheelPlan:
    tools = {}
    for path in sorted(profiler.files):
        if path.startswith(tables.PROFILER_TOOLS):
            name = path.rpartition("/")[2]
            beside = f"{tables.PROFILER_PROGRAMS}/{name}"
            tools[name] = (tables.python_name(name), beside if beside in profiler.files else path)
    files = {
        **_template("rocm_profiler"),
        **members,
        f"{profiler.module}/__init__.py": Member(b""),
        "rocm_profiler/_tools.py": _python(
            "The programs of this package.", SUFFIX=wanted.suffix, TOOLS=tools
        ),
    }
    return WheelPlan(
        distribution="rocm-profiler",
        version=wanted.version,
        summary="ROCm: rocprofiler-systems and rocprofiler-compute",
        tag=wanted.platform,
        files=files,
        requires=(wanted.pin("rocm-sdk-core"), *requires),
        scripts={name: f"rocm_profiler._cli:{function}" for name, (function, _) in tools.items()},
        description=_DESCRIPTION,
    )


def _device(wanted: PackageSet, target: str, libraries: Runtime) -> Runtime:
    """Choose a target's files, which are installed into the tree of the libraries package."""
    tree = merge(a for a in wanted.artifacts if tables.in_device(a, target))
    chosen = runtime(libraries.module, tree)
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
    return Runtime(libraries.module, files)


def _refuse_shared(devices: Mapping[str, Runtime]) -> None:
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


def _device_wheel(wanted: PackageSet, target: str, device: Runtime, members: dict[str, Member]) -> WheelPlan:
    links = {"version": wanted.version, "links": device_links(tuple(device.files), device.module)}
    manifest = f"{device.module}/.devel_links/{target}.json"
    needed = requirements(a for a in wanted.artifacts if tables.in_device(a, target))
    return WheelPlan(
        distribution=f"rocm-sdk-device-{target}",
        version=wanted.version,
        summary=f"ROCm: device code of the libraries for {target}",
        tag=wanted.platform,
        files={**members, manifest: Member((json.dumps(links, indent=1) + "\n").encode())},
        requires=(wanted.pin("rocm-sdk-libraries"), *needed),
        description=_DESCRIPTION,
    )


def _devel(wanted: PackageSet, packages: list[Runtime], work: Path, env: Mapping[str, str]) -> WheelPlan:
    tree = merge(a for a in wanted.artifacts if tables.in_devel(a))
    module = wanted.module("devel")
    name = "_devel.tar.xz" if wanted.compress_devel else "_devel.tar"
    listing = write_tar(
        tree, devel_links(tree, packages), module, work / name,
        epoch=wanted.epoch(env), compress=wanted.compress_devel,
    )  # fmt: skip
    files = {
        **_template("rocm_sdk_devel"),
        f"rocm_sdk_devel/{name}": Member(work / name),
        "rocm_sdk_devel/_devel_files.txt": Member("".join(f"{line}\n" for line in listing).encode()),
        "rocm_sdk_devel/_lock": Member(b""),
    }
    return WheelPlan(
        distribution="rocm-sdk-devel",
        version=wanted.version,
        summary="ROCm: headers, CMake packages and all else that building against it takes",
        tag=wanted.platform,
        files=files,
        requires=(wanted.pin("rocm-sdk-core"), wanted.pin("rocm-sdk-libraries")),
        description=_DESCRIPTION,
    )


def _without(tree: Tree, folders: tuple[str, ...]) -> dict[str, Entry]:
    """Leave out what lies in a folder of one of these names, at any depth."""
    return {path: entry for path, entry in tree.items() if not set(path.split("/")[:-1]) & set(folders)}


def _template(package: str) -> dict[str, Member]:
    return {
        f"{package}/{path.name}": Member(path.read_bytes())
        for path in sorted((_TEMPLATES / package).glob("*.py"))
    }


def _python(docstring: str, **values: object) -> Member:
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    return Member("\n".join([f'"""{docstring}"""', "", *lines, ""]).encode())
