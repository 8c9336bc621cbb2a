"""Check what a wheel is to those who publish it: sizes, licences, credentials, paths of the builder.

Sources: PyPI, "File size limits" and "Project size limits"; GitHub, "About releases" (2 GiB an asset);
Amazon S3, "Uploading objects" and CopyObject (5 GB at once); core metadata specification, License-File (PEP
639).
"""

from __future__ import annotations

import re

from packaging.metadata import parse_email

from rocm_wheels.audit import audited_wheel
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


def check_size(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """Say which places refuse a file of that size. Content of over 50 times the archive is told as damage."""
    for limit, severity, meaning in _LIMITS:
        if wheel.scan.size > limit:
            tip = "`rocm-wheels wheel prune` leaves out targets; debug sections and copies are worth a look"
            return [errors.Finding(severity, f"{tables.format_size(wheel.scan.size)}, {meaning}", tip)]
    return []


def check_licences(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding] | audited_wheel.SkippedCheck:
    """Each file that METADATA names as a licence is there, where PyPI looks for it."""
    where = f"{wheel.dist_info}/METADATA"
    if wheel.scan.metadata is None:
        return audited_wheel.SkippedCheck("METADATA could not be read")
    raw, _ = parse_email(wheel.scan.texts[where])
    files = raw.get("license_files", [])
    version = tuple(int(part) for part in re.findall(r"\d+", raw.get("metadata_version", "0")))
    places = ("licenses/",) if version >= (2, 4) else ("licenses/", "license_files/", "")
    missing = [f for f in files if not any(f"{wheel.dist_info}/{p}{f}" in wheel.members for p in places)]
    severity: errors.Severity = "error" if version >= (2, 4) else "warning"
    return [
        errors.Finding(
            severity, f"names {file} as its licence, which is not inside", _LICENCE_TIP, subject=where
        )
        for file in missing
    ]


_LICENCE_TIP = "PyPI refuses it: the build back end must take the file into *.dist-info/licenses"
_TEST_FOLDER = re.compile(r"(?:^|/)(?:tests?|testing|test[_-]?data|certs?|examples?)(?:/|_)", re.IGNORECASE)


def check_credentials(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """No text file and no library's data holds a token or a private key. Below tests it is a warning."""
    tip = "revoke it: whoever downloads the wheel has it; then find out how it came into the build"
    findings = []
    for member, leak in _list_leaks(wheel, "credential"):
        severity: errors.Severity = "warning" if _TEST_FOLDER.search(member) else "error"
        message = f"holds {leak.name} ({leak.example}{_count_more(leak)})"
        findings.append(errors.Finding(severity, message, tip, subject=member))
    return findings


def check_builder_paths(wheel: audited_wheel.AuditedWheel) -> list[errors.Finding]:
    """Say which libraries hold paths of home folders and CI work folders."""
    tip = "-ffile-prefix-map takes them out, and makes builds of two machines the same"
    return [
        errors.Finding(
            "info", f"holds paths of {leak.name}: {leak.example}{_count_more(leak)}", tip, subject=member
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
