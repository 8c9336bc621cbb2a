"""Check what a wheel is to those who publish it: sizes, licences, credentials, paths of the builder.

Sources: PyPI, "File size limits" and "Project size limits"; GitHub, "About releases" (2 GiB an asset);
Amazon S3, "Uploading objects" and CopyObject (5 GB at once); core metadata specification, License-File (PEP
639).
"""

from __future__ import annotations

import re

from packaging.metadata import parse_email

from rocm_wheels.audit import audited_wheel, definition
from rocm_wheels.core import errors, tables
from rocm_wheels.wheels.leaks import MOST_SEARCHED, Leak

# sizes in bytes, largest first: a wheel is told of the first that it exceeds
_LIMITS: tuple[tuple[int, errors.Severity, str], ...] = (
    (
        5_000_000_000,
        "warning",
        "more than S3 takes or copies at once (5 GB), than a release on GitHub, and PyPI",
    ),
    (
        2 << 30,
        "warning",
        "more than a release on GitHub takes (2 GiB), and PyPI (100 MB unless it is raised)",
    ),
    (100 << 20, "info", "more than PyPI takes unless the project's limit is raised (100 MB)"),
)


@definition.check(
    "RW040 size (warning)",
    why="The upload is refused, when everything else is done.",
    fix="Prune targets, take debug sections out, or ask for a higher limit.",
)
def check_size(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """The file is within the limits of PyPI, GitHub and S3."""
    for limit, severity, meaning in _LIMITS:
        if wheel.scan.size > limit:
            return [errors.Finding(severity, f"{tables.format_size(wheel.scan.size)}, {meaning}")]
    return []


@definition.check(
    "RW044 licences (error)",
    why="PyPI refuses the upload, and licences ask to come with the copy.",
    fix="The build back end must take them into *.dist-info/licenses.",
)
def check_licences(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding] | definition.SkippedCheck:
    """The licence files that METADATA names are inside."""
    where = f"{wheel.dist_info}/METADATA"
    if wheel.scan.metadata is None:
        return definition.SkippedCheck("METADATA could not be read")
    raw, _ = parse_email(wheel.scan.texts[where])
    files = raw.get("license_files", [])
    version = tuple(int(part) for part in re.findall(r"\d+", raw.get("metadata_version", "0")))
    places = ("licenses/",) if version >= (2, 4) else ("licenses/", "license_files/", "")
    missing = [f for f in files if not any(f"{wheel.dist_info}/{p}{f}" in wheel.members for p in places)]
    severity: errors.Severity = "error" if version >= (2, 4) else "warning"
    return [
        errors.Finding(severity, f"names {file} as its licence, which is not inside", subject=where)
        for file in missing
    ]


_TEST_FOLDER = re.compile(r"(?:^|/)(?:tests?|testing|test[_-]?data|certs?|examples?)(?:/|_)", re.IGNORECASE)


@definition.check(
    "RW043 credentials (error)",
    why="Whoever downloads the wheel can use it.",
    fix="Revoke it; then find out how it came into the build.",
)
def check_credentials(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """No token and no private key inside."""
    findings = []
    for member, leak in _list_leaks(wheel, "credential"):
        severity: errors.Severity = "warning" if _TEST_FOLDER.search(member) else "error"
        message = f"holds {leak.name} ({leak.example}{_count_more(leak)})"
        findings.append(errors.Finding(severity, message, subject=member))
    return findings


@definition.check(
    "RW041 builder-paths (info)",
    why="They tell who built it and where, and make builds of two machines differ.",
    fix="Compile with -ffile-prefix-map.",
)
def check_builder_paths(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """No library holds paths of the builder's folders."""
    return [
        errors.Finding(
            "info", f"holds paths of {leak.name}: {leak.example}{_count_more(leak)}", subject=member
        )
        for member, leak in _list_leaks(wheel, "builder-path")
    ]


SEARCHED = f"text files and the data of native libraries, {tables.format_size(MOST_SEARCHED)} of each"
"""What is searched for credentials."""


def _list_leaks(wheel: audited_wheel.AuditedWheel, kind: str) -> list[tuple[str, Leak]]:
    leaks = sorted(wheel.scan.leaks.items())
    return [(member, leak) for member, of_member in leaks for leak in of_member if leak.kind == kind]


def _count_more(leak: Leak) -> str:
    return f", and {leak.count - 1:,} more" if leak.count > 1 else ""
