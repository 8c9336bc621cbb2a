"""Checks of the file name and of the tags: what an installer decides by before it downloads."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.tags import Tag
from packaging.version import InvalidVersion, Version

from rocm_wheels.audit.findings import Finding, Skipped
from rocm_wheels.audit.subject import Subject, accepted_tags, same_name

_SYSTEMS = {"linux": re.compile(r"(many|musl)?linux"), "windows": re.compile(r"win")}
_NO_NAME = Skipped("the file name is not a wheel's")


def check_file_name(wheel: Subject) -> list[Finding] | Skipped:
    """The file name states the recipe's distribution and the version that was built."""
    name = wheel.scan.name
    if name is None:
        return _NO_NAME
    found = []
    project = wheel.expected.project
    if not same_name(name.distribution, project.distribution):
        tip = "the front end built another project: check the folder it ran in"
        found.append(Finding(f"is a wheel of {name.name}; the recipe builds {project.distribution}", tip=tip))
    wanted = wheel.expected.version
    if wanted is not None and not same_version(str(name.version), wanted):
        variables = project.version.variables or (project.version.suffix_variable or "its sources",)
        tip = f"the build did not take the version from {' '.join(variables)}"
        found.append(Finding(f"has version {name.version}; {wanted} was to be built", tip=tip))
    return found


def check_platform(wheel: Subject) -> list[Finding] | Skipped:
    """The tags say the platform that the wheel was built for."""
    if wheel.scan.name is None:
        return _NO_NAME
    platforms = sorted({tag.platform for tag in wheel.scan.name.tags})
    if platforms == ["any"]:
        if not wheel.libraries:
            return []
        tip = "the project's setup must tell that the wheel is not pure"
        return [Finding(f"is tagged for any platform, but holds {wheel.libraries[0]}", tip=tip)]
    wanted = wheel.expected.platform
    other = [name for name in platforms if not _SYSTEMS[wanted].match(name)]
    return [Finding(f"is for {', '.join(other)}; {wanted} was asked for")] if other else []


def check_python(wheel: Subject) -> list[Finding] | Skipped:
    """The interpreter that the wheel was built for accepts its tags."""
    interpreter = wheel.expected.python_tag
    if interpreter is None:
        return Skipped("the interpreter it is for was not stated")
    if wheel.scan.name is None:
        return _NO_NAME
    tags = wheel.scan.name.tags
    if tags & accepted_tags(interpreter, sorted({tag.platform for tag in tags})):
        return []
    tip = "the front end ran with another Python than the build environment's"
    return [Finding(f"{_shown(tags)} does not fit the interpreter {interpreter}", tip=tip)]


def same_version(one: str, other: str) -> bool:
    """Tell whether two spellings are one version (PEP 440); spellings that are none are compared as text."""
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other


def _shown(tags: Iterable[Tag]) -> str:
    return " ".join(sorted(map(str, tags)))
