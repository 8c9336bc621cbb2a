"""What ``doctor`` checks of ROCm itself: which there are, where variables lead, what its packages are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.core.errors import Finding
from rocm_wheels.user.doctor_subject import DoctorSubject, error, info, join_some, ok, warning
from rocm_wheels.wheels import dist_info

_ROOT_VARIABLES = ("ROCM_PATH", "ROCM_HOME", "HIP_PATH", "HIP_DEVICE_LIB_PATH")
_PATH_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_ROCM_PACKAGE = re.compile(r"rocm(-sdk-.*)?")


def check_rocm(subject: DoctorSubject) -> Iterator[Finding]:
    """Say which ROCm is in the environment and which on the system, and whether they differ."""
    package, torch = (
        subject.installed.get("rocm-sdk-core") or subject.installed.get("rocm"),
        subject.installed.torch,
    )
    system = [entry for entry in subject.hardware.rocm if entry.source not in {"pip", "forced"}]
    if package:
        yield ok(f"ROCm {package.version} from pip ({package.site_folder})")
    for entry in system:
        yield ok(f"ROCm {entry.version} on the system ({entry.path})")

    # a torch that was built on an installed ROCm wants that one, or packages of that very version
    if torch is not None and (built_on := dist_info.read_external_rocm(torch.external)):
        releases = [_parse_minor(entry.version) for entry in system]
        if not (package and package.version == built_on) and _parse_minor(built_on) not in releases:
            others = join_some([f"{entry.version} ({entry.path})" for entry in system]) or "none"
            yield error(
                f"torch was built on an installed ROCm {built_on}, and there is {others} here",
                "install that ROCm and let ROCM_PATH name its folder, "
                f"or pip install 'rocm[libraries]=={built_on}'",
            )
        return
    if not package and not system:
        text = "no ROCm in the environment or on the system"
        if bundled := _find_bundled_hip(subject):
            yield ok(f"{text}; torch has its own libraries ({bundled})")
        else:
            yield info(text, "none is needed: wheels of torch for ROCm bring or require what they use")
    if not package or not system or _parse_minor(package.version) == _parse_minor(system[0].version):
        return
    other, path = f"ROCm {system[0].version} ({system[0].path})", system[0].path
    names = (*_ROOT_VARIABLES, *_PATH_VARIABLES)
    leads = [
        name
        for name in names
        if any(Path(entry).is_relative_to(path) for entry in _split_entries(subject, name))
    ]
    text = f"{join_some(leads)} lead to {other}, and torch uses {package.version} from pip: "
    unset = f"unset {' '.join(leads)}"
    if not leads:
        text = f"two releases of ROCm: {package.version} from pip, which torch uses, and {other}"
        yield info(text, f"leave {path} out of LD_LIBRARY_PATH and ROCM_PATH when torch runs")
    elif set(leads) & set(_PATH_VARIABLES):
        yield error(f"{text}libraries of two releases in one process crash", unset)
    else:
        yield warning(f"{text}compilers take the other one", unset)


def check_rocm_variables(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of variables that lead to a ROCm that is not there, or not the one that torch was built for."""
    for name in (*_ROOT_VARIABLES, "LD_PRELOAD"):
        missing = [entry for entry in _split_entries(subject, name) if not Path(entry).exists()]
        if missing and (name in _ROOT_VARIABLES or "rocm" in missing[0].lower()):
            yield warning(f"{name} names {join_some(missing)}, which is not there", f"unset {name}")
    torch, libraries = subject.installed.torch, _split_entries(subject, "LD_LIBRARY_PATH")
    folders = [entry for entry in libraries if any(Path(entry).glob("libamdhip64.so*"))]
    if folders and torch and torch.kind == "rocm" and _find_bundled_hip(subject):
        text = f"LD_LIBRARY_PATH={':'.join(folders)} holds other HIP libraries, "
        yield warning(f"{text}which may be loaded instead of torch's own", "unset LD_LIBRARY_PATH")


def check_rocm_packages(subject: DoctorSubject) -> Iterator[Finding]:
    """See that the ROCm packages are of one release."""
    packages = subject.installed.packages
    parts = {package.name: package.version for package in packages if _ROCM_PACKAGE.fullmatch(package.name)}
    if len(set(parts.values())) > 1:
        listed = join_some([f"{name} {version}" for name, version in parts.items()])
        version = parts.get("rocm") or max(parts.values())
        fix = subject.format_rocm_pip(f"rocm[libraries]=={version}", version)
        yield error(f"the ROCm packages are not of one release: {listed}", fix)


def _find_bundled_hip(subject: DoctorSubject) -> Path | None:
    """Return the HIP runtime inside torch."""
    torch = subject.installed.torch
    folder = torch.folder / "lib" if torch and torch.folder else None
    return min(folder.glob("*amdhip64*"), default=None) if folder else None


def _split_entries(subject: DoctorSubject, name: str) -> list[str]:
    """Return the paths that a variable of the process lists."""
    return [entry for entry in re.split("[:;]", subject.env.get(name, "")) if entry]


def _parse_minor(version: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[0-9]+", version)[:2])


CHECKS = (
    check_rocm,
    check_rocm_variables,
    check_rocm_packages,
)
