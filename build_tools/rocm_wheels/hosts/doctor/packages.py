"""Checks of torch and its companions: there once, for this machine, and all of one kind."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocm_wheels.hosts.doctor.subject import DoctorFinding, DoctorSubject, join_some
from rocm_wheels.hosts.installed.environment import PythonEnvironment
from rocm_wheels.hosts.installed.look import InstalledPackage

_KIND_NAMES = {"rocm": "ROCm", "cuda": "CUDA", "xpu": "Intel GPUs (XPU)", "cpu": "processors alone (CPU)"}
_COMPILED_COMPANIONS = (
    "torchvision",
    "torchaudio",
    "torchao",
    "torchcodec",
    "apex",
    "flash-attn",
    "xformers",
)
_MISMATCH_CONSEQUENCES = {
    "torchvision": "`operator torchvision::nms does not exist`, or a library that cannot be loaded",
    "torchaudio": "a library that cannot be loaded, or a crash",
}
_PYTHON_TAG = re.compile(r"cp(?P<major>[0-9])(?P<minor>[0-9]+)(?P<free>t?)$")


def check_environment(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Say which Python was looked at."""
    python = subject.installed.environment
    virtual = "a virtual environment" if python.is_virtual else "not a virtual environment"
    yield DoctorFinding("ok", f"Python {python.version} ({python.python}, {virtual})")


