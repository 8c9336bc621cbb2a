"""Read an artifacts tree: folders ``<name>_<component>_<family>`` with a manifest of base folders.

The layout is that of a ROCm build (ROCm/TheRock, ``docs/development/artifacts.md``): every
folder holds ``artifact_manifest.txt``, one relative base folder a line (``core/clr/stage``);
what lies under a base folder is relative to the root of the ROCm tree (``lib/libamdhip64.so.7``).
"""

from __future__ import annotations

import filecmp
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

from rocm_wheels.core import errors

ARTIFACT_MANIFEST = "artifact_manifest.txt"
GENERIC = "generic"
REQUIREMENTS_FILE = "share/therock/python_requirements.txt"
"""A file of an artifact whose lines (PEP 508) become requirements of the package it goes to."""

_FOLDER = re.compile(r"(?P<name>[^_]+)_(?P<component>[^_]+)_(?P<family>[^_]+)")
_TARGET = re.compile(r"(?P<base>gfx[0-9a-f]{3,5})(?::(?:xnack|sramecc)[+-])*")
_MOST_LINKS = 40
_INCOMPLETE_TIP = "the artifact is incomplete; fetch it again"
_OTHER_BUILDS_TIP = "the artifacts are of different builds; fetch them again from one"


@dataclass(frozen=True)
class Artifact:
    """One artifact folder: ``blas_lib_gfx942`` is name ``blas``, component ``lib``, family ``gfx942``.

    ``paths``: only these files of its base folder belong to it, relative to that (an installed ROCm, which
    all its artifacts share); ``None``: all.
    """

    name: str
    component: str
    family: str
    folder: Path
    bases: tuple[Path, ...]
    paths: tuple[str, ...] | None = None

    @property
    def generic(self) -> bool:
        """Whether it holds no code for a particular GPU."""
        return self.family == GENERIC

    @property
    def target(self) -> str | None:
        """The gfx target without features (``gfx942:xnack+`` → ``gfx942``); ``None`` when generic."""
        match = _TARGET.fullmatch(self.family)
        return match["base"] if match else None


@dataclass(frozen=True)
class ArtifactEntry:
    """A file or symbolic link of the merged tree; ``link`` is the link's text, ``None`` for a file."""

    path: Path
    artifact: str
    link: str | None


ArtifactTree = Mapping[str, ArtifactEntry]
"""Path relative to the ROCm root (POSIX form) → what lies there."""


def read_artifacts(folder: Path, *, any_family: bool = False) -> tuple[Artifact, ...]:
    """List the artifacts below ``folder``, sorted by folder name; with ``any_family`` those of families, too.

    Raises SdkError: no such folder, no artifact in it, one that is packed, a manifest that is missing, empty
    or leads out of its artifact, a family that is neither ``generic`` nor a gfx target.
    """
    if not folder.is_dir():
        raise errors.SdkError(
            f"{folder} is not a folder", tip="give --artifact-dir the folder of a ROCm build's artifacts"
        )
    for path in sorted((*folder.glob("*.tar.xz"), *folder.glob("*.tar.zst"))):
        name = path.name.rsplit(".", 2)[0]
        if _FOLDER.fullmatch(name) and not (folder / name).is_dir():
            raise errors.SdkError(
                f"{path} is not unpacked", tip=f"unpack it into {folder / name}, or move it away"
            )
    artifacts = []
    for path in sorted(folder.iterdir()):
        match = _FOLDER.fullmatch(path.name)
        if match is None or not path.is_dir():
            continue
        family = match["family"]
        if not (any_family or family == GENERIC or _TARGET.fullmatch(family)):
            raise errors.SdkError(
                f"{path.name}: {family!r} is neither 'generic' nor a gfx target",
                tip="artifacts of whole families (gfx94X-dcgpu) come from builds without split device code;"
                " packages are made from builds with KPACK_SPLIT_ARTIFACTS",
            )
        artifacts.append(Artifact(match["name"], match["component"], family, path, _read_bases(path)))
    if not artifacts:
        raise errors.SdkError(
            f"no artifact in {folder}",
            tip="its folders must be named <name>_<component>_<family>, such as core-hip_lib_generic",
        )
    return tuple(artifacts)


def _read_bases(folder: Path) -> tuple[Path, ...]:
    """Return the base folders of an artifact that are there: a build that filters leaves empty ones out."""
    manifest = folder / ARTIFACT_MANIFEST
    if not manifest.is_file():
        raise errors.SdkError(f"{folder} has no {ARTIFACT_MANIFEST}", tip=_INCOMPLETE_TIP)
    lines = [line.strip() for line in _read_lines(manifest)]
    if not any(lines):
        raise errors.SdkError(f"{manifest} is empty", tip=_INCOMPLETE_TIP)
    for number, line in enumerate(lines, 1):
        if line.startswith("/") or ".." in PurePosixPath(line).parts:
            raise errors.SdkError(f"{manifest}:{number}: {line!r} leads out of the artifact")
    return tuple(folder / line for line in lines if line and (folder / line).is_dir())


