"""A keep-list of GPU targets: which wheels of a set are for others alone, and what METADATA says of those.

Parts that hold the kernels of one target (``torch-device-gfx942``, with ``gfx11`` or ``gfx115x`` that of
several) and variants are left out whole; a wheel that holds the code of several targets inside stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels import log
from rocm_wheels.errors import ReleaseError, UsageError
from rocm_wheels.model.gfx import strip_features, parse_targets
from rocm_wheels.release.sets import SetDocument, SetFile

KEEP_TARGETS_OPTION = "--keep-targets"
_DEVICE_PROJECT = re.compile(r"(?:.*-)?device-(?P<gfx>gfx[0-9a-f]+x?)")
_EXTRA_IN_MARKER = re.compile(r"""extra\s*==\s*["'](?P<extra>[^"']+)["']""")


def read_keep_list(text: str, document: SetDocument) -> tuple[str, ...]:
    """Return the targets of ``--keep-targets``, families expanded. Raises UsageError for one without code."""
    targets = tuple(
        dict.fromkeys(
            strip_features(target) for target in parse_targets(text, input_name=KEEP_TARGETS_OPTION)
        )
    )
    if missing := [target for target in targets if target not in document.targets]:
        raise UsageError(
            f"{KEEP_TARGETS_OPTION}: {document.id} has no code for {', '.join(missing)}",
            tip=f"it has code for {', '.join(document.targets)}",
        )
    return targets


def select_files(document: SetDocument, targets: Sequence[str]) -> tuple[SetFile, ...]:
    """Return the wheels of a set for some targets: all without targets. Raises ReleaseError if those are all.

    Of wheels that stay with code for other targets inside, a warning tells.
    """
    if not targets:
        return document.files
    selected = tuple(file for file in document.files if _is_kept(file, targets))
    if len(selected) == len(document.files):
        raise ReleaseError(
            f"no wheel of {document.id} is for other targets than {', '.join(targets)} alone",
            tip="code for several targets in one wheel stays together: build and stage it for fewer",
        )
    for file in selected:
        if other_targets := [target for target in file.targets if strip_features(target) not in targets]:
            log.log_warning(f"{file.name} stays, and holds code for {', '.join(other_targets)}, too")
    return selected


def select_requirements(requires: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Return the requirements without those on parts of other targets, and without those of their extras."""
    return [text for text in requires if not targets or _is_kept_requirement(text, targets)]


def select_extras(extras: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Return the extras without those of other targets (``device-gfx90a``)."""
    return [extra for extra in extras if not targets or _serves_targets(canonicalize_name(extra), targets)]


def _is_kept(file: SetFile, targets: Sequence[str]) -> bool:
    if _DEVICE_PROJECT.fullmatch(file.project):
        return _serves_targets(file.project, targets)
    if file.label and file.targets:
        return any(strip_features(target) in targets for target in file.targets)
    return True


def _is_kept_requirement(text: str, targets: Sequence[str]) -> bool:
    requirement = Requirement(text)
    extra = _EXTRA_IN_MARKER.search(str(requirement.marker or ""))
    return _serves_targets(canonicalize_name(requirement.name), targets) and (
        extra is None or _serves_targets(canonicalize_name(extra["extra"]), targets)
    )


def _serves_targets(name: str, targets: Sequence[str]) -> bool:
    """Tell whether a package or extra is for one of the targets, or for no target in particular."""
    match = _DEVICE_PROJECT.fullmatch(name)
    return match is None or any(target.startswith(match["gfx"].rstrip("x")) for target in targets)