def check_torch_build(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """See that torch is there and was built for this machine's GPUs."""
    torch = subject.installed.torch
    amd = subject.has_amd
    if torch is None:
        yield DoctorFinding(
            "info", "torch is not installed", subject.make_install_line("torch", "torchvision", "torchaudio")
        )
        return
    kind = _KIND_NAMES.get(torch.kind, "what cannot be told")
    number = f" {torch.build.version}" if torch.build.version else ""
    installer = f" by {torch.distribution.installer}" if torch.distribution.installer else ""
    description = f"torch {torch.version} is built for {kind}{number}"
    if torch.folder is None:
        text = f"torch {torch.version} is listed as installed, and its folder is not there"
        yield DoctorFinding("error", text, subject.make_reinstall_line("torch"))
    elif torch.kind == "rocm" and not amd and subject.hardware.gpus:
        yield DoctorFinding(
            "warning", f"{description}, and there is no AMD GPU here", subject.make_install_line("torch")
        )
    elif torch.kind in {"cuda", "cpu", "xpu"} and amd:
        hint = (
            "" if torch.distribution.label else "; PyPI has no build for ROCm: pip took this one from there"
        )
        yield DoctorFinding(
            "error",
            f"{description}, and {subject.machine_name} has an AMD GPU: it is never used{hint}",
            subject.make_replace_torch_line(),
        )
    else:
        yield DoctorFinding(
            "ok", f"{description} (installed{installer}, in {torch.distribution.site_folder})"
        )


def check_build_kinds(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """See that what is compiled against torch was compiled against this kind of torch."""
    torch = subject.installed.torch
    for name in _COMPILED_COMPANIONS:
        package = subject.installed.get(name)
        if package is None:
            continue
        if torch is None or "unknown" in {package.kind, torch.kind} or package.kind == torch.kind:
            number = f" {package.build.version}" if package.build.version else ""
            kind = f", for {_KIND_NAMES[package.kind]}{number}" if package.kind in _KIND_NAMES else ""
            yield DoctorFinding("ok", f"{name} {package.version}{kind}")
        else:
            yield DoctorFinding(
                "error",
                f"{name} {package.version} is built for {_KIND_NAMES[package.kind]}, "
                f"torch {torch.version} for {_KIND_NAMES[torch.kind]}: "
                + _MISMATCH_CONSEQUENCES.get(name, "its own operations fail"),
                subject.make_pip_line("uninstall", "-y", name)
                + " && "
                + subject.make_install_line("torch", name),
            )


def check_triton(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """See that there is one triton, and one for torch's kind."""
    torch, tritons = subject.installed.torch, subject.installed.tritons
    for package in tritons:
        yield DoctorFinding("ok", f"{package.name} {package.version}")
    if len(tritons) > 1:
        names = [package.name for package in tritons]
        required_name = next(
            (package.name for package in tritons if torch and _requires_project(torch, package.name)), None
        )
        keep = required_name or next(
            (package.name for package in tritons if package.kind == "rocm"), names[-1]
        )
        version = next(package.version for package in tritons if package.name == keep)
        yield DoctorFinding(
            "error",
            f"{join_some([str(package.distribution) for package in tritons])}: all of them are the module `triton`, "
            "and the files of the one installed last are over those of the other",
            subject.make_pip_line("uninstall", "-y", *names)
            + " && "
            + subject.make_install_line("torch", f"{keep}=={version}"),
        )
    elif not tritons and torch and torch.kind == "rocm" and _requires_project(torch, "triton"):
        yield DoctorFinding(
            "warning", "there is no triton: torch.compile does not work", subject.make_install_line("torch")
        )


def check_duplicates(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Tell of packages that are there twice, and of those of the user that come first."""
    for package in subject.installed.packages:
        if not package.shadowed:
            continue
        first = subject.installed.get(package.name)
        if first and first.distribution.site_folder != package.distribution.site_folder:
            yield DoctorFinding(
                "warning",
                f"{package.name} is installed twice: {first.version} in {first.distribution.site_folder} is imported, "
                f"{package.version} in {package.distribution.site_folder} is not",
                "uninstall the one that is wrong, or leave its folder out of PYTHONPATH",
            )
        elif first:
            yield DoctorFinding(
                "error",
                f"{package.distribution.site_folder} lists {package.name} as {first.version} and as {package.version}: "
                "an upgrade was broken off",
                subject.make_reinstall_line(package.name),
            )
    user = subject.installed.environment.user_site
    for package in subject.installed.packages:
        if (
            user
            and package.distribution.site_folder == user
            and not package.shadowed
            and package.name in {"torch", *_COMPILED_COMPANIONS}
        ):
            yield DoctorFinding(
                "warning",
                f"{package.name} {package.version} is in the user's own folder {user}, "
                f"where every Python {_get_python_minor(subject)} of this user finds it",
                f"PYTHONNOUSERSITE=1   # or: {subject.make_pip_line('uninstall', package.name)}",
            )


def check_interpreter(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """See that what is installed was built for this Python."""
    python = subject.installed.environment
    for package in subject.installed.packages:
        tags = package.distribution.tags
        if not package.shadowed and tags and not any(_fits_python(tag, python) for tag in tags):
            yield DoctorFinding(
                "error",
                f"{package.name} {package.version} is built for {join_some(sorted(set(tags)), 2)}, "
                f"and this is Python {python.minor}",
                subject.make_reinstall_line(package.name),
            )


def check_unreadable(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Pass on what could not be read of the environment."""
    for fault in subject.installed.faults:
        yield DoctorFinding("warning", fault, "delete it, or install the package again")


def _fits_python(tag: str, python: PythonEnvironment) -> bool:
    code, _, remaining = tag.partition("-")
    abi = remaining.partition("-")[0]
    for interpreter_tag in code.split("."):
        match = _PYTHON_TAG.match(interpreter_tag)
        if not match:
            if interpreter_tag in {"py3", f"py{python.version.split('.')[0]}{python.version.split('.')[1]}"}:
                return True
            continue
        major, minor = (int(part) for part in python.version.split(".")[:2])
        if (int(match["major"]), int(match["minor"])) == (major, minor):
            return abi == "none" or abi.endswith("t") == python.free_threaded
        if "abi3" in abi.split(".") and int(match["minor"]) < minor and not python.free_threaded:
            return True
    return False


def _requires_project(package: InstalledPackage, name: str) -> bool:
    return any(re.match(rf"[\w-]*{re.escape(name)}\b", line) for line in package.distribution.requires)


def _get_python_minor(subject: DoctorSubject) -> str:
    return subject.installed.environment.minor
