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
from rocm_wheels.model.gfx import base_target, parse_targets
from rocm_wheels.release.sets import SetDocument, SetFile

OPTION = "--keep-targets"
_DEVICE = re.compile(r"(?:.*-)?device-(?P<gfx>gfx[0-9a-f]+x?)")
_MARKED = re.compile(r"""extra\s*==\s*["'](?P<extra>[^"']+)["']""")


def read_keep_list(text: str, document: SetDocument) -> tuple[str, ...]:
    """Return the targets of ``--keep-targets``, families expanded. Raises UsageError for one without code."""
    targets = tuple(dict.fromkeys(base_target(target) for target in parse_targets(text, what=OPTION)))
    if missing := [target for target in targets if target not in document.targets]:
        raise UsageError(
            f"{OPTION}: {document.id} has no code for {', '.join(missing)}",
            tip=f"it has code for {', '.join(document.targets)}",
        )
    return targets


def kept_files(document: SetDocument, targets: Sequence[str]) -> tuple[SetFile, ...]:
    """Return the wheels of a set for some targets: all without targets. Raises ReleaseError if those are all.

    Of wheels that stay with code for other targets inside, a warning tells.
    """
    if not targets:
        return document.files
    kept = tuple(file for file in document.files if _is_kept(file, targets))
    if len(kept) == len(document.files):
        raise ReleaseError(
            f"no wheel of {document.id} is for other targets than {', '.join(targets)} alone",
            tip="code for several targets in one wheel stays together: build and stage it for fewer",
        )
    for file in kept:
        if others := [target for target in file.targets if base_target(target) not in targets]:
            log.warn(f"{file.name} stays, and holds code for {', '.join(others)}, too")
    return kept


def kept_requirements(requires: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Return the requirements without those on parts of other targets, and without those of their extras."""
    return [text for text in requires if not targets or _is_kept_requirement(text, targets)]


def kept_extras(extras: Sequence[str], targets: Sequence[str]) -> list[str]:
    """Return the extras without those of other targets (``device-gfx90a``)."""
    return [extra for extra in extras if not targets or _serves(canonicalize_name(extra), targets)]


def _is_kept(file: SetFile, targets: Sequence[str]) -> bool:
    if _DEVICE.fullmatch(file.project):
        return _serves(file.project, targets)
    if file.label and file.targets:
        return any(base_target(target) in targets for target in file.targets)
    return True


def _is_kept_requirement(text: str, targets: Sequence[str]) -> bool:
    named = Requirement(text)
    extra = _MARKED.search(str(named.marker or ""))
    return _serves(canonicalize_name(named.name), targets) and (
        extra is None or _serves(canonicalize_name(extra["extra"]), targets)
    )


def _serves(name: str, targets: Sequence[str]) -> bool:
    """Tell whether a package or extra is for one of the targets, or for no target in particular."""
    match = _DEVICE.fullmatch(name)
    return match is None or any(target.startswith(match["gfx"].rstrip("x")) for target in targets)
