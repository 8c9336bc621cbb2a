"""What ``doctor`` checks of ROCm itself: which there are, where variables lead, what its packages are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.core.errors import Finding
from rocm_wheels.gpus.gpu import RocmInstallation
from rocm_wheels.user.doctor_subject import DoctorSubject, error, info, join_some, ok, warning
from rocm_wheels.wheels import dist_info

_ROOT_VARIABLES = ("ROCM_PATH", "ROCM_HOME", "HIP_PATH", "HIP_DEVICE_LIB_PATH")
_PATH_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_SDK_GUIDE = "https://github.com/ROCm/TheRock/blob/main/RELEASES.md"


def check_rocm(subject: DoctorSubject) -> Iterator[Finding]:
    """Say which ROCm is in the environment and which on the system, and whether they differ."""
    package = subject.installed.get("rocm-sdk-core") or subject.installed.get("rocm")
    pip = RocmInstallation(package.version, "pip", str(package.distribution.site_folder)) if package else None
    system = [entry for entry in subject.hardware.rocm if entry.source not in {"pip", "forced"}]
    if pip:
        yield ok(f"ROCm {pip.version} from pip ({pip.path})")
    for entry in system:
        yield ok(f"ROCm {entry.version} on the system ({entry.path})")

    # a torch that was built on an installed ROCm wants that one, or packages of that very version
    torch = subject.installed.torch
    if torch is not None and (built_on := dist_info.read_external_rocm(torch.distribution.external)):
        is_packaged = pip is not None and pip.version == built_on
        if not is_packaged and _parse_minor(built_on) not in [
            _parse_minor(entry.version) for entry in system
        ]:
            others = join_some([f"{entry.version} ({entry.path})" for entry in system]) or "none"
            yield error(
                f"torch was built on an installed ROCm {built_on}, and there is {others} here",
                "install that ROCm and let ROCM_PATH name its folder, "
                f"or pip install 'rocm[libraries]=={built_on}'",
            )
        return
    if not pip and not system:
        if bundled := _find_bundled_hip(subject):
            yield ok(f"no ROCm in the environment or on the system; torch has its own libraries ({bundled})")
        else:
            tip = "none is needed: wheels of torch for ROCm bring or require what they use"
            yield info("no ROCm in the environment or on the system", tip)
    if not pip or not system or _parse_minor(pip.version) == _parse_minor(system[0].version):
        return
    first = system[0]
    leads = [
        name
        for name in (*_ROOT_VARIABLES, *_PATH_VARIABLES)
        if _leads_to(subject.env.get(name, ""), first.path)
    ]
    if not leads:
        yield info(
            f"two releases of ROCm: {pip.version} from pip, which torch uses, "
            f"and {first.version} in {first.path}",
            f"leave {first.path} out of LD_LIBRARY_PATH and ROCM_PATH when torch runs",
        )
        return
    text = f"{join_some(leads)} lead to ROCm {first.version} ({first.path}), "
    text += f"and torch uses {pip.version} from pip: "
    unset = f"unset {' '.join(leads)}"
    if set(leads) & set(_PATH_VARIABLES):
        yield error(f"{text}libraries of two releases in one process crash", unset)
    else:
        yield warning(f"{text}compilers take the other one", unset)


def check_rocm_variables(subject: DoctorSubject) -> Iterator[Finding]:
    """Tell of variables that lead to a ROCm that is not there, or not the one that torch was built for."""
    for name in _ROOT_VARIABLES:
        value = subject.env.get(name)
        if value and not Path(value).is_dir():
            yield warning(f"{name}={value}: there is no such folder", f"unset {name}")
    for name in _PATH_VARIABLES:
        entries = [entry for entry in _split_entries(subject.env.get(name, "")) if "rocm" in entry.lower()]
        missing = [entry for entry in entries if not Path(entry).exists()]
        if missing:
            tell = warning if name == "LD_PRELOAD" else info
            yield tell(f"{name} names {join_some(missing)}, which is not there", f"unset {name}")
    folders = [
        entry
        for entry in _split_entries(subject.env.get("LD_LIBRARY_PATH", ""))
        if any(Path(entry).glob("libamdhip64.so*"))
    ]
    torch = subject.installed.torch
    if folders and torch and torch.kind == "rocm" and _find_bundled_hip(subject):
        text = f"LD_LIBRARY_PATH={':'.join(folders)} holds other HIP libraries, "
        yield warning(f"{text}which may be loaded instead of torch's own", "unset LD_LIBRARY_PATH")


def check_rocm_packages(subject: DoctorSubject) -> Iterator[Finding]:
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
        fix = subject.format_rocm_pip(f"rocm[libraries]=={version}", version)
        yield error(f"the ROCm packages are not of one release: {listed}", fix)
    torch, core, devel = subject.installed.torch, parts.get("rocm-sdk-core"), parts.get("rocm-sdk-devel")
    if core is None or torch is None or torch.kind != "rocm":
        return
    if devel is None:
        text = "extensions for torch cannot be compiled here: the ROCm packages are those for running"
        fix = subject.format_rocm_pip(f"rocm[devel]=={core.version}", core.version)
        yield info(text, f"{fix} && rocm-sdk init", _SDK_GUIDE)
        return
    folder = devel.distribution.site_folder / "_rocm_sdk_devel"
    home = subject.env.get("ROCM_HOME", "")
    fix = 'export ROCM_HOME="$(rocm-sdk path --root)"'
    if not folder.is_dir():
        yield info("the development files of ROCm are not unpacked yet", "rocm-sdk init", _SDK_GUIDE)
    elif not home:
        yield info("to compile extensions, torch needs ROCM_HOME", fix, _SDK_GUIDE)
    elif not _leads_to(home, str(folder)):
        text = f"extensions are compiled with ROCM_HOME={home}, and torch runs with the ROCm from pip"
        yield warning(text, fix, _SDK_GUIDE)


def _find_bundled_hip(subject: DoctorSubject) -> Path | None:
    """Return the HIP runtime inside torch."""
    torch = subject.installed.torch
    folder = torch.folder / "lib" if torch and torch.folder else None
    return min(folder.glob("*amdhip64*"), default=None) if folder else None


def _leads_to(value: str, path: str) -> bool:
    return any(Path(entry).is_relative_to(path) for entry in _split_entries(value))


def _split_entries(value: str) -> list[str]:
    return [entry for entry in re.split("[:;]", value) if entry]


def _parse_minor(version: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[0-9]+", version)[:2])


CHECKS = (
    check_rocm,
    check_rocm_variables,
    check_rocm_packages,
)
