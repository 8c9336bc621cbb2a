"""This machine, or one that somebody states, as a host that wheels are chosen for."""

from __future__ import annotations

import platform as python_platform
import re
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms, platform_tags, sys_tags

from rocm_wheels.errors import UsageError
from rocm_wheels.gpus.gpu import Gpu, Hardware, RocmFound
from rocm_wheels.gpus.look import look
from rocm_wheels.gpus.names import GENERICS, KNOWN, read_name
from rocm_wheels.gpus.properties import supported
from rocm_wheels.gpus.rocm import find_rocm
from rocm_wheels.hosts.choose.host import Host
from rocm_wheels.index.installers import PLATFORMS
from rocm_wheels.variants.providers import minor_version

_SYSTEMS = {"linux": "linux", "win32": "windows", "darwin": "macos"}
_MACHINES = {  # the first one of a platform is meant where none is stated
    "linux": ("x86_64", "aarch64"),
    "windows": ("amd64", "arm64"),
    "macos": ("arm64", "x86_64"),
}
_SPELLINGS = {"x64": ("amd64", "x86_64"), "arm64": ("aarch64",), "aarch64": ("arm64",)}
_SPELLINGS |= {"x86_64": ("amd64",), "amd64": ("x86_64",)}
_OLD_MANYLINUX = re.compile(r"manylinux(?:1|2010)_")
_MACOS = (26, 0)  # of wheels for a stated Mac: the newest that there is
_NONE = "none"
_MOST_NAMED = 6  # targets that are called the same
GFX, ROCM, PYTHON, PLATFORM = "--gfx", "--rocm", "--python", "--platform"


@dataclass(frozen=True)
class Stated:
    """What somebody says of a machine, as it is written; None for what is looked up on this one.

    ``gfx`` has the words of every ``--gfx``; ``enabled`` the namespaces of optional providers that count.
    """

    gfx: tuple[str, ...] = ()
    rocm: str | None = None
    python: str | None = None
    platform: str | None = None
    enabled: tuple[str, ...] = ()


def host_of(env: Mapping[str, str], stated: Stated | None = None) -> Host:
    """Return this machine, with what is stated in place of what is found. UsageError for what is no machine.

    The GPUs are looked for only when none are stated, or the ROCm of this machine is needed.
    """
    asked = stated or Stated()
    own = own_platform()
    system, machine = _platform(asked.platform, own)
    python, full, own_python = _python(asked.python)
    tags = _tags(system, machine, python, own_platform=(system, machine) == own, own_python=own_python)
    hardware = _hardware(asked, env)
    if any(not re.fullmatch(r"[a-z0-9_]+", name) for name in asked.enabled):
        raise UsageError(f"--enable {','.join(asked.enabled)}: a namespace has a-z, 0-9 and _ only")
    return Host(
        platform=system,
        machine=machine,
        python=python,
        tags=tags,
        hardware=hardware,
        supported={"amd": supported(hardware)},
        full_python=full,
        enabled=frozenset(asked.enabled),
    )


def own_platform() -> tuple[str, str]:
    """Return the platform and the kind of processor of this machine."""
    system = _SYSTEMS.get(sys.platform, "linux")
    return system, _spelled(system, python_platform.machine().lower())


def _spelled(system: str, machine: str) -> str:
    """Return a kind of processor as a platform calls it; as it is when no wheels are made for it."""
    same = (machine, *_SPELLINGS.get(machine, ()))
    return next((one for one in same if one in _MACHINES[system]), machine)


def _platform(text: str | None, own: tuple[str, str]) -> tuple[str, str]:
    if text is None:
        return own
    system, _, machine = text.lower().partition("-")
    if system not in _MACHINES:
        raise UsageError(
            f"{PLATFORM} {text}: it is one of {', '.join(_MACHINES)}", tip=f"for example: {PLATFORM} windows"
        )
    if not machine:
        return own if system == own[0] else (system, _MACHINES[system][0])
    machine = _spelled(system, machine)
    if machine not in _MACHINES[system]:
        known = " or ".join(f"{system}-{one}" for one in _MACHINES[system])
        raise UsageError(f"{PLATFORM} {text}: no wheels are made for that processor", tip=f"it is {known}")
    return system, machine


