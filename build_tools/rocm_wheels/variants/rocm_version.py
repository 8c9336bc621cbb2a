"""The ROCm version that a wheel was made with, as its own metadata states it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.errors import DataError
from rocm_wheels.variants.providers import parse_minor_version

_ROCM_LOCAL = re.compile(r"(?:^|\.)(?:(?:dev)?rocm(?P<version>[0-9][0-9a-z.]*)|cpu)$")


def strip_rocm_local(local: str | None) -> str:
    """Return a local version without what tells builds apart: ``git1a2b.rocm7.2.0`` → ``git1a2b``.

    Variants are wheels of one version; with ``+rocm7.2`` or ``+cpu`` each would be a version of its own, and
    an installer chooses the version before it looks at variants.
    """
    return _ROCM_LOCAL.sub("", local or "")


def is_rocm_package(name: str) -> bool:
    """Tell whether a distribution is one of the ROCm packages themselves."""
    return canonicalize_name(name) == "rocm" or canonicalize_name(name).startswith("rocm-sdk")


def find_rocm_versions(local: str | None, requirements: Sequence[str]) -> dict[str, str]:
    """Return major.minor of ROCm by the place that states it: the local version, exact requirements."""
    versions = {}
    match = _ROCM_LOCAL.search(local or "")
    if match and match["version"] and re.match(r"[0-9]+\.[0-9]", match["version"]):
        versions[f"its version +{local}"] = ".".join(match["version"].split(".")[:2])
    for text in requirements:
        try:
            requirement = Requirement(text)
        except (InvalidRequirement, RecursionError):
            continue  # a variant marker: restamp is there for those
        for specifier in requirement.specifier if is_rocm_package(requirement.name) else ():
            if specifier.operator == "==" and "*" not in specifier.version:
                versions[f"its requirement {text}"] = parse_minor_version(specifier.version, input_name=text)
    return versions


def read_rocm_version(
    wheel: str, local: str | None, requirements: Sequence[str], requested: str | None
) -> str:
    """Return the ROCm version (major.minor) of a wheel; ``requested`` is ``--rocm-version``.

    DataError when nothing states one, or when two places differ.
    """
    versions = find_rocm_versions(local, requirements)
    if requested is not None:
        versions = {
            f"--rocm-version {requested}": parse_minor_version(requested, input_name="--rocm-version"),
            **versions,
        }
    if not versions:
        raise DataError(
            f"{wheel} does not say which ROCm it was made with: neither its version nor a requirement does",
            tip="name it: --rocm-version 7.2",
        )
    if len(set(versions.values())) > 1:
        statements = "; ".join(f"{origin} says {version}" for origin, version in versions.items())
        raise DataError(f"{wheel}: its ROCm version is not one: {statements}")
    return next(iter(versions.values()))


def strip_local_pins(requirements: Sequence[str]) -> list[str]:
    """Return requirements with pins like ``torch==2.9.0+rocm7.2`` without the part that variants replace.

    The pins of the ROCm packages stay as they are: those are no variants.
    """
    return [_strip_local_pin(text) for text in requirements]


def _strip_local_pin(text: str) -> str:
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return text  # the writer of wheels refuses it, and says where it stands
    if is_rocm_package(requirement.name):
        return text
    for specifier in requirement.specifier:
        public, _, local = specifier.version.partition("+")
        local = re.sub("[-_]", ".", local.lower())
        if (remaining := strip_rocm_local(local)) != local:
            text = text.replace(specifier.version, f"{public}+{remaining}" if remaining else public)
    return text
