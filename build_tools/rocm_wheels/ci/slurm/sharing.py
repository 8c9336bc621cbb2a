"""Whether the nodes of a cluster see what a plan works on: as far as that can be told from here.

Every job looks itself whether it sees the plan, before anything else. Our locks are flock(2). On NFS Linux
turns them into locks of the server since 2.6.12 (flock(2); nfs(5): not with ``nolock`` or
``local_lock=flock``), on Lustre with the mount option ``flock``. Where they hold on one machine only, nothing
but the order of jobs keeps two of them apart: it does for steps and source trees; what several steps
install into one environment at a time is then kept apart on each node alone.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels import log
from rocm_wheels.ci.slurm import cluster
from rocm_wheels.errors import UsageError

if TYPE_CHECKING:
    from rocm_wheels.ci.slurm.submitting import SlurmSubmission

SHARED_KINDS = re.compile(
    r"nfs\d?|lustre|gpfs|beegfs(?:_nodev)?|ceph|glusterfs|cifs|smb3|afs|panfs|pvfs2|wekafs|9p|virtiofs|fuse\..+"
)
LOCAL_KINDS = {
    "tmpfs",
    "ramfs",
    "overlay",
    "squashfs",
    "devtmpfs",
}  # of this machine, or this container, alone


@dataclass(frozen=True)
class MountedFilesystem:
    """A mounted file system."""

    point: str
    kind: str
    options: frozenset[str]


@dataclass(frozen=True)
class SharingReport:
    """What keeps jobs from working (``errors``), and what cannot be told or is weaker than it should be."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def check_shared(submission: SlurmSubmission) -> None:
    """Refuse folders that no other machine has, unless the cluster is this machine alone."""
    here = platform.node().split(".")[0]
    if {name.split(".")[0] for name in cluster.query_nodes(submission.env)} <= {here}:
        return
    request = submission.file.request
    places = {"the plan": submission.folder.plan, "work directory": request.work, "output": request.output}
    places |= {f"sources of {name}": tree for name, tree in request.sources.items() if tree.is_dir()}
    if not submission.site.prefix:
        places["this program"] = Path(submission.site.program[0])
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    report = inspect_places(places, parse_mounts(mounts))
    for warning in report.warnings:
        log.log_warning(warning)
    if report.errors:
        errors = "".join(f"\n  {error}" for error in report.errors)
        raise UsageError(
            f"jobs on other nodes could not work:{errors}",
            tip="put them on a file system that the nodes share, or say --assume-shared",
        )


def inspect_places(places: Mapping[str, Path], mounts: Iterable[MountedFilesystem]) -> SharingReport:
    """Look at the file systems of places, by what they are."""
    mounted = list(mounts)
    errors, warnings, unknown = [], [], []
    for label, path in places.items():
        mount = _find_mount(path, mounted)
        if mount is None or not (mount.kind in LOCAL_KINDS or SHARED_KINDS.fullmatch(mount.kind)):
            unknown.append(f"{label} {path}" + (f" ({mount.kind})" if mount else ""))
        elif mount.kind in LOCAL_KINDS:
            errors.append(f"{label} {path} is on {mount.kind}: no other machine has it")
        elif why := _describe_weak_locks(mount):
            warnings.append(f"{label} {path}: {why}")
    if unknown:
        warnings.append(
            f"whether the nodes share these cannot be told from here: {', '.join(unknown)}; each job looks"
        )
    return SharingReport(tuple(errors), tuple(warnings))


def parse_mounts(text: str) -> list[MountedFilesystem]:
    """Read ``/proc/self/mounts`` (fstab(5)); blanks in names are octal escapes."""
    mounts = []
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) >= 4:
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1])
            mounts.append(MountedFilesystem(point, fields[2], frozenset(fields[3].split(","))))
    return mounts


def _find_mount(path: Path, mounts: Iterable[MountedFilesystem]) -> MountedFilesystem | None:
    """Return the file system of a path; of two on one point the later one covers the other."""
    best: MountedFilesystem | None = None
    for mount in mounts:
        if path.resolve().is_relative_to(mount.point) and (
            best is None or len(mount.point) >= len(best.point)
        ):
            best = mount
    return best


def _describe_weak_locks(mount: MountedFilesystem) -> str:
    if mount.kind.startswith("nfs") and mount.options & {"nolock", "local_lock=flock", "local_lock=all"}:
        return "mounted so that locks hold on one machine only (nolock, local_lock): see nfs(5)"
    if mount.kind == "lustre" and "flock" not in mount.options:
        return "Lustre without the mount option flock: locks hold on one machine only, or fail"
    return ""
