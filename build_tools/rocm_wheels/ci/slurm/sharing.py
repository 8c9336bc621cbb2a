"""Whether the nodes of a cluster see what a plan works on: as far as that can be told from here.

Every job looks itself whether it sees the plan, before anything else. Our locks are flock(2). On NFS Linux
turns them into locks of the server since 2.6.12 (flock(2); nfs(5): not with ``nolock`` or
``local_lock=flock``), on Lustre with the mount option ``flock``. Where they hold on one machine only, nothing
but the order of jobs keeps two of them apart: it does for steps and source trees; what several steps
install into one environment at a time is then kept apart on each node alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

SHARED = re.compile(
    r"nfs\d?|lustre|gpfs|beegfs(?:_nodev)?|ceph|glusterfs|cifs|smb3|afs|panfs|pvfs2|wekafs|9p|virtiofs|fuse\..+"
)
OWN = {"tmpfs", "ramfs", "overlay", "squashfs", "devtmpfs"}  # of this machine, or this container, alone


@dataclass(frozen=True)
class Mount:
    """A mounted file system."""

    point: str
    kind: str
    options: frozenset[str]


@dataclass(frozen=True)
class Sharing:
    """What keeps jobs from working (``errors``), and what cannot be told or is weaker than it should be."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def look(places: Mapping[str, Path], mounts: Iterable[Mount]) -> Sharing:
    """Look at the file systems of places, by what they are."""
    known = list(mounts)
    errors, warnings, unknown = [], [], []
    for what, path in places.items():
        mount = _mount_of(path, known)
        if mount is None or not (mount.kind in OWN or SHARED.fullmatch(mount.kind)):
            unknown.append(f"{what} {path}" + (f" ({mount.kind})" if mount else ""))
        elif mount.kind in OWN:
            errors.append(f"{what} {path} is on {mount.kind}: no other machine has it")
        elif why := _weak_locks(mount):
            warnings.append(f"{what} {path}: {why}")
    if unknown:
        warnings.append(
            f"whether the nodes share these cannot be told from here: {', '.join(unknown)}; each job looks"
        )
    return Sharing(tuple(errors), tuple(warnings))


def read_mounts(text: str) -> list[Mount]:
    """Read ``/proc/self/mounts`` (fstab(5)); blanks in names are octal escapes."""
    found = []
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) >= 4:
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1])
            found.append(Mount(point, fields[2], frozenset(fields[3].split(","))))
    return found


def _mount_of(path: Path, mounts: Iterable[Mount]) -> Mount | None:
    """Return the file system of a path; of two on one point the later one covers the other."""
    best: Mount | None = None
    for mount in mounts:
        if path.resolve().is_relative_to(mount.point) and (
            best is None or len(mount.point) >= len(best.point)
        ):
            best = mount
    return best


def _weak_locks(mount: Mount) -> str:
    if mount.kind.startswith("nfs") and mount.options & {"nolock", "local_lock=flock", "local_lock=all"}:
        return "mounted so that locks hold on one machine only (nolock, local_lock): see nfs(5)"
    if mount.kind == "lustre" and "flock" not in mount.options:
        return "Lustre without the mount option flock: locks hold on one machine only, or fail"
    return ""
