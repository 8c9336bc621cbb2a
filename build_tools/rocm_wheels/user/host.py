"""The machine that wheels are chosen for: this one, or one that somebody states.

``make_host`` detects the GPUs unless they are stated, and lists the tags of the Python. The best GPU comes
first: a card before one inside a processor, then AMD's.
"""

from __future__ import annotations

import platform as python_platform
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.tags import Tag, mac_platforms, platform_tags, sys_tags

from rocm_wheels.core import errors
from rocm_wheels.gpus import detect, variables, vendors
from rocm_wheels.gpus.gpu import (
    INTEGRATED_TARGETS,
    INTEL_BEFORE_XE,
    Gpu,
    Hardware,
    RocmInstallation,
    is_known_target,
)
from rocm_wheels.gpus.rocm import find_rocm_installations
from rocm_wheels.index.platform_tags import PLATFORM_TAGS
from rocm_wheels.variants import document, order
from rocm_wheels.wheels import python_tags

if TYPE_CHECKING:
    from rocm_wheels.models.gfx import TargetOverride


@dataclass(frozen=True)
class PosedTarget:
    """A GPU of the target ``native`` that runs another's kernels, when ``line`` tells the ROCm runtime so."""

    native: str
    option: TargetOverride

    @property
    def line(self) -> str:
        """The variable: ``HSA_OVERRIDE_GFX_VERSION=10.3.0``."""
        return f"{variables.OVERRIDE_VARIABLE}={self.option.version}"

    @property
    def ability(self) -> str:
        """What it can, in words."""
        return f"{self.native} runs kernels for {self.option.target}"

    def __str__(self) -> str:
        care = f" ({self.option.care})" if self.option.care else ""
        return f"{self.ability} with {self.line}{care}"


