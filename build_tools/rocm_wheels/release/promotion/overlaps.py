"""Wheels that take the place of others: a pin is by version, one version of two sets is taken for both."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from packaging.version import Version

from rocm_wheels.errors import ReleaseError
from rocm_wheels.release.sets import SetDocument, SetFile

ANY_VALUE = "any"
_LINUX_TAG = re.compile(r"(?:many)?linux[_0-9]*_(?P<machine>[a-z]\w*)")


class InstallerSlot(NamedTuple):
    """What an installer chooses by, but for the build tag: Linux of any age is one, ``any`` is all."""

    project: str
    version: str
    label: str
    python: str
    platform: str

    def overlaps(self, other: InstallerSlot) -> bool:
        """Tell whether there is a machine for both."""
        return (
            self[:3] == other[:3]
            and (ANY_VALUE in (self.python, other.python) or self.python == other.python)
            and (ANY_VALUE in (self.platform, other.platform) or self.platform == other.platform)
        )


def refuse_overlaps(document: SetDocument, other_documents: Sequence[SetDocument]) -> None:
    """Raise ReleaseError for wheels that would take the place of others in a set that is still shown.

    A wheel of the same version, with a build tag or for a newer Linux, is taken for both sets. That is right
    where the new set is the old one with wheels of one project exchanged, and a mixture everywhere else.
    """
    files_by_version: dict[tuple[str, str], list[tuple[InstallerSlot, str]]] = {}
    for file in document.files:
        for slot in list_installer_slots(file):
            files_by_version.setdefault((slot.project, slot.version), []).append((slot, file.sha256))
    slots = {slot for listed in files_by_version.values() for slot, _ in listed}
    for other in other_documents:
        changed = {file.project for file in other.files if _replaces_file(files_by_version, file)}
        same_slots = {slot for file in other.files for slot in list_installer_slots(file)} == slots
        if changed and not (same_slots and len(changed) == 1):
            raise ReleaseError(
                f"{document.id} has {', '.join(sorted(changed))} in the same version as {other.id}, with "
                "other bytes: installers would join wheels of both",
                tip=f"demote {other.id} first, or give the new wheels a version of their own",
            )


def list_installer_slots(file: SetFile) -> Collection[InstallerSlot]:
    """Return the slots that a wheel fills."""
    return _parse_slots(file.name, file.project, file.version, file.label)


@lru_cache(maxsize=100_000)
def _parse_slots(name: str, project: str, version: str, label: str) -> Collection[InstallerSlot]:
    fields = name.removesuffix(".whl").split("-")
    pythons, abis, platforms = (fields[3:] if fields[2][:1].isdigit() else fields[2:])[:3]
    return {
        InstallerSlot(
            project, str(Version(version)), label, _parse_python(python, abi), _parse_platform(platform)
        )
        for python in pythons.split(".")
        for abi in abis.split(".")
        for platform in platforms.split(".")
    }


def _replaces_file(
    files_by_version: dict[tuple[str, str], list[tuple[InstallerSlot, str]]], file: SetFile
) -> bool:
    return any(
        own_slot.overlaps(slot) and sha256 != file.sha256
        for slot in list_installer_slots(file)
        for own_slot, sha256 in files_by_version.get((slot.project, slot.version), ())
    )


def _parse_python(python: str, abi: str) -> str:
    """Return the Python that a wheel is for; one of the stable ABI may be for all."""
    if python.startswith("py") or abi == "abi3":
        return ANY_VALUE
    return f"{python}t" if abi.endswith("t") else python


def _parse_platform(platform: str) -> str:
    match = _LINUX_TAG.fullmatch(platform)
    return f"linux_{match['machine']}" if match else platform
