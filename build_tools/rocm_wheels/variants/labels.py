"""Make and check labels that people can read: ``rocm7.2_gfx942``.

A label is made from the properties alone, so the same properties always get the same one:
the ROCm version, then the targets: as the family or generic target that stands for exactly these, else
their names, else (when those are too many to read) how many they are and a digest.
"""

from __future__ import annotations

import re
from hashlib import sha256

from rocm_wheels.core import UsageError
from rocm_wheels.models import find_families, get_gfx_families, get_gfx_targets
from rocm_wheels.variants.document import (
    AMD_NAMESPACE,
    GFX_ARCH,
    HOST_ROCM_VERSION,
    LABEL_PATTERN,
    NULL_LABEL,
    ROCM_NAMESPACE,
    ROCM_VERSION,
    Properties,
    describe_properties,
)
from rocm_wheels.variants.targets import COMPILER_GENERICS, expand_generics
from rocm_wheels.wheels import TargetId

_ROCM_VERSION = re.compile(r"rocm([0-9]+(?:\.[0-9]+)?)")
_CHIP_NAME = re.compile(r"gfx[0-9]{1,2}[0-9a-f]{2}(?![0-9a-z])")
_LONGEST_LIST = 40  # characters: about five targets
_DIGEST_DIGITS = 8


def make_label(properties: Properties) -> str:
    """Return the label of a set of properties; UsageError when they are not of the kind that we stamp."""
    if not properties:
        return NULL_LABEL
    amd, rocm = properties.get(AMD_NAMESPACE, {}), properties.get(ROCM_NAMESPACE, {})
    if (
        properties.keys() - {AMD_NAMESPACE, ROCM_NAMESPACE}
        or amd.keys() - {GFX_ARCH, HOST_ROCM_VERSION}
        or rocm.keys() - {ROCM_VERSION}
    ):
        raise UsageError(
            f"no rule makes a label for {describe_properties(properties)}",
            tip="name one: --label rocm7.2_custom",
        )
    parts = [f"rocm{'_'.join(rocm[ROCM_VERSION])}"] if ROCM_VERSION in rocm else []
    parts += [f"hostrocm{'_'.join(amd[HOST_ROCM_VERSION])}"] if HOST_ROCM_VERSION in amd else []
    return "_".join([*parts, _shorten_targets(amd[GFX_ARCH])] if GFX_ARCH in amd else parts)


def check_label(label: str, properties: Properties) -> str:
    """Return a label that somebody chose; UsageError when the PEP does not allow it for these properties."""
    if not LABEL_PATTERN.fullmatch(label):
        raise UsageError(f"--label {label}: a-z, 0-9, _ and . are allowed (PEP 825)")
    if (label == NULL_LABEL) != (not properties):
        message = f"stands for no properties, not for {describe_properties(properties)}: say --null"
        raise UsageError(f"--label {label} {message if properties else 'has no properties: it must be null'}")
    if contradictions := find_label_contradictions(label, properties):
        raise UsageError(
            f"--label {label} {contradictions[0]}", tip="people read labels: choose one that is true"
        )
    return label


def find_label_contradictions(label: str, properties: Properties) -> list[str]:
    """Return what a label says in words that the properties do not: another ROCm version, another GPU.

    A label of the 2025 indexes was ``rocm71`` for ROCm 7.0; nobody who reads it would notice.
    """
    contradictions = []
    versions = properties.get(ROCM_NAMESPACE, {}).get(ROCM_VERSION, ()) + properties.get(
        AMD_NAMESPACE, {}
    ).get(HOST_ROCM_VERSION, ())
    for named_version in _ROCM_VERSION.findall(label) if versions else ():
        if not any(
            version == named_version or version.replace(".", "").startswith(named_version)
            for version in versions
        ):
            contradictions.append(f"names ROCm {named_version}, the properties {', '.join(versions)}")
    targets = properties.get(AMD_NAMESPACE, {}).get(GFX_ARCH, ())
    named_chips = {word for word in _CHIP_NAME.findall(label) if word in get_gfx_targets()}
    if targets and (missing := sorted(named_chips - expand_generics(targets))):
        contradictions.append(f"names {', '.join(missing)}, the properties {', '.join(targets)}")
    return contradictions


def _shorten_targets(values: tuple[str, ...]) -> str:
    """Return the short form of targets (``gfx110x_all``); different targets never have the same one."""
    targets = sorted(values, key=lambda value: TargetId(value.replace("_", "-")).get_sort_key())
    joined = "_".join(targets)
    if len(targets) == 1:
        return joined
    exact = [name for name in find_families(targets) if set(get_gfx_families()[name]) == set(targets)]
    if exact:
        return min(exact, key=lambda name: (len(name), name)).lower().replace("-", "_")
    generic = [name for name, chips in COMPILER_GENERICS.items() if set(chips) == set(targets)]
    if generic:  # gfx11: what gfx11-generic covers, and not the value gfx11_generic
        return generic[0].removesuffix("-generic").replace("-", "_")
    if len(joined) <= _LONGEST_LIST:
        return joined
    digest = sha256(joined.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"gfx_{len(targets)}_targets_{digest}"