@dataclass(frozen=True)
class TargetHost:
    """A machine and the Python on it.

    ``platform`` is ``linux``, ``windows`` or ``macos``; ``machine`` as Python calls it (``x86_64``,
    ``aarch64``, ``amd64``); ``python`` like ``3.12`` (``3.14t`` without the global lock). ``tags`` are those
    of the wheels that it can use, best first. ``supported`` is what it supports of the namespaces that
    a plugin answers for (``amd``); what a document declares for everybody is found there. ``full_python`` is
    the whole version, for ``Requires-Python`` ("": ``python`` is all that is known). ``posed``: what is
    chosen for a GPU as another one, whose kernels it runs; None: for each as what it is. ``versions`` are
    those of the projects that a wheel goes beside, for what it says of their ABI.
    """

    platform: str
    machine: str
    python: str
    tags: tuple[Tag, ...]
    hardware: Hardware
    supported: order.SupportedFeatures
    full_python: str = ""
    posed: PosedTarget | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def usable_gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that programs may use, best first: AMD's with a known target, Intel's since Xe.

        Older ones of Intel are out: torch supports the Arc families ("Getting Started on Intel GPU").
        """
        return tuple(
            gpu
            for gpu in detect.sort_gpus(self.hardware.gpus)
            if gpu.visible and (gpu.vendor != "amd" or gpu.gfx) and gpu.capability != INTEL_BEFORE_XE
        )

    @property
    def build_kinds(self) -> tuple[str, ...]:
        """What builds for these GPUs are called (``get_build_kind``), for the best GPU first."""
        kinds = [vendors.GPU_VENDORS[gpu.vendor].build_kind for gpu in self.usable_gpus]
        return tuple(dict.fromkeys(filter(None, kinds)))


_SYSTEMS = {"linux": "linux", "win32": "windows", "darwin": "macos"}
_MACHINES = {  # the first one of a platform is meant where none is stated
    "linux": ("x86_64", "aarch64"),
    "windows": ("amd64", "arm64"),
    "macos": ("arm64", "x86_64"),
}
_SPELLINGS = ({"x64", "x86_64", "amd64"}, {"arm64", "aarch64"})  # of one kind of processor
_OLD_MANYLINUX = re.compile(r"manylinux(?:1|2010)_")
_NEWEST_MACOS = (26, 0)  # of wheels for a stated Mac: the newest that there is
_NO_GPU = "none"


@dataclass(frozen=True)
class StatedMachine:
    """What somebody says of a machine, as it is written; None for what is looked up on this one.

    ``gfx`` has the words of every ``--gfx``.
    """

    gfx: tuple[str, ...] = ()
    rocm: str | None = None
    python: str | None = None
    platform: str | None = None


def make_host(env: Mapping[str, str], stated_machine: StatedMachine | None = None) -> TargetHost:
    """Return this machine, with what is stated in place of what is found. UsageError for what is no machine.

    The GPUs are looked for only when none are stated, or the ROCm of this machine is needed.
    """
    statement = stated_machine or StatedMachine()
    detected = detect_platform()
    system, machine = _parse_platform(statement.platform, detected)
    python, full, own_python = _parse_python(statement.python)
    tags = _list_tags(
        system, machine, python, own_platform=(system, machine) == detected, own_python=own_python
    )
    hardware = _resolve_hardware(statement, env)
    return TargetHost(
        platform=system,
        machine=machine,
        python=python,
        tags=tags,
        hardware=hardware,
        supported={"amd": variables.list_supported_features(hardware)},
        full_python=full,
        posed=_find_stated_pose(hardware, env) if statement.gfx and (system, machine) == detected else None,
    )


def _find_stated_pose(stated: Hardware, env: Mapping[str, str]) -> PosedTarget | None:
    """Return the card of this machine that runs kernels for a target that is stated in place of its own."""
    if sys.platform != "linux" or not stated.targets:
        return None
    try:
        gpus = detect.detect_hardware(env, vendors=("amd",)).usable
    except ValueError:  # a variable that states other GPUs: --gfx is what counts
        return None
    natives = (gpu.native for gpu in gpus if gpu.gfx not in stated.targets)
    return find_pose(natives, lambda option: option.target in stated.targets)


def find_pose(natives: Iterable[str | None], accept: Callable[[TargetOverride], bool]) -> PosedTarget | None:
    """Return the first of these cards (by its own target) with an override that is accepted."""
    from rocm_wheels.models.gfx import load_overrides

    for native in filter(None, natives):
        for option in load_overrides().cards.get(native, ()):
            if accept(option):
                return PosedTarget(native, option)
    return None


def detect_platform() -> tuple[str, str]:
    """Return the platform and the kind of processor of this machine."""
    system = _SYSTEMS.get(sys.platform, "linux")
    return system, _normalize_processor(system, python_platform.machine().lower())


def _normalize_processor(system: str, machine: str) -> str:
    """Return a kind of processor as a platform calls it; as it is when no wheels are made for it."""
    alike = next((names for names in _SPELLINGS if machine in names), {machine})
    return next((name for name in _MACHINES[system] if name in alike), machine)


def _parse_platform(text: str | None, detected: tuple[str, str]) -> tuple[str, str]:
    if text is None:
        return detected
    system, _, machine = text.lower().partition("-")
    if system not in _MACHINES:
        raise errors.UsageError(
            f"--platform {text}: it is one of {', '.join(_MACHINES)}", tip="for example: --platform windows"
        )
    if not machine:
        return detected if system == detected[0] else (system, _MACHINES[system][0])
    machine = _normalize_processor(system, machine)
    if machine not in _MACHINES[system]:
        choices = " or ".join(f"{system}-{processor}" for processor in _MACHINES[system])
        raise errors.UsageError(
            f"--platform {text}: no wheels are made for that processor", tip=f"it is {choices}"
        )
    return system, machine


def _parse_python(text: str | None) -> tuple[str, str, bool]:
    """Return ``3.12`` (``3.14t``), the whole version, and whether it is the Python that runs this.

    The version is as pip compares it: 3.15.0rc1 passes for 3.15.0.
    """
    threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    running = f"{sys.version_info.major}.{sys.version_info.minor}{threads}"
    full = ".".join(map(str, sys.version_info[:3]))
    if text is None:
        return running, full, True
    match = re.fullmatch(r"(3\.[0-9]{1,2})(\.[0-9]+)?(t?)", text)
    if not match:
        raise errors.UsageError(
            f"--python {text}: it is a version like 3.12", tip="for example: --python 3.12"
        )
    python = match[1] + match[3]
    is_own = python == running and sys.implementation.name == "cpython" and not match[2]
    return python, full if is_own else match[1] + (match[2] or ""), is_own


def _list_tags(
    system: str, machine: str, python: str, *, own_platform: bool, own_python: bool
) -> tuple[Tag, ...]:
    """Return the tags of wheels for a machine, best first; of a stated platform those of a new system."""
    if own_platform and own_python:
        return tuple(sys_tags())
    if own_platform:
        platforms = list(platform_tags())
    elif system == "macos":
        platforms = list(mac_platforms(_NEWEST_MACOS, machine))
    elif system == "windows":
        platforms = [f"win_{machine}"]
    else:
        platforms = [name.replace("x86_64", machine) for name in PLATFORM_TAGS["linux"]]
        if machine != "x86_64":
            platforms = [name for name in platforms if not _OLD_MANYLINUX.match(name)]
    return python_tags.list_accepted_tags(python, platforms)


def _resolve_hardware(statement: StatedMachine, env: Mapping[str, str]) -> Hardware:
    """Return what is stated, and what is found here of the rest."""
    gpus = _make_stated_gpus(",".join(statement.gfx)) if statement.gfx else None
    rocm: tuple[RocmInstallation, ...] | None = None
    if statement.rocm is not None:
        rocm = ()
        if statement.rocm.lower() != _NO_GPU:
            document.parse_minor_version(statement.rocm, input_name="--rocm")
            rocm = (RocmInstallation(statement.rocm, "forced", "--rocm"),)
    site = tuple(dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")))
    try:
        if gpus is None:
            hardware = detect.detect_hardware(env, site_packages=site)
            return hardware if rocm is None else replace(hardware, rocm=rocm)
        if rocm is None:
            rocm, _ = find_rocm_installations(env, platform=sys.platform, site_packages=site)
        sanitizer = variables.read_sanitizer(env)
    except ValueError as cause:
        raise errors.UsageError(str(cause)) from None
    return Hardware(gpus=detect.sort_gpus(gpus), rocm=rocm, sanitizer=sanitizer)


def _make_stated_gpus(text: str) -> tuple[Gpu, ...]:
    """Return a GPU for each target that is stated, in the order of the statement; none for ``none``."""
    from rocm_wheels.models import gfx

    words = gfx.split_target_words(text)
    if not words:
        raise errors.UsageError("--gfx names no GPU", tip="for example: --gfx gfx942, or --gfx none")
    if _NO_GPU in map(str.lower, words):
        if len(words) > 1:
            raise errors.UsageError(f"--gfx {','.join(words)}: either GPUs or {_NO_GPU}")
        return ()
    gpus: list[Gpu] = []
    for named in gfx.read_gpu_words(text):
        for target in named.targets:
            notes = [] if is_known_target(target) else ["no table here knows it: it is stated as new"]
            if named.features:
                features = named.features[1:]
                notes.append(f"{features} is not a property of wheels: they are chosen for {target}")
            gpu = Gpu("amd", gfx=target, native=target, name=named.card, index=len(gpus), notes=tuple(notes))
            integrated = target in INTEGRATED_TARGETS or None
            gpus.append(replace(gpu, integrated=integrated, source="--gfx", confidence="forced"))
    return tuple(gpus)


def make_markers(host: TargetHost) -> dict[str, str]:
    """Return the markers of a machine (PEP 508) that say what it is."""
    system, os_name, platform = {
        "linux": ("Linux", "posix", "linux"),
        "windows": ("Windows", "nt", "win32"),
        "macos": ("Darwin", "posix", "darwin"),
    }[host.platform]
    python = host.python.removesuffix("t")
    return {
        "os_name": os_name,
        "sys_platform": platform,
        "platform_system": system,
        "platform_machine": host.machine.upper() if host.platform == "windows" else host.machine,
        "python_version": python,
        "python_full_version": host.full_python if host.full_python.count(".") > 1 else f"{python}.0",
    }