def _python(text: str | None) -> tuple[str, str, bool]:
    """Return ``3.12`` (``3.14t``), the whole version, and whether it is the Python that runs this."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    if text is None:
        return here + threads, _full_python(), True
    found = re.fullmatch(r"(3\.[0-9]{1,2})(\.[0-9]+)?(t?)", text)
    if not found:
        raise UsageError(f"{PYTHON} {text}: it is a version like 3.12", tip=f"for example: {PYTHON} 3.12")
    python = found[1] + found[3]
    own = python == here + threads and sys.implementation.name == "cpython" and not found[2]
    return python, _full_python() if own else found[1] + (found[2] or ""), own


def _full_python() -> str:
    """Return the version of this Python as pip compares it: 3.15.0rc1 passes for 3.15.0."""
    return ".".join(map(str, sys.version_info[:3]))


def _tags(system: str, machine: str, python: str, *, own_platform: bool, own_python: bool) -> tuple[Tag, ...]:
    if own_platform and own_python:
        return tuple(sys_tags())
    platforms = list(platform_tags()) if own_platform else _platform_names(system, machine)
    minor, threads, _ = python.removeprefix("3.").partition("t")
    version = 3, int(minor)
    plain = f"cp3{minor}"
    abi = plain + threads
    named = cpython_tags(version, abis=[abi], platforms=platforms)
    return tuple(dict.fromkeys((*named, *compatible_tags(version, plain, platforms))))


def _platform_names(system: str, machine: str) -> list[str]:
    """Return the platform tags of a stated machine, best first."""
    if system == "macos":
        return list(mac_platforms(_MACOS, machine))
    if system == "windows":
        return [f"win_{machine}"]
    named = [name.replace("x86_64", machine) for name in PLATFORMS["linux"]]
    return named if machine == "x86_64" else [name for name in named if not _OLD_MANYLINUX.match(name)]


def _hardware(asked: Stated, env: Mapping[str, str]) -> Hardware:
    """Return what is stated, and what is found here of the rest."""
    words = [word for text in asked.gfx for part in re.split(r"[,;]", text) for word in _words(part.strip())]
    if asked.gfx and not words:
        raise UsageError(f"{GFX} names no GPU", tip=f"for example: {GFX} gfx942, or {GFX} none")
    gpus = _gpus(words) if words else None
    rocm = _rocm(asked.rocm) if asked.rocm is not None else None
    site = tuple(dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")))
    try:
        if gpus is None:
            found = look(env, site_packages=site)
            return found if rocm is None else replace(found, rocm=rocm)
        if rocm is None:
            rocm, _ = find_rocm(env, platform=sys.platform, site_packages=site)
    except ValueError as cause:
        raise UsageError(str(cause)) from None
    return Hardware(gpus=gpus, rocm=rocm)


def _gpus(words: list[str]) -> tuple[Gpu, ...]:
    if _NONE in words:
        if len(words) > 1:
            raise UsageError(f"{GFX} {','.join(words)}: either GPUs or {_NONE}")
        return ()
    return tuple(_gpu(word, index) for index, word in enumerate(words))


def _words(part: str) -> list[str]:
    """Return what stands between commas: names of targets, or the words of a product (RX 7900 XTX) as one."""
    words = [_NONE if word.lower() == _NONE else word for word in part.split()]
    return words if all(word == _NONE or word.lower().startswith("gfx") for word in words) else [part]


def _target_of(product: str) -> str:
    """Return the one target of a card that is called by its name. UsageError for none and for several."""
    from rocm_wheels.model.compat.pci_find import amd_targets_of

    try:
        targets = amd_targets_of(product)
    except UsageError as cause:
        raise UsageError(f"{GFX}: {cause.message}", tip=cause.tip) from None
    if not targets:
        raise UsageError(f"{GFX} {product}: that is no AMD GPU", tip=f"{GFX} {_NONE} is for no AMD GPU")
    if len(targets) > 1:
        raise UsageError(
            f"{GFX} {product}: GPUs of {len(targets)} targets are called so: {_first(targets)}",
            tip=f"say which; `rocm-wheels compat gpu {product}` tells them apart",
        )
    return targets[0]


def _first(targets: tuple[str, ...]) -> str:
    return ", ".join([*targets[:_MOST_NAMED], *["…"] * (len(targets) > _MOST_NAMED)])


def _gpu(word: str, index: int) -> Gpu:
    if not word.casefold().startswith("gfx"):
        return replace(_gpu(_target_of(word), index), name=word)
    try:
        name = read_name(word)
    except ValueError as cause:
        from rocm_wheels.model.gfx import gfx_families

        families = gfx_families()
        tip = f"of {word} say which: {', '.join(families[word])}" if word in families else f"{GFX} gfx942"
        raise UsageError(f"{GFX} {cause}", tip=tip) from None
    if name in GENERICS:
        raise UsageError(
            f"{GFX} {word} is code for several GPUs, and none of them",
            tip=f"say which: {', '.join(GENERICS[name])}",
        )
    known = name in KNOWN
    notes = ("no GPU of that name is known here",) * (not known)
    if ":" in word:
        notes += (f"{word.partition(':')[2]} is not a property of wheels: they are chosen for {name}",)
    return Gpu("amd", gfx=name, native=name, index=index, source=GFX, confidence="forced", notes=notes)


def _rocm(text: str) -> tuple[RocmFound, ...]:
    if text.lower() == _NONE:
        return ()
    minor_version(text, what=ROCM)
    return (RocmFound(text, "forced", ROCM),)
