"""Checks of ROCm itself: which ones are here, and whether variables lead to the right one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.gpus.gpu import RocmInstallation
from rocm_wheels.hosts.doctor.subject import DoctorFinding, DoctorSubject, join_some

_ROOT_VARIABLES = ("ROCM_PATH", "ROCM_HOME", "HIP_PATH", "HIP_DEVICE_LIB_PATH")
_PATH_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_PATH_SEPARATOR = re.compile(r"[:;]")
_SDK_GUIDE = "https://github.com/ROCm/TheRock/blob/main/RELEASES.md"


def check_rocm(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Say which ROCm is in the environment and which on the system, and whether they differ."""
    pip, system = _find_pip_rocm(subject), _list_system_rocm(subject)
    for installation in ([pip] if pip else []) + system:
        yield DoctorFinding(
            "ok",
            f"ROCm {installation.version} {'from pip' if installation is pip else 'on the system'} ({installation.path})",
        )
    if not pip and not system:
        bundled = _find_bundled_hip(subject)
        bundled_text = f"; torch has its own libraries ({bundled})" if bundled else ""
        fix = "" if bundled else "none is needed: wheels of torch for ROCm bring or require what they use"
        text = f"no ROCm in the environment or on the system{bundled_text}"
        yield DoctorFinding("ok" if bundled else "info", text, fix)
    if pip and system and _parse_minor(pip.version) != _parse_minor(system[0].version):
        leads = [
            name
            for name in (*_ROOT_VARIABLES, *_PATH_VARIABLES)
            if _leads_to(subject.env.get(name, ""), system[0].path)
        ]
        if leads:
            loads = set(leads) & set(_PATH_VARIABLES)
            yield DoctorFinding(
                "error" if loads else "warning",
                f"{join_some(leads)} lead to ROCm {system[0].version} ({system[0].path}), "
                f"and torch uses {pip.version} from pip: "
                + (
                    "libraries of two releases in one process crash"
                    if loads
                    else "compilers take the other one"
                ),
                f"unset {' '.join(leads)}",
            )
        else:
            yield DoctorFinding(
                "info",
                f"two releases of ROCm: {pip.version} from pip, which torch uses, "
                f"and {system[0].version} in {system[0].path}",
                f"leave {system[0].path} out of LD_LIBRARY_PATH and ROCM_PATH when torch runs",
            )


def check_rocm_variables(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Tell of variables that lead to a ROCm that is not there, or not the one that torch was built for."""
    for name in _ROOT_VARIABLES:
        value = subject.env.get(name)
        if value and not Path(value).is_dir():
            yield DoctorFinding("warning", f"{name}={value}: there is no such folder", f"unset {name}")
    for name in _PATH_VARIABLES:
        missing = [
            entry
            for entry in _split_entries(subject.env.get(name, ""))
            if "rocm" in entry.lower() and not Path(entry).exists()
        ]
        if missing:
            yield DoctorFinding(
                "warning" if name == "LD_PRELOAD" else "info",
                f"{name} names {join_some(missing)}, which is not there",
                f"unset {name}",
            )
    torch, bundled = subject.installed.torch, _find_bundled_hip(subject)
    folders = [
        entry for entry in _split_entries(subject.env.get("LD_LIBRARY_PATH", "")) if _has_hip(Path(entry))
    ]
    if torch and torch.kind == "rocm" and bundled and folders:
        yield DoctorFinding(
            "warning",
            f"LD_LIBRARY_PATH={':'.join(folders)} holds other HIP libraries, "
            "which may be loaded instead of torch's own",
            "unset LD_LIBRARY_PATH",
        )


def check_rocm_packages(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """See that the ROCm packages are of one release, and say what compiling extensions takes."""
    parts = {
        package.name: package
        for package in subject.installed.packages
        if re.match(r"rocm(-sdk-.*)?$", package.name)
    }
    versions = {package.version for package in parts.values()}
    if len(versions) > 1:
        listed = join_some([f"{package.name} {package.version}" for package in parts.values()])
        version = parts["rocm"].version if "rocm" in parts else max(versions)
        yield DoctorFinding(
            "error",
            f"the ROCm packages are not of one release: {listed}",
            subject.make_rocm_pip_line(f"rocm[libraries]=={version}", version),
        )
    torch = subject.installed.torch
    core = parts.get("rocm-sdk-core")
    if core is None or torch is None or torch.kind != "rocm":
        return
    if "rocm-sdk-devel" not in parts:
        yield DoctorFinding(
            "info",
            "extensions for torch cannot be compiled here: the ROCm packages are those for running",
            subject.make_rocm_pip_line(f"rocm[devel]=={core.version}", core.version) + " && rocm-sdk init",
            _SDK_GUIDE,
        )
        return
    folder = parts["rocm-sdk-devel"].distribution.site_folder
    if not (folder / "_rocm_sdk_devel").is_dir():
        yield DoctorFinding(
            "info", "the development files of ROCm are not unpacked yet", "rocm-sdk init", _SDK_GUIDE
        )
    elif not subject.env.get("ROCM_HOME"):
        yield DoctorFinding(
            "info",
            "to compile extensions, torch must be told where ROCm is",
            'export ROCM_HOME="$(rocm-sdk path --root)"',
            _SDK_GUIDE,
        )
    elif not _leads_to(subject.env["ROCM_HOME"], str(folder / "_rocm_sdk_devel")):
        yield DoctorFinding(
            "warning",
            f"extensions are compiled with ROCM_HOME={subject.env['ROCM_HOME']}, "
            "and torch runs with the ROCm from pip",
            'export ROCM_HOME="$(rocm-sdk path --root)"',
            _SDK_GUIDE,
        )


def _find_pip_rocm(subject: DoctorSubject) -> RocmInstallation | None:
    version = subject.installed.rocm_version
    if version is None:
        return None
    package = subject.installed.get("rocm-sdk-core") or subject.installed.get("rocm")
    return RocmInstallation(version, "pip", str(package.distribution.site_folder) if package else "")


def _list_system_rocm(subject: DoctorSubject) -> list[RocmInstallation]:
    return [
        installation for installation in subject.hardware.rocm if installation.source not in {"pip", "forced"}
    ]


def _find_bundled_hip(subject: DoctorSubject) -> str:
    """Return the HIP runtime inside torch, "" without."""
    torch = subject.installed.torch
    folder = torch.folder / "lib" if torch and torch.folder else None
    return (
        next((str(library) for library in sorted(folder.glob("*amdhip64*"))), "")
        if folder and folder.is_dir()
        else ""
    )


def _leads_to(value: str, path: str) -> bool:
    return any(
        Path(entry) == Path(path) or Path(entry).is_relative_to(path) for entry in _split_entries(value)
    )


def _split_entries(value: str) -> list[str]:
    return [entry for entry in _PATH_SEPARATOR.split(value) if entry]


def _has_hip(folder: Path) -> bool:
    return (folder / "libamdhip64.so").exists() or any(folder.glob("libamdhip64.so.*"))


def _parse_minor(version: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[0-9]+", version)[:2])
