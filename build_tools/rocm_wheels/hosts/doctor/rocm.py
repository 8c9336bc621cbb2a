"""Checks of ROCm itself: which ones are here, and whether variables lead to the right one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.gpus.gpu import RocmFound
from rocm_wheels.hosts.doctor.subject import Finding, Subject, several

_ROOTS = ("ROCM_PATH", "ROCM_HOME", "HIP_PATH", "HIP_DEVICE_LIB_PATH")
_PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_SPLIT = re.compile(r"[:;]")
_SDK = "https://github.com/ROCm/TheRock/blob/main/RELEASES.md"


def found(subject: Subject) -> Iterator[Finding]:
    """Say which ROCm is in the environment and which on the system, and whether they differ."""
    pip, system = _pip(subject), _system(subject)
    for one in ([pip] if pip else []) + system:
        yield Finding(
            "ok", f"ROCm {one.version} {'from pip' if one is pip else 'on the system'} ({one.path})"
        )
    if not pip and not system:
        bundled = _bundled(subject)
        said = f"; torch has its own libraries ({bundled})" if bundled else ""
        fix = "" if bundled else "none is needed: wheels of torch for ROCm bring or require what they use"
        text = f"no ROCm in the environment or on the system{said}"
        yield Finding("ok" if bundled else "info", text, fix)
    if pip and system and _minor(pip.version) != _minor(system[0].version):
        leads = [name for name in (*_ROOTS, *_PATHS) if _leads_to(subject.env.get(name, ""), system[0].path)]
        if leads:
            loads = set(leads) & set(_PATHS)
            yield Finding(
                "error" if loads else "warning",
                f"{several(leads)} lead to ROCm {system[0].version} ({system[0].path}), "
                f"and torch uses {pip.version} from pip: "
                + (
                    "libraries of two releases in one process crash"
                    if loads
                    else "compilers take the other one"
                ),
                f"unset {' '.join(leads)}",
            )
        else:
            yield Finding(
                "info",
                f"two releases of ROCm: {pip.version} from pip, which torch uses, "
                f"and {system[0].version} in {system[0].path}",
                f"leave {system[0].path} out of LD_LIBRARY_PATH and ROCM_PATH when torch runs",
            )


def variables(subject: Subject) -> Iterator[Finding]:
    """Tell of variables that lead to a ROCm that is not there, or not the one that torch was built for."""
    for name in _ROOTS:
        value = subject.env.get(name)
        if value and not Path(value).is_dir():
            yield Finding("warning", f"{name}={value}: there is no such folder", f"unset {name}")
    for name in _PATHS:
        gone = [
            one
            for one in _entries(subject.env.get(name, ""))
            if "rocm" in one.lower() and not Path(one).exists()
        ]
        if gone:
            yield Finding(
                "warning" if name == "LD_PRELOAD" else "info",
                f"{name} names {several(gone)}, which is not there",
                f"unset {name}",
            )
    torch, bundled = subject.installed.torch, _bundled(subject)
    places = [one for one in _entries(subject.env.get("LD_LIBRARY_PATH", "")) if _has_hip(Path(one))]
    if torch and torch.kind == "rocm" and bundled and places:
        yield Finding(
            "warning",
            f"LD_LIBRARY_PATH={':'.join(places)} holds other HIP libraries, "
            "which may be loaded instead of torch's own",
            "unset LD_LIBRARY_PATH",
        )


def sdk(subject: Subject) -> Iterator[Finding]:
    """See that the ROCm packages are of one release, and say what compiling extensions takes."""
    parts = {one.name: one for one in subject.installed.packages if re.match(r"rocm(-sdk-.*)?$", one.name)}
    versions = {one.version for one in parts.values()}
    if len(versions) > 1:
        said = several([f"{one.name} {one.version}" for one in parts.values()])
        version = parts["rocm"].version if "rocm" in parts else max(versions)
        yield Finding(
            "error",
            f"the ROCm packages are not of one release: {said}",
            subject.rocm_pip(f"rocm[libraries]=={version}", version),
        )
    torch = subject.installed.torch
    core = parts.get("rocm-sdk-core")
    if core is None or torch is None or torch.kind != "rocm":
        return
    if "rocm-sdk-devel" not in parts:
        yield Finding(
            "info",
            "extensions for torch cannot be compiled here: the ROCm packages are those for running",
            subject.rocm_pip(f"rocm[devel]=={core.version}", core.version) + " && rocm-sdk init",
            _SDK,
        )
        return
    place = parts["rocm-sdk-devel"].distribution.place
    if not (place / "_rocm_sdk_devel").is_dir():
        yield Finding("info", "the development files of ROCm are not unpacked yet", "rocm-sdk init", _SDK)
    elif not subject.env.get("ROCM_HOME"):
        yield Finding(
            "info",
            "to compile extensions, torch must be told where ROCm is",
            'export ROCM_HOME="$(rocm-sdk path --root)"',
            _SDK,
        )
    elif not _leads_to(subject.env["ROCM_HOME"], str(place / "_rocm_sdk_devel")):
        yield Finding(
            "warning",
            f"extensions are compiled with ROCM_HOME={subject.env['ROCM_HOME']}, "
            "and torch runs with the ROCm from pip",
            'export ROCM_HOME="$(rocm-sdk path --root)"',
            _SDK,
        )


def _pip(subject: Subject) -> RocmFound | None:
    version = subject.installed.rocm_version
    if version is None:
        return None
    package = subject.installed.get("rocm-sdk-core") or subject.installed.get("rocm")
    return RocmFound(version, "pip", str(package.distribution.place) if package else "")


def _system(subject: Subject) -> list[RocmFound]:
    return [one for one in subject.hardware.rocm if one.source not in {"pip", "forced"}]


def _bundled(subject: Subject) -> str:
    """Return the HIP runtime inside torch, "" without."""
    torch = subject.installed.torch
    folder = torch.folder / "lib" if torch and torch.folder else None
    return (
        next((str(one) for one in sorted(folder.glob("*amdhip64*"))), "")
        if folder and folder.is_dir()
        else ""
    )


def _leads_to(value: str, path: str) -> bool:
    return any(Path(one) == Path(path) or Path(one).is_relative_to(path) for one in _entries(value))


def _entries(value: str) -> list[str]:
    return [one for one in _SPLIT.split(value) if one]


def _has_hip(folder: Path) -> bool:
    return (folder / "libamdhip64.so").exists() or any(folder.glob("libamdhip64.so.*"))


def _minor(version: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[0-9]+", version)[:2])
