"""Check the file name and the tags: what an installer decides by before it downloads."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.tags import Tag
from packaging.version import InvalidVersion, Version

from rocm_wheels.audit.audited_wheel import AuditedWheel, is_same_name, list_accepted_tags
from rocm_wheels.audit.report import SkippedCheck
from rocm_wheels.core import Finding

_PLATFORM_TAGS = {"linux": re.compile(r"(many|musl)?linux"), "windows": re.compile(r"win")}
_FILE_NAME_UNREAD = SkippedCheck("the file name is not a wheel's")


def check_file_name(wheel: AuditedWheel) -> list[Finding] | SkippedCheck:
    """The file name states the recipe's distribution and the version that was built."""
    name = wheel.scan.name
    if name is None:
        return _FILE_NAME_UNREAD
    findings = []
    project = wheel.expected.project
    if not is_same_name(name.distribution, project.distribution):
        tip = "the front end built another project: check the folder it ran in"
        findings.append(
            Finding("error", f"is a wheel of {name.name}; the recipe builds {project.distribution}", tip)
        )
    expected_version = wheel.expected.version
    if expected_version is not None and not is_same_version(str(name.version), expected_version):
        variables = project.version.variables or (project.version.suffix_variable or "its sources",)
        tip = f"the build did not take the version from {' '.join(variables)}"
        findings.append(
            Finding("error", f"has version {name.version}; {expected_version} was to be built", tip)
        )
    return findings


def check_platform(wheel: AuditedWheel) -> list[Finding] | SkippedCheck:
    """The tags say the platform that the wheel was built for."""
    if wheel.scan.name is None:
        return _FILE_NAME_UNREAD
    platforms = sorted({tag.platform for tag in wheel.scan.name.tags})
    if platforms == ["any"]:
        if not wheel.libraries:
            return []
        tip = "the project's setup must tell that the wheel is not pure"
        return [Finding("error", f"is tagged for any platform, but holds {wheel.libraries[0]}", tip)]
    expected_platform = wheel.expected.platform
    other = [name for name in platforms if not _PLATFORM_TAGS[expected_platform].match(name)]
    return [Finding("error", f"is for {', '.join(other)}, not for {expected_platform}")] if other else []


def check_python(wheel: AuditedWheel) -> list[Finding] | SkippedCheck:
    """The interpreter that the wheel was built for accepts its tags."""
    interpreter = wheel.expected.python_tag
    if interpreter is None:
        return SkippedCheck("the interpreter it is for was not stated")
    if wheel.scan.name is None:
        return _FILE_NAME_UNREAD
    tags = wheel.scan.name.tags
    if tags & list_accepted_tags(interpreter, sorted({tag.platform for tag in tags})):
        return []
    tip = "the front end ran with another Python than the build environment's"
    return [Finding("error", f"{_join_tags(tags)} does not fit the interpreter {interpreter}", tip)]


def is_same_version(version: str, other: str) -> bool:
    """Tell whether two spellings are one version (PEP 440); spellings that are none are compared as text."""
    try:
        return Version(version) == Version(other)
    except InvalidVersion:
        return version == other


def _join_tags(tags: Iterable[Tag]) -> str:
    return " ".join(sorted(map(str, tags)))
