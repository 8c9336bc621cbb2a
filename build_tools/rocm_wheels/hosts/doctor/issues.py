"""Known issues of the torch, the ROCm and the GPUs that are here, by the table of ``model.compat.known``."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from rocm_wheels.hosts.doctor.kernels import judge_kernels
from rocm_wheels.hosts.doctor.subject import DoctorFinding, DoctorSubject, join_some
from rocm_wheels.model.compat.known import KnownIssue, get_issue_url, find_issues

_SERIOUS_EFFECTS = ("wrong", "crash", "hang", "kernels", "import")
_CHECKED_EFFECTS = ("kernels", "install", "documentation")  # other checks look, instead of knowing by hearsay
_PLATFORM_NAMES = {"linux": "linux", "win32": "windows"}


def check_known_issues(subject: DoctorSubject) -> Iterator[DoctorFinding]:
    """Tell of issues that somebody has met with this torch, this ROCm and a GPU of this machine."""
    torch = subject.installed.torch
    if torch is None or torch.kind != "rocm":
        return
    version, rocm = parse_optional_version(torch.version), find_rocm_release(subject)
    platform = _PLATFORM_NAMES.get(subject.machine.platform)
    gpus: dict[KnownIssue, list[str]] = {}
    served = [
        verdict.gfx
        for verdict in judge_kernels(subject)
        if verdict.project == "torch" and verdict.support.runs
    ]
    for gfx in served if version and rocm else ():
        for issue in find_issues(version, rocm, gfx, platform):
            if issue.effect not in _CHECKED_EFFECTS or issue.targets:
                gpus.setdefault(issue, []).append(gfx)
    for issue, targets in gpus.items():
        where = f" on {join_some(targets)}" if issue.targets else ""
        state = f"; fixed: {issue.fixed}" if issue.fixed else ""
        message = f"torch {torch.version} with ROCm {rocm}{where}: {issue.title}"
        yield DoctorFinding(
            "warning" if issue.effect in _SERIOUS_EFFECTS else "info",
            f"{message} ({issue.effect}, {issue.kind}{state})",
            issue.workaround or f"read {get_issue_url(issue)}",
            get_issue_url(issue),
        )


def find_rocm_release(subject: DoctorSubject) -> Version | None:
    """Return the release of ROCm that torch was built with, else that of pip's packages, else HIP's."""
    torch = subject.installed.torch
    if torch is None:
        return None
    version = torch.build.version
    if not version or version == torch.build.version_values.get("hip"):
        hip = ".".join(version.split(".")[:2])  # the third part of HIP's version is no release of ROCm
        return parse_optional_version(subject.installed.rocm_version or hip)
    return parse_optional_version(version)


def parse_optional_version(text: str) -> Version | None:
    """Return a version, None for what is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None
