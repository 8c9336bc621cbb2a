"""Wheels that take the place of others: a pin is by version, one version of two sets is taken for both."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from packaging.version import Version

from rocm_wheels.errors import ReleaseError
from rocm_wheels.release.sets import SetDocument, SetFile

ANY = "any"
_LINUX = re.compile(r"(?:many)?linux[_0-9]*_(?P<machine>[a-z]\w*)")


class Slot(NamedTuple):
    """What an installer chooses by, but for the build tag: Linux of any age is one, ``any`` is all."""

    project: str
    version: str
    label: str
    python: str
    platform: str

    def meets(self, other: Slot) -> bool:
        """Tell whether there is a machine for both."""
        return (
            self[:3] == other[:3]
            and (ANY in (self.python, other.python) or self.python == other.python)
            and (ANY in (self.platform, other.platform) or self.platform == other.platform)
        )


def refuse_overlaps(document: SetDocument, others: Sequence[SetDocument]) -> None:
    """Raise ReleaseError for wheels that would take the place of others in a set that is still shown.

    A wheel of the same version, with a build tag or for a newer Linux, is taken for both sets. That is right
    where the new set is the old one with wheels of one project exchanged, and a mixture everywhere else.
    """
    own: dict[tuple[str, str], list[tuple[Slot, str]]] = {}
    for file in document.files:
        for slot in slots_of(file):
            own.setdefault((slot.project, slot.version), []).append((slot, file.sha256))
    slots = {slot for listed in own.values() for slot, _ in listed}
    for other in others:
        changed = {file.project for file in other.files if _takes_place(own, file)}
        same = {slot for file in other.files for slot in slots_of(file)} == slots
        if changed and not (same and len(changed) == 1):
            raise ReleaseError(
                f"{document.id} has {', '.join(sorted(changed))} in the same version as {other.id}, with "
                "other bytes: installers would join wheels of both",
                tip=f"demote {other.id} first, or give the new wheels a version of their own",
            )


def slots_of(file: SetFile) -> Collection[Slot]:
    """Return the slots that a wheel fills."""
    return _slots(file.name, file.project, file.version, file.label)


@lru_cache(maxsize=100_000)
def _slots(name: str, project: str, version: str, label: str) -> Collection[Slot]:
    fields = name.removesuffix(".whl").split("-")
    pythons, abis, platforms = (fields[3:] if fields[2][:1].isdigit() else fields[2:])[:3]
    return {
        Slot(project, str(Version(version)), label, _python(python, abi), _platform(platform))
        for python in pythons.split(".")
        for abi in abis.split(".")
        for platform in platforms.split(".")
    }


def _takes_place(own: dict[tuple[str, str], list[tuple[Slot, str]]], file: SetFile) -> bool:
    return any(
        ours.meets(slot) and sha256 != file.sha256
        for slot in slots_of(file)
        for ours, sha256 in own.get((slot.project, slot.version), ())
    )


def _python(python: str, abi: str) -> str:
    """Return the Python that a wheel is for; one of the stable ABI may be for all."""
    if python.startswith("py") or abi == "abi3":
        return ANY
    return f"{python}t" if abi.endswith("t") else python


def _platform(platform: str) -> str:
    match = _LINUX.fullmatch(platform)
    return f"linux_{match['machine']}" if match else platform
