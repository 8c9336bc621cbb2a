"""Sets of patches: `git format-patch` files that checkout applies, before and after hipify.

A set is a folder ``patches/<project>/<line>/`` with ``base/`` (on upstream's commit) and
``hipified/`` (on what hipify made of it). Files of a submodule lie under its path in there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import DataError, UsageError

PATCH_STAGES = ("base", "hipified")
_SET_NAME = re.compile(r"\w[\w.+-]*\Z")
_LINE_VERSION = re.compile(r"v?(\d+\.\d+)(?:[.-].*)?\Z")


@dataclass(frozen=True)
class Patch:
    """One file: its name from the set's folder (with /), and its bytes."""

    name: str
    data: bytes


@dataclass(frozen=True)
class PatchSet:
    """A set as it was read: by submodule path (``""``: the root), in the order of application."""

    folder: Path
    base: Mapping[str, tuple[Patch, ...]]
    hipified: Mapping[str, tuple[Patch, ...]]

    @property
    def digest(self) -> str:
        """Return a SHA-256 over names and content; empty for a set without patches."""
        whole = hashlib.sha256()
        patches = self.list_patches()
        for patch in patches:
            name = patch.name.encode("utf-8", "surrogateescape")
            whole.update(b"%d %s%d " % (len(name), name, len(patch.data)) + patch.data)
        return whole.hexdigest() if patches else ""

    def list_patches(self) -> list[Patch]:
        """Return every patch, sorted by name."""
        patch_list = [
            p for stage in (self.base, self.hipified) for patches in stage.values() for p in patches
        ]
        return sorted(patch_list, key=lambda patch: patch.name)


def read_patch_set(folder: Path) -> PatchSet:
    """Read a set; an empty one where there is no folder.

    Raises DataError for anything in it that would not be applied (a wrong folder, a file of
    another kind): a patch that is left out by mistake must not go unseen. README files and
    names with a leading dot are nobody's patches.
    """
    stages: dict[str, dict[str, list[Patch]]] = {stage: {} for stage in PATCH_STAGES}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        relative = path.relative_to(folder)
        if path.is_dir() or path.name.startswith((".", "README")):
            continue
        if relative.parts[0] not in PATCH_STAGES or len(relative.parts) == 1:
            raise DataError(f"{path} is neither in base/ nor in hipified/ of its set", tip="move it there")
        if path.suffix != ".patch":
            raise DataError(
                f"{path} would not be applied: its name does not end in .patch",
                tip="rename it, or take it out of the set",
            )
        module = relative.parent.relative_to(relative.parts[0]).as_posix()
        patches = stages[relative.parts[0]].setdefault("" if module == "." else module, [])
        try:
            patches.append(Patch(relative.as_posix(), path.read_bytes()))
        except OSError as cause:
            raise DataError(
                f"{path} cannot be read", tip="put it right, or take it out of the set"
            ) from cause
    ordered = {
        stage: {module: tuple(sorted(group, key=lambda p: p.name)) for module, group in modules.items()}
        for stage, modules in stages.items()
    }
    return PatchSet(folder, ordered["base"], ordered["hipified"])


def list_lines(project: str, folder: Path) -> list[str]:
    """List the lines that have a set of a project in ``folder``."""
    sets_folder = folder / project
    if not sets_folder.is_dir():
        return []
    return sorted(entry.name for entry in sets_folder.iterdir() if entry.is_dir() and entry.name[0] != ".")


def match_line(ref: str, lines: list[str]) -> str | None:
    """Return the line, of those ``lines``, that a ref belongs to.

    ``release/2.9`` and ``v2.9.1-rc2`` are ``2.9``; other refs are lines of their own name.
    """
    short = re.sub(r"\Arefs/(heads|tags|remotes/origin)/", "", ref)
    last = short.rsplit("/", 1)[-1] if short.startswith("release/") else short
    version = _LINE_VERSION.match(last)
    candidates = [short, short.replace("/", "-"), last, *([version[1]] if version else [])]
    return next((name for name in candidates if name in lines), None)


def choose_patch_set(
    project: str, ref: str, folder: Path, *, name: str | None = None, line: str | None = None
) -> PatchSet | None:
    """Choose the set of a checkout: the one named, else the one of the line, else of the ref's line.

    ``folder`` holds a folder a project. ``None``: no set; that is said where the project has
    sets, but none for this line. Raises UsageError for a name that no set has.
    """
    lines = list_lines(project, folder)
    if name is not None:
        if name not in lines:
            names = ", ".join(lines) or "none"
            raise UsageError(
                f"{folder / project} has no patch set {name!r}",
                tip=f"it has: {names}; --no-patch does without",
            )
        return read_patch_set(folder / project / name)
    matched = match_line(ref if line is None else line, lines)
    if matched is None:
        if lines:
            log.log_note(
                f"no patches: {folder / project} has sets for {', '.join(lines)}, none for {line or ref}"
            )
        return None
    return read_patch_set(folder / project / matched)


def choose_patch_folder(project: str, folder: Path, *, name: str | None, made_with: str, ref: str) -> Path:
    """Return the folder of the set that a checkout's commits go to.

    The one named, else the one it was made with, else the ref's line (a commit has none). Raises
    UsageError where there is none, or the name is none of a folder.
    """
    lines = list_lines(project, folder)
    short = re.sub(r"\Arefs/(heads|tags)/", "", ref).removeprefix("release/").replace("/", "-")
    fallback = "" if re.fullmatch("[0-9a-f]{40}", ref) else short
    chosen = name if name is not None else made_with or match_line(ref, lines) or fallback
    if not chosen:
        raise UsageError(
            "there is no name for the patch set: the tree was not checked out from a branch or tag",
            tip="name it with --patchset, by the release line as a rule",
        )
    if not _SET_NAME.match(chosen):
        raise UsageError(
            f"{chosen!r} is not a name for a patch set",
            tip="use letters, digits, and . _ + - after the first",
        )
    return folder / project / chosen
