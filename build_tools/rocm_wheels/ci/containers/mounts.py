"""Folders that a container sees, at the same paths as outside: what is written in a log is true in both."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import UsageError

# what an image is made of: a folder of ours in its place would hide it, and SELinux would label ours anew
_IMAGE_FOLDERS = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr")
_IMAGE_PARENTS = ("opt", "run", "var")
_SOURCE_FOLDERS = (Path("/usr/src"), Path("/usr/local/src"))


@dataclass(frozen=True)
class ContainerMount:
    """A file or folder of this machine, and where it is inside. ``ours``: may be labelled for containers."""

    path: Path
    inside: Path
    read_only: bool = False
    ours: bool = True


def parse_mounts(texts: Sequence[str]) -> tuple[ContainerMount, ...]:
    """Read PATH, PATH:ro and PATH:INSIDE[:ro]. Raises UsageError for a path that is not here."""
    return tuple(_parse_mount(text) for text in texts)


def collect_mounts(
    clone: Path | None, here: Path, cache: Path, extra: Iterable[ContainerMount], certificates: Iterable[Path]
) -> tuple[ContainerMount, ...]:
    """Return every mount, outer folders first; what lies inside another one at the same place is left out.

    ``here`` is the folder the command runs in, with its work and output; ``clone`` the checkout of the tool.
    """
    own_mounts = [ContainerMount(here, here), ContainerMount(cache, cache)]
    if clone is not None:
        own_mounts.append(ContainerMount(clone, clone))
    own_mounts += [
        ContainerMount(entry, entry)
        for tree in (here, clone)
        if tree and (entry := find_worktree_repository(tree))
    ]
    by_place = {entry.inside: entry for entry in own_mounts} | _index_by_place(extra)
    for entry in certificates:
        by_place.setdefault(entry, ContainerMount(entry, entry, read_only=True, ours=False))
    mounts = [
        check_mount(entry) for entry in sorted(by_place.values(), key=lambda entry: len(entry.inside.parts))
    ]
    return tuple(
        entry
        for n, entry in enumerate(mounts)
        if not any(_covers_mount(outer, entry) for outer in mounts[:n])
    )


def _index_by_place(extra: Iterable[ContainerMount]) -> dict[Path, ContainerMount]:
    """Return mounts by where they are inside. Raises UsageError for two that differ at one place."""
    by_place: dict[Path, ContainerMount] = {}
    for mount in extra:
        other = by_place.setdefault(mount.inside, mount)
        if other != mount:
            twice = f"{mount.path} with ro and without"
            both = twice if other.path == mount.path else f"{other.path} and {mount.path}"
            raise UsageError(
                f"--mount: {both} would be at one place inside, {mount.inside}",
                tip="give each a place of its own: PATH:INSIDE",
            )
    return by_place


def expand_path(text: str, option: str) -> Path:
    """Return a path of an option, absolute and without ``..``. Raises UsageError for ``~`` of nobody."""
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as nobody:
        user = text.partition("/")[0]
        raise UsageError(f"{option}: there is no home folder {user}", tip="give the whole path") from nobody
    return path.resolve() if ".." in path.parts else path  # behind a symbolic link .. is elsewhere


def find_worktree_repository(tree: Path) -> Path | None:
    """Return the repository of a `git worktree`, which is elsewhere; ``None`` where git needs no more.

    gitrepository-layout(5): .git is a file then, and names a folder whose ``commondir`` names the repository.
    """
    link = tree / ".git"
    if not link.is_file():
        return None
    text = link.read_text(encoding="utf-8", errors="surrogateescape").strip()
    git_dir = tree / text.removeprefix("gitdir:").strip()
    common = git_dir / "commondir"
    if not common.is_file():
        return git_dir if git_dir.is_dir() else None  # a submodule, or a repository elsewhere
    return Path(
        os.path.normpath(git_dir / common.read_text(encoding="utf-8", errors="surrogateescape").strip())
    )


def check_mount(mount: ContainerMount) -> ContainerMount:
    """Return the mount. Raises UsageError for one that engines cannot take, or that hides the image."""
    for path in (mount.path, mount.inside):
        if ":" in str(path) or "\n" in str(path):
            raise UsageError(
                f"{str(path)!r} has a colon or a line break in it: engines cannot mount that",
                tip="use a folder with another name",
            )
    if (mount.path.is_dir() or (mount.ours and not mount.path.exists())) and _hides_image(mount.inside):
        tip = "mount another folder; commands run in the folder that you are in: change to another one"
        raise UsageError(f"{mount.inside} of the image would be hidden by a mount", tip=tip)
    return mount


def _hides_image(inside: Path) -> bool:
    top = inside.parts[1:2]
    if not top or (top[0] in _IMAGE_PARENTS and len(inside.parts) == 2):
        return True
    return top[0] in _IMAGE_FOLDERS and not any(inside.is_relative_to(folder) for folder in _SOURCE_FOLDERS)


def _parse_mount(text: str) -> ContainerMount:
    words = text.split(":")
    read_only = len(words) > 1 and words[-1] in ("ro", "rw") and words.pop() == "ro"
    if len(words) > 2 or not all(words):
        raise UsageError(f"--mount {text}: this is none of PATH, PATH:ro, PATH:INSIDE, PATH:INSIDE:ro")
    path = expand_path(words[0], f"--mount {text}")
    if not path.exists():
        tip = "make it first: an engine would make it as root"
        raise UsageError(f"--mount {text}: there is no {path}", tip=tip)
    inside = Path(words[1]) if len(words) > 1 else path
    if not inside.is_absolute():
        raise UsageError(f"--mount {text}: {inside} is inside of the container, and no absolute path")
    return ContainerMount(path, Path(os.path.normpath(inside)), read_only)


def _covers_mount(outer: ContainerMount, inner: ContainerMount) -> bool:
    """Tell whether a mount is already to be seen through an outer one, with the same rights."""
    if not inner.inside.is_relative_to(outer.inside) or outer.read_only != inner.read_only:
        return False
    return outer.path / inner.inside.relative_to(outer.inside) == inner.path and outer.ours == inner.ours
