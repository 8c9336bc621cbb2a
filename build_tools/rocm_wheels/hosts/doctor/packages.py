"""Checks of torch and its companions: there once, for this machine, and all of one kind."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocm_wheels.hosts.doctor.subject import Finding, Subject, several
from rocm_wheels.hosts.installed.environment import Environment
from rocm_wheels.hosts.installed.look import Package

_KINDS = {"rocm": "ROCm", "cuda": "CUDA", "xpu": "Intel GPUs (XPU)", "cpu": "processors alone (CPU)"}
_COMPANIONS = ("torchvision", "torchaudio", "torchao", "torchcodec", "apex", "flash-attn", "xformers")
_CONSEQUENCE = {
    "torchvision": "`operator torchvision::nms does not exist`, or a library that cannot be loaded",
    "torchaudio": "a library that cannot be loaded, or a crash",
}
_TAG = re.compile(r"cp(?P<major>[0-9])(?P<minor>[0-9]+)(?P<free>t?)$")


def environment(subject: Subject) -> Iterator[Finding]:
    """Say which Python was looked at."""
    python = subject.installed.environment
    virtual = "a virtual environment" if python.is_virtual else "not a virtual environment"
    yield Finding("ok", f"Python {python.version} ({python.python}, {virtual})")


def torch_build(subject: Subject) -> Iterator[Finding]:
    """See that torch is there and was built for this machine's GPUs."""
    torch = subject.installed.torch
    amd = subject.has_amd
    if torch is None:
        yield Finding("info", "torch is not installed", subject.install("torch", "torchvision", "torchaudio"))
        return
    kind = _KINDS.get(torch.kind, "what cannot be told")
    number = f" {torch.build.version}" if torch.build.version else ""
    by = f" by {torch.distribution.installer}" if torch.distribution.installer else ""
    said = f"torch {torch.version} is built for {kind}{number}"
    if torch.folder is None:
        text = f"torch {torch.version} is listed as installed, and its folder is not there"
        yield Finding("error", text, subject.again("torch"))
    elif torch.kind == "rocm" and not amd and subject.hardware.gpus:
        yield Finding("warning", f"{said}, and there is no AMD GPU here", subject.install("torch"))
    elif torch.kind in {"cuda", "cpu", "xpu"} and amd:
        hint = (
            "" if torch.distribution.label else "; PyPI has no build for ROCm: pip took this one from there"
        )
        yield Finding(
            "error",
            f"{said}, and {subject.place} has an AMD GPU: it is never used{hint}",
            subject.replace_torch(),
        )
    else:
        yield Finding("ok", f"{said} (installed{by}, in {torch.distribution.place})")


def kinds(subject: Subject) -> Iterator[Finding]:
    """See that what is compiled against torch was compiled against this kind of torch."""
    torch = subject.installed.torch
    for name in _COMPANIONS:
        one = subject.installed.get(name)
        if one is None:
            continue
        if torch is None or "unknown" in {one.kind, torch.kind} or one.kind == torch.kind:
            number = f" {one.build.version}" if one.build.version else ""
            kind = f", for {_KINDS[one.kind]}{number}" if one.kind in _KINDS else ""
            yield Finding("ok", f"{name} {one.version}{kind}")
        else:
            yield Finding(
                "error",
                f"{name} {one.version} is built for {_KINDS[one.kind]}, "
                f"torch {torch.version} for {_KINDS[torch.kind]}: "
                + _CONSEQUENCE.get(name, "its own operations fail"),
                subject.pip("uninstall", "-y", name) + " && " + subject.install("torch", name),
            )


def triton(subject: Subject) -> Iterator[Finding]:
    """See that there is one triton, and one for torch's kind."""
    torch, tritons = subject.installed.torch, subject.installed.tritons
    for one in tritons:
        yield Finding("ok", f"{one.name} {one.version}")
    if len(tritons) > 1:
        names = [one.name for one in tritons]
        right = next((one.name for one in tritons if torch and _requires(torch, one.name)), None)
        keep = right or next((one.name for one in tritons if one.kind == "rocm"), names[-1])
        version = next(one.version for one in tritons if one.name == keep)
        yield Finding(
            "error",
            f"{several([str(one.distribution) for one in tritons])}: all of them are the module `triton`, "
            "and the files of the one installed last are over those of the other",
            subject.pip("uninstall", "-y", *names) + " && " + subject.install("torch", f"{keep}=={version}"),
        )
    elif not tritons and torch and torch.kind == "rocm" and _requires(torch, "triton"):
        yield Finding("warning", "there is no triton: torch.compile does not work", subject.install("torch"))


def twice(subject: Subject) -> Iterator[Finding]:
    """Tell of packages that are there twice, and of those of the user that come first."""
    for one in subject.installed.packages:
        if not one.shadowed:
            continue
        first = subject.installed.get(one.name)
        if first and first.distribution.place != one.distribution.place:
            yield Finding(
                "warning",
                f"{one.name} is installed twice: {first.version} in {first.distribution.place} is imported, "
                f"{one.version} in {one.distribution.place} is not",
                "uninstall the one that is wrong, or leave its folder out of PYTHONPATH",
            )
        elif first:
            yield Finding(
                "error",
                f"{one.distribution.place} lists {one.name} as {first.version} and as {one.version}: "
                "an upgrade was broken off",
                subject.again(one.name),
            )
    user = subject.installed.environment.user_site
    for one in subject.installed.packages:
        if (
            user
            and one.distribution.place == user
            and not one.shadowed
            and one.name in {"torch", *_COMPANIONS}
        ):
            yield Finding(
                "warning",
                f"{one.name} {one.version} is in the user's own folder {user}, "
                f"where every Python {_minor(subject)} of this user finds it",
                f"PYTHONNOUSERSITE=1   # or: {subject.pip('uninstall', one.name)}",
            )


def interpreter(subject: Subject) -> Iterator[Finding]:
    """See that what is installed was built for this Python."""
    python = subject.installed.environment
    for one in subject.installed.packages:
        tags = one.distribution.tags
        if not one.shadowed and tags and not any(_fits(tag, python) for tag in tags):
            yield Finding(
                "error",
                f"{one.name} {one.version} is built for {several(sorted(set(tags)), 2)}, "
                f"and this is Python {python.minor}",
                subject.again(one.name),
            )


def unreadable(subject: Subject) -> Iterator[Finding]:
    """Pass on what could not be read of the environment."""
    for fault in subject.installed.faults:
        yield Finding("warning", fault, "delete it, or install the package again")


def _fits(tag: str, python: Environment) -> bool:
    code, _, rest = tag.partition("-")
    abi = rest.partition("-")[0]
    for one in code.split("."):
        found = _TAG.match(one)
        if not found:
            if one in {"py3", f"py{python.version.split('.')[0]}{python.version.split('.')[1]}"}:
                return True
            continue
        major, minor = (int(part) for part in python.version.split(".")[:2])
        if (int(found["major"]), int(found["minor"])) == (major, minor):
            return abi == "none" or abi.endswith("t") == python.free_threaded
        if "abi3" in abi.split(".") and int(found["minor"]) < minor and not python.free_threaded:
            return True
    return False


def _requires(package: Package, name: str) -> bool:
    return any(re.match(rf"[\w-]*{re.escape(name)}\b", line) for line in package.distribution.requires)


def _minor(subject: Subject) -> str:
    return subject.installed.environment.minor
