"""What an installer chooses a wheel by, but for the build tag: wheels of one slot are taken for each other.

Sources: "Platform compatibility tags" of the PyPA specifications; PEP 825 for labels.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from packaging.utils import NormalizedName, parse_wheel_filename
from packaging.version import Version

from rocm_wheels.wheels import dist_info

ANY_VALUE = "any"
# how new the system has to be is no difference: a newer one takes both
_SYSTEM_TAG = re.compile(
    r"(?P<system>(?:many|musl)?linux|macosx)(?:[0-9]+|(?:_[0-9]+){2})?_(?P<machine>[a-z]\w*)"
)


class InstallerSlot(NamedTuple):
    """A project, version and label for a Python and a platform; ``any`` of these two is all of them.

    ``label`` is "" for a wheel without one; ``platform`` is like ``linux_x86_64``, of whatever age.
    """

    project: NormalizedName
    version: Version
    label: str
    python: str
    platform: str

    def overlaps(self, other: InstallerSlot) -> bool:
        """Tell whether there is a machine for both."""
        return (
            (self.python == other.python or ANY_VALUE in (self.python, other.python))
            and (self.platform == other.platform or ANY_VALUE in (self.platform, other.platform))
            and self[:3] == other[:3]
        )


@lru_cache(maxsize=16384)
def installer_slots(file_name: str) -> frozenset[InstallerSlot]:
    """Return the slots that a wheel fills, by its file name; DataError when that is none."""
    fields = dist_info.split_wheel_name(file_name)
    try:
        project, version = _parse_release(fields.distribution, fields.version)
        machines = _parse_machines(f"{fields.python}-{fields.abi}-{fields.platform}")
    except ValueError:
        dist_info.parse_wheel_name(file_name)  # says what is wrong
        raise
    return frozenset(InstallerSlot(project, version, fields.label, *machine) for machine in machines)


def are_interchangeable(file_name: str, other_name: str) -> bool:
    """Tell whether there is a machine on which an installer would take either of two wheels."""
    other_slots = installer_slots(other_name)
    return any(slot.overlaps(other) for slot in installer_slots(file_name) for other in other_slots)


# wheels of an index have few versions and few tags between them: each is read once


@lru_cache(maxsize=4096)
def _parse_release(distribution: str, version: str) -> tuple[NormalizedName, Version]:
    return parse_wheel_filename(f"{distribution}-{version}-py3-none-any.whl")[:2]


@lru_cache(maxsize=4096)
def _parse_machines(tags: str) -> frozenset[tuple[str, str]]:
    """Return the Pythons and platforms of a compressed tag set."""
    machines = set()
    for tag in parse_wheel_filename(f"x-1-{tags}.whl")[3]:
        python = f"{tag.interpreter}t" if tag.abi.endswith("t") else tag.interpreter
        if tag.interpreter.startswith("py") or tag.abi == "abi3":
            python = ANY_VALUE  # of the stable ABI, for its Python and later ones
        match = _SYSTEM_TAG.fullmatch(tag.platform)
        system, machine = (
            (match["system"].removeprefix("many"), match["machine"]) if match else (tag.platform, "")
        )
        both = system == "macosx" and machine.startswith("universal")
        for architecture in ("arm64", "x86_64") if both else (machine,):
            machines.add((python, f"{system}_{architecture}" if architecture else system))
    return frozenset(machines)
