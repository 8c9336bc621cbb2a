"""Known issues of the torch, the ROCm and the GPUs that are here, by the table of ``model.compat.known``."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from rocm_wheels.hosts.doctor.kernels import verdicts
from rocm_wheels.hosts.doctor.subject import Finding, Subject, several
from rocm_wheels.model.compat.known import KnownIssue, address, known_issues

_SERIOUS = ("wrong", "crash", "hang", "kernels", "import")
_READ_HERE = ("kernels", "install", "documentation")  # other checks look, instead of knowing by hearsay
_PLATFORMS = {"linux": "linux", "win32": "windows"}


def known(subject: Subject) -> Iterator[Finding]:
    """Tell of issues that somebody has met with this torch, this ROCm and a GPU of this machine."""
    torch = subject.installed.torch
    if torch is None or torch.kind != "rocm":
        return
    version, rocm = version_of(torch.version), rocm_of(subject)
    platform = _PLATFORMS.get(subject.machine.platform)
    gpus: dict[KnownIssue, list[str]] = {}
    served = [one.gfx for one in verdicts(subject) if one.project == "torch" and one.served.yes]
    for gfx in served if version and rocm else ():
        for issue in known_issues(version, rocm, gfx, platform):
            if issue.effect not in _READ_HERE or issue.targets:
                gpus.setdefault(issue, []).append(gfx)
    for issue, targets in gpus.items():
        where = f" on {several(targets)}" if issue.targets else ""
        state = f"; fixed: {issue.fixed}" if issue.fixed else ""
        said = f"torch {torch.version} with ROCm {rocm}{where}: {issue.title}"
        yield Finding(
            "warning" if issue.effect in _SERIOUS else "info",
            f"{said} ({issue.effect}, {issue.kind}{state})",
            issue.workaround or f"read {address(issue)}",
            address(issue),
        )


def rocm_of(subject: Subject) -> Version | None:
    """Return the release of ROCm that torch was built with, else that of pip's packages, else HIP's."""
    torch = subject.installed.torch
    if torch is None:
        return None
    said = torch.build.version
    if not said or said == torch.build.said.get("hip"):
        hip = ".".join(said.split(".")[:2])  # the third part of HIP's version is no release of ROCm
        return version_of(subject.installed.rocm_version or hip)
    return version_of(said)


def version_of(text: str) -> Version | None:
    """Return a version, None for what is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None
