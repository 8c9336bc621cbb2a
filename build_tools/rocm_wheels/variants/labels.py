"""Labels that people can read: ``rocm7.2_gfx942``.

A label is made from the properties alone, so the same properties always get the same one:
the ROCm version, then the targets: as the family or generic target that stands for exactly these, else
their names, else (when those are too many to read) how many they are and a digest.
"""

from __future__ import annotations

import re
from hashlib import sha256

from rocm_wheels.errors import UsageError
from rocm_wheels.model.gfx import families_of, gfx_families, gfx_targets
from rocm_wheels.variants.document import (
    AMD,
    ARCH,
    HOST_VERSION,
    NULL_LABEL,
    ROCM,
    VERSION,
    Properties,
    describe,
)
from rocm_wheels.variants.reading import LABEL
from rocm_wheels.variants.targets import GENERICS, chips_of
from rocm_wheels.wheels.device_code.target_id import TargetId

_VERSION = re.compile(r"rocm([0-9]+(?:\.[0-9]+)?)")
_CHIP = re.compile(r"gfx[0-9]{1,2}[0-9a-f]{2}(?![0-9a-z])")
_LONGEST_LIST = 40  # characters: about five targets
_DIGEST_DIGITS = 8


def label_of(properties: Properties) -> str:
    """Return the label of a set of properties; UsageError when they are not of the kind that we stamp."""
    if not properties:
        return NULL_LABEL
    amd, rocm = properties.get(AMD, {}), properties.get(ROCM, {})
    if properties.keys() - {AMD, ROCM} or amd.keys() - {ARCH, HOST_VERSION} or rocm.keys() - {VERSION}:
        raise UsageError(
            f"no rule makes a label for {describe(properties)}", tip="name one: --label rocm7.2_custom"
        )
    parts = [f"rocm{'_'.join(rocm[VERSION])}"] if VERSION in rocm else []
    parts += [f"hostrocm{'_'.join(amd[HOST_VERSION])}"] if HOST_VERSION in amd else []
    return "_".join([*parts, _targets_part(amd[ARCH])] if ARCH in amd else parts)


def check_label(label: str, properties: Properties) -> str:
    """Return a label that somebody chose; UsageError when the PEP does not allow it for these properties."""
    if not LABEL.fullmatch(label):
        raise UsageError(f"--label {label}: a-z, 0-9, _ and . are allowed (PEP 825)")
    if (label == NULL_LABEL) != (not properties):
        said = f"stands for no properties, not for {describe(properties)}: say --null"
        raise UsageError(f"--label {label} {said if properties else 'has no properties: it must be null'}")
    if wrong := label_contradictions(label, properties):
        raise UsageError(f"--label {label} {wrong[0]}", tip="people read labels: choose one that is true")
    return label


def label_contradictions(label: str, properties: Properties) -> list[str]:
    """Return what a label says in words that the properties do not: another ROCm version, another GPU.

    A label of the 2025 indexes was ``rocm71`` for ROCm 7.0; nobody who reads it would notice.
    """
    found = []
    versions = properties.get(ROCM, {}).get(VERSION, ()) + properties.get(AMD, {}).get(HOST_VERSION, ())
    for said in _VERSION.findall(label) if versions else ():
        if not any(version == said or version.replace(".", "").startswith(said) for version in versions):
            found.append(f"names ROCm {said}, the properties {', '.join(versions)}")
    targets = properties.get(AMD, {}).get(ARCH, ())
    named = {word for word in _CHIP.findall(label) if word in gfx_targets()}
    if targets and (more := sorted(named - chips_of(targets))):
        found.append(f"names {', '.join(more)}, the properties {', '.join(targets)}")
    return found


def _targets_part(values: tuple[str, ...]) -> str:
    """Return the short form of targets (``gfx110x_all``); different targets never have the same one."""
    targets = sorted(values, key=lambda value: TargetId(value.replace("_", "-")).order())
    listed = "_".join(targets)
    if len(targets) == 1:
        return listed
    exact = [name for name in families_of(targets) if set(gfx_families()[name]) == set(targets)]
    if exact:
        return min(exact, key=lambda name: (len(name), name)).lower().replace("-", "_")
    generic = [name for name, chips in GENERICS.items() if set(chips) == set(targets)]
    if generic:  # gfx11: what gfx11-generic covers, and not the value gfx11_generic
        return generic[0].removesuffix("-generic").replace("-", "_")
    if len(listed) <= _LONGEST_LIST:
        return listed
    digest = sha256(listed.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"gfx_{len(targets)}_targets_{digest}"
