"""Why one version sorts above another, and spellings of local parts that sort as they should (PEP 440)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.version import Version

_BUILD_DATE = re.compile(r"(?<![0-9])20[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?![0-9])")
_ROCM_LOCAL = re.compile(r"(?P<before>(?:.*\.)?)(?P<kind>(?:dev)?rocm)(?P<version>[0-9].*)")


@dataclass(frozen=True)
class VersionSpelling:
    """A way to write the local part: its name, the version, and what speaks for and against it."""

    scheme: str
    version: Version
    remark: str


def find_build_date(version: Version) -> str:
    """Return the date of a build that a version states (``20260821``), the last one; "" when none."""
    dates = _BUILD_DATE.findall(str(version))
    return dates[-1] if dates else ""


def explain_order(higher: Version, lower: Version) -> str:
    """Say in words why installers prefer one version to another."""
    if higher.public != lower.public:
        return f"{higher.public} is a later version than {lower.public}"
    higher_parts, lower_parts = (re.split(r"[.]", version.local or "") for version in (higher, lower))
    if not lower.local:
        return "a version with a local part is above the same without"
    for first, second in zip(higher_parts, lower_parts, strict=False):
        if first == second:
            continue
        kinds = first.isdigit(), second.isdigit()
        if all(kinds):
            return f"in the local parts {first} is a higher number than {second}"
        if any(kinds):
            return (
                f"in the local parts {first!r} is a number and {second!r} is text, and numbers are above text"
            )
        return f"in the local parts {first!r} and {second!r} are compared as text, letter by letter"
    return "its local part is the other's and more"


def list_spellings(version: Version) -> list[VersionSpelling]:
    """Return other ways to write a version with ``rocm<version>`` in its local part; none for another."""
    match = _ROCM_LOCAL.fullmatch(version.local or "")
    if not match:
        return []
    rocm, kind, before = match["version"], match["kind"], match["before"]
    date = find_build_date(version)
    listed = [
        (
            "own-field",
            f"{before}{kind}.{rocm}",
            "numbers are compared as numbers; for an index that has nothing of the old spelling",
        ),
        (
            "own-word",
            f"{before}{kind}sdk.{rocm}",
            "likewise, and above every rocm<number> of the same version: for an index that has some",
        ),
    ]
    if date:
        remark = "the latest build is always above; says nothing of ROCm's version to a resolver"
        listed.append(("date-first", f"{date}.{before}{kind}{rocm}", remark))
    return [
        VersionSpelling(name, Version(f"{version.public}+{local}"), remark) for name, local, remark in listed
    ]


def find_sorting_spelling(version: Version, other_versions: Iterable[Version]) -> VersionSpelling | None:
    """Return the first spelling of a version that is above all others."""
    rivals = [other for other in other_versions if other != version]
    return next(
        (
            spelling
            for spelling in list_spellings(version)
            if all(spelling.version > other for other in rivals)
        ),
        None,
    )