def merge_artifacts(artifacts: Iterable[Artifact]) -> dict[str, ArtifactEntry]:
    """Lay artifacts over each other as one tree, sorted by path.

    The same file may come twice; SdkError when two artifacts differ about a path, when one
    has a link where another has a folder, and for what cannot be read or packed. The requirement
    files are not part of the tree.
    """
    tree: dict[str, ArtifactEntry] = {}
    for artifact in artifacts:
        for base in artifact.bases:
            for relative in list_files(base) if artifact.paths is None else artifact.paths:
                if relative == REQUIREMENTS_FILE:
                    continue
                entry = _read_entry(artifact.folder.name, base, relative)
                before = tree.setdefault(relative, entry)
                is_same = before is entry or before.link == entry.link
                if is_same and before is not entry and entry.link is None:
                    is_same = filecmp.cmp(before.path, entry.path, shallow=False)
                if not is_same:
                    raise errors.SdkError(
                        f"{before.artifact} and {entry.artifact} hold different files for {relative}",
                        tip=_OTHER_BUILDS_TIP,
                    )
    for relative, entry in tree.items():
        for parent in PurePosixPath(relative).parents:
            if (above := tree.get(str(parent))) is not None:
                kind = f"a link to {above.link}" if above.link else "a file"
                raise errors.SdkError(
                    f"{entry.artifact} has {relative}, but in {above.artifact} {parent} is {kind}",
                    tip=_OTHER_BUILDS_TIP,
                )
    return dict(sorted(tree.items()))


def _read_entry(artifact: str, base: Path, relative: str) -> ArtifactEntry:
    path = base / relative
    link = path.readlink().as_posix() if path.is_symlink() else None
    if not relative.isprintable():  # no text of its own, or it would break lists of files
        raise errors.SdkError(f"{artifact}: the file name {relative!r} cannot be packed")
    if link is not None and leads_out(relative, link):
        raise errors.SdkError(
            f"{artifact}: the link {relative} leads out of the ROCm tree, to {link}",
            tip="links of artifacts must be relative",
        )
    if link is None and not path.is_file():
        raise errors.SdkError(f"{artifact}: {relative} is neither file, folder nor link")
    return ArtifactEntry(path, artifact, link)


def leads_out(relative: str, link: str) -> bool:
    """Tell whether a link at a path of a tree leads out of the tree."""
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(relative), link))
    return link.startswith("/") or reached.split("/")[0] == ".."


def resolve_path(tree: ArtifactTree, relative: str) -> str | None:
    """Follow links inside the merged tree; the path of a file, ``None`` for a folder or nothing."""
    parts = list(PurePosixPath(relative).parts)
    done: list[str] = []
    links = 0
    while parts:
        part = parts.pop(0)
        if part == "..":
            if not done:
                return None
            done.pop()
            continue
        current = "/".join([*done, part])
        entry = tree.get(current)
        if entry is None or entry.link is None:
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS or entry.link.startswith("/"):
            return None
        parts = [*PurePosixPath(entry.link).parts, *parts]
    path = "/".join(done)
    return path if path in tree else None


def read_requirements(artifacts: Iterable[Artifact]) -> tuple[str, ...]:
    """Read what Python distributions the artifacts need, sorted and without repetition.

    One PEP 508 requirement a line, ``#`` begins a comment. SdkError with file and line when a
    line is something else.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    lines: set[str] = set()
    for artifact in artifacts:
        for base in artifact.bases:
            path = base / REQUIREMENTS_FILE
            if artifact.paths is not None or not path.is_file():
                continue
            for number, raw in enumerate(_read_lines(path), 1):
                line = raw.split("#", 1)[0].strip()
                if not line:
                    continue
                try:
                    lines.add(str(Requirement(line)))
                except InvalidRequirement as cause:
                    raise errors.SdkError(
                        f"{path}:{number}: {line!r} is not a requirement (PEP 508)"
                    ) from cause
    return tuple(sorted(lines))


def list_targets(artifacts: Iterable[Artifact]) -> tuple[str, ...]:
    """Return the gfx targets that artifacts exist for, in order of their numbers."""
    return sort_targets({a.target for a in artifacts if a.target})


def sort_targets(targets: Iterable[str]) -> tuple[str, ...]:
    """Order gfx targets as people do: ``gfx90a`` before ``gfx942`` before ``gfx1100``."""
    return tuple(sorted(set(targets), key=lambda target: (len(target), target)))


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as cause:
        raise errors.SdkError(
            f"{path} is not text in UTF-8", tip="the artifact is damaged; fetch it again"
        ) from cause


def list_files(base: Path) -> Iterator[str]:
    """Yield the files and links below a folder, relative to it (POSIX form), sorted by folder.

    Links to folders are not followed. SdkError when a folder cannot be read.
    """

    def refuse(fault: OSError) -> NoReturn:
        raise errors.SdkError(f"cannot read the folder {fault.filename}: {fault.strerror}") from fault

    for folder, folders, files in os.walk(base, onerror=refuse):
        folders.sort()
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted([*files, *links]):
            yield Path(folder, name).relative_to(base).as_posix()
