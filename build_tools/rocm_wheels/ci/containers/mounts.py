"""Folders that a container sees, at the same paths as outside: what is written in a log is true in both."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import UsageError

# what an image is made of: a folder of ours in its place would hide it, and SELinux would label ours anew
_OF_THE_IMAGE = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr")
_NOT_WHOLE = ("opt", "run", "var")
_SOURCES = (Path("/usr/src"), Path("/usr/local/src"))


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine, and where it is inside. ``ours``: may be labelled for containers."""

    path: Path
    inside: Path
    read_only: bool = False
    ours: bool = True


def read_mounts(texts: Sequence[str]) -> tuple[Mount, ...]:
    """Read PATH, PATH:ro and PATH:INSIDE[:ro]. Raises UsageError for a path that is not here."""
    return tuple(_read(text) for text in texts)


def all_mounts(
    clone: Path | None, here: Path, cache: Path, given: Iterable[Mount], certificates: Iterable[Path]
) -> tuple[Mount, ...]:
    """Return every mount, outer folders first; what lies inside another one at the same place is left out.

    ``here`` is the folder the command runs in, with its work and output; ``clone`` the checkout of the tool.
    """
    wanted = [Mount(here, here), Mount(cache, cache)]
    if clone is not None:
        wanted.append(Mount(clone, clone))
    wanted += [Mount(one, one) for tree in (here, clone) if tree and (one := repository_of(tree))]
    by_place = {one.inside: one for one in wanted} | _by_place(given)
    for one in certificates:
        by_place.setdefault(one, Mount(one, one, read_only=True, ours=False))
    mounts = [check_mount(one) for one in sorted(by_place.values(), key=lambda one: len(one.inside.parts))]
    return tuple(one for n, one in enumerate(mounts) if not any(_holds(outer, one) for outer in mounts[:n]))


def _by_place(given: Iterable[Mount]) -> dict[Path, Mount]:
    """Return mounts by where they are inside. Raises UsageError for two that differ at one place."""
    found: dict[Path, Mount] = {}
    for one in given:
        other = found.setdefault(one.inside, one)
        if other != one:
            twice = f"{one.path} with ro and without"
            both = twice if other.path == one.path else f"{other.path} and {one.path}"
            raise UsageError(
                f"--mount: {both} would be at one place inside, {one.inside}",
                tip="give each a place of its own: PATH:INSIDE",
            )
    return found


def plain_path(text: str, what: str) -> Path:
    """Return a path of an option, absolute and without ``..``. Raises UsageError for ``~`` of nobody."""
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as nobody:
        user = text.partition("/")[0]
        raise UsageError(f"{what}: there is no home folder {user}", tip="give the whole path") from nobody
    return path.resolve() if ".." in path.parts else path  # behind a symbolic link .. is elsewhere


def repository_of(tree: Path) -> Path | None:
    """Return the repository of a `git worktree`, which is elsewhere; ``None`` where git needs no more.

    gitrepository-layout(5): .git is a file then, and names a folder whose ``commondir`` names the repository.
    """
    link = tree / ".git"
    if not link.is_file():
        return None
    said = link.read_text(encoding="utf-8", errors="surrogateescape").strip()
    own = tree / said.removeprefix("gitdir:").strip()
    common = own / "commondir"
    if not common.is_file():
        return own if own.is_dir() else None  # a submodule, or a repository elsewhere
    return Path(os.path.normpath(own / common.read_text(encoding="utf-8", errors="surrogateescape").strip()))


def check_mount(mount: Mount) -> Mount:
    """Return the mount. Raises UsageError for one that engines cannot take, or that hides the image."""
    for path in (mount.path, mount.inside):
        if ":" in str(path) or "\n" in str(path):
            raise UsageError(
                f"{str(path)!r} has a colon or a line break in it: engines cannot mount that",
                tip="use a folder with another name",
            )
    if (mount.path.is_dir() or (mount.ours and not mount.path.exists())) and _hides_the_image(mount.inside):
        tip = "mount another folder; commands run in the folder that you are in: change to another one"
        raise UsageError(f"{mount.inside} of the image would be hidden by a mount", tip=tip)
    return mount


def _hides_the_image(inside: Path) -> bool:
    top = inside.parts[1:2]
    if not top or (top[0] in _NOT_WHOLE and len(inside.parts) == 2):
        return True
    return top[0] in _OF_THE_IMAGE and not any(inside.is_relative_to(one) for one in _SOURCES)


def _read(text: str) -> Mount:
    words = text.split(":")
    read_only = len(words) > 1 and words[-1] in ("ro", "rw") and words.pop() == "ro"
    if len(words) > 2 or not all(words):
        raise UsageError(f"--mount {text}: this is none of PATH, PATH:ro, PATH:INSIDE, PATH:INSIDE:ro")
    path = plain_path(words[0], f"--mount {text}")
    if not path.exists():
        tip = "make it first: an engine would make it as root"
        raise UsageError(f"--mount {text}: there is no {path}", tip=tip)
    inside = Path(words[1]) if len(words) > 1 else path
    if not inside.is_absolute():
        raise UsageError(f"--mount {text}: {inside} is inside of the container, and no absolute path")
    return Mount(path, Path(os.path.normpath(inside)), read_only)


def _holds(outer: Mount, one: Mount) -> bool:
    """Tell whether a mount is already to be seen through an outer one, with the same rights."""
    if not one.inside.is_relative_to(outer.inside) or outer.read_only != one.read_only:
        return False
    return outer.path / one.inside.relative_to(outer.inside) == one.path and outer.ours == one.ours
