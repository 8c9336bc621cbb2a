"""Define the lock: every repository of a set at one commit, and what it is to be built for.

Made by ``rocm-wheels lock``, read by ``checkout --lock`` and ``build --lock``. It may also hold what the
wheels are built with: ROCm's packages and the tools of each project, with the digests of their files. It is
JSON in a fixed order (projects as they are built) and without a date, unless versions are to have one: the
same sources give the same bytes. No credentials are in it. The package ``sources`` reads and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from rocm_wheels.core import records
from rocm_wheels.models import project_names

TORCH_PROJECT = "pytorch"
GitObjectId = Annotated[str, records.require_pattern(r"[0-9a-f]{40}", "40 hexadecimal digits (0-9, a-f)")]
Sha256Digest = Annotated[
    str, records.require_pattern(r"[0-9a-f]{64}", "a SHA-256: 64 hexadecimal digits (0-9, a-f)")
]


class LockedSubmodule(records.Record):
    """A submodule, at any depth: where it comes from, its commit and that commit's tree."""

    origin: str
    commit: GitObjectId
    tree: GitObjectId | None = None


class LockedPatches(records.Record):
    """The patch set of a checkout: its name (a release line as a rule) and ``PatchSet.digest``."""

    name: str
    digest: Sha256Digest


class LockedProject(records.Record):
    """One project. ``ref`` is what was asked for and ``why`` says by whom; ``commit`` is what it was.

    ``pinned``: torch's own tree says which commit, so that another torch may say another.
    ``version`` is the base version in the tree. ``submodules`` maps paths from the root to what is
    there; it is ``None``, as ``tree`` is, where a manifest of another tool did not say.
    """

    origin: str
    ref: str
    why: str
    pinned: bool = False
    commit: GitObjectId
    tree: GitObjectId | None = None
    version: str | None = None
    patches: LockedPatches | None = None
    submodules: Mapping[str, LockedSubmodule] | None = None


class LockedPackage(records.Record):
    """A package to install: its version, and the SHA-256 of each file that it may be installed from, by name.

    They are wheels for the platform and the Python; a source distribution only where there is no such wheel.
    """

    version: str
    files: Mapping[str, Sha256Digest]


class LockedTools(records.Record):
    """All that is installed to build with one Python, each set whole, by name of the package.

    ``rocm_extras``: the extras of ``rocm`` that ``rocm`` is the packages of. ``projects``: the tools of each.
    ``backends``: what source distributions among all of them are built with.
    """

    rocm_extras: tuple[str, ...] = ()
    rocm: Mapping[str, LockedPackage] = {}
    projects: Mapping[str, Mapping[str, LockedPackage]] = {}
    backends: Mapping[str, LockedPackage] = {}


class Lock(records.Record):
    """A whole set. ``rocm`` is a version of the ROCm packages; empty targets or Pythons leave them open.

    ``local_version`` stands in the versions of all wheels before ``+rocm…``: what tells builds of one version
    apart. ``named_torch`` is the version of torch that the others have there, too, so that wheels for several
    torches, which differ, have names that differ; it is also in a part of a lock that has no torch.

    ``tools`` are by Python, as it is written in ``pythons``. A lock with tools is of version 2, one without
    of version 1.
    """

    lock_version: Literal["1", "2"] = "1"
    platform: project_names.Platform = "linux"
    line: str | None = None
    rocm: str | None = None
    targets: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    local_version: str | None = None
    named_torch: str | None = None
    projects: Mapping[str, LockedProject]
    tools: Mapping[str, LockedTools] = {}

    def replace_tools(self, tools: Mapping[str, LockedTools]) -> Lock:
        """Return the lock with other tools, or with none."""
        return self.model_copy(update={"tools": tools, "lock_version": "2" if tools else "1"})

    def get_local_parts(self, name: str) -> tuple[str, ...]:
        """Return what a version has before ``+rocm…``: ``nightly20261122.17`` and ``torch2.13.0``, say."""
        torch = f"torch{self.named_torch}" if self.named_torch and name != TORCH_PROJECT else ""
        return tuple(part for part in (self.local_version, torch) if part)
