"""Name the wheels that device code is split off into: their keys, parents, distributions and extras.

A target has a package of its own, and shares those of its sub-family and its family with others: gfx1100 has
``gfx1100``, ``gfx110x`` and ``gfx11``. Code of a generic target is in the smallest package that is for all
of its targets. The rule is that of rocm-bootstrap (``rocm_bootstrap.targets``, ``.naming``), which the
wheels require, and which the tests compare it with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.utils import canonicalize_name

from rocm_wheels.variants.targets import COMPILER_GENERICS

DEVICE_ALL = "device-all"
"""The extra that brings the code of all targets."""

_TARGET = re.compile(r"gfx(?P<major>[0-9]+)(?P<minor>[0-9])[0-9a-f](?:-strict)?")
_FAMILY_LABEL, _SUB_FAMILY_LABEL = re.compile(r"gfx([0-9]+)xx"), re.compile(r"gfx([0-9]+)([0-9])x")
_LETTERED_MAJORS = ("11",)  # gfx110x, where others are called gfx10_3


def get_package_chain(target: str) -> tuple[str, str, str]:
    """Return the keys of a target's packages: its own, its sub-family's and its family's.

    ValueError for what is no target of one chip (``gfx11-generic``).
    """
    match = _TARGET.fullmatch(target)
    if match is None:
        raise ValueError(f"{target!r} is not a target of one chip")
    key = target.removesuffix("-strict")
    return key, _make_sub_family(match["major"], match["minor"]), f"gfx{match['major']}"


def find_package_key(processor: str) -> str:
    """Return the key of the package that code for a target is in, also for a generic one.

    ``gfx11xx`` and ``gfx120x``, which files of aotriton are labelled with, are families. ValueError for
    what is none of these.
    """
    if family := _FAMILY_LABEL.fullmatch(processor):
        return f"gfx{family[1]}"
    if sub_family := _SUB_FAMILY_LABEL.fullmatch(processor):
        return _make_sub_family(*sub_family.groups())
    chips = COMPILER_GENERICS.get(processor)
    if chips is None:
        return get_package_chain(processor)[0]
    chains = [get_package_chain(chip) for chip in chips]
    return chains[0][1] if len({chain[1] for chain in chains}) == 1 else chains[0][2]


# ROCm's own packages for a GPU (rocm-sdk-device-gfx942) are no parts of a wheel
_DEVICE_PROJECT = re.compile(r"(?!rocm-sdk-)(?:amd-)?(?P<host>.+)-device-(?P<key>gfx[\w-]+)")
_SELECTOR = re.compile(r"amd-(?P<host>.+)-device")


def find_host_project(project: str) -> str | None:
    """Return the project that a wheel is a part of, or None (normalized names).

    It holds device code (``amd-torch-device-gfx942``: ``torch``), or says which is installed
    (``amd-torch-device``).
    """
    match = _DEVICE_PROJECT.fullmatch(project) or _SELECTOR.fullmatch(project)
    return match["host"] if match else None


def find_device_key(project: str) -> str | None:
    """Return what a device wheel holds code for, as its project ends (``gfx942``, ``gfx12-0``).

    None for any other, and for a selector, which holds nothing.
    """
    match = _DEVICE_PROJECT.fullmatch(project)
    return match["key"] if match else None


def is_selector(project: str) -> bool:
    """Tell whether a project (normalized name) says which device code is installed, and holds none."""
    return _SELECTOR.fullmatch(project) is not None


def make_selector_name(distribution: str) -> str:
    """Return the distribution that says which device code is installed: ``amd-torch-device``."""
    return f"amd-{canonicalize_name(distribution)}-device"


def list_members(key: str, targets: Iterable[str]) -> list[str]:
    """Return those of some targets that a package is for."""
    return [target for target in targets if key in get_package_chain(target)]


def make_device_name(distribution: str, key: str) -> str:
    """Return the distribution of device code: ``amd-torch-device-gfx12-0``."""
    return f"{make_selector_name(distribution)}-{key.replace('_', '-')}"


def make_device_extra(target: str) -> str:
    """Return the extra that brings the code of a target: ``device-gfx942``."""
    return f"device-{target}"


def _make_sub_family(major: str, minor: str) -> str:
    return f"gfx{major}{minor}x" if major in _LETTERED_MAJORS else f"gfx{major}_{minor}"
