"""Which repository and ref a project is checked out from, and why.

An option goes before a pin in the torch checkout, a pin before the recipe's default. What
was chosen is always said, and so is a pin that was looked for and is not there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels import log
from rocm_wheels.errors import SourceError, UsageError
from rocm_wheels.model.project import Platform, Project, Source
from rocm_wheels.sources.pin_files import parse_commit, parse_version, read_text
from rocm_wheels.sources.related_commits import FILE_NAME, read_related_commits

_TIP = "check out torch first (--torch-dir says where it is), or name the commit with --repo-hashtag"


@dataclass(frozen=True)
class Pin:
    """A readable ``ref`` of a repository; ``commit`` is what it stood for (empty: not yet resolved)."""

    origin: str
    ref: str
    why: str
    commit: str = ""


def choose_pin(
    project: Project,
    *,
    platform: Platform = "linux",
    origin: str | None = None,
    ref: str | None = None,
    torch_dir: Path | None = None,
    release: bool = False,
    require_related_commit: bool = False,
) -> Pin:
    """Choose by option, pin, recipe; ``origin`` and ``ref`` are the options' values.

    A pin is a commit of a repository: a ref given by option sets it aside as a whole, an
    origin given by option alone is another place for the pinned commit. ``release``: the
    release branch that goes with the torch tree, instead of the pin. Raises SourceError when
    a pin is required and there is none, UsageError where there are no release branches,
    DataError for a file of pins with a mistake.
    """
    source = project.source.on(platform)
    recipe = f"recipe {project.name}.yaml{', windows' if source is not project.source else ''}"
    if ref is not None:
        if release:
            raise UsageError("--release and --repo-hashtag exclude each other", tip="give one of them")
        why = "options" if origin is not None else f"--repo-hashtag; origin: {recipe}"
        return Pin(origin or source.origin, ref, why)
    if release:
        pin = _release_branch(project, source, platform, torch_dir)
    else:
        found, missing = look_for_pin(source, torch_dir)
        if found is None and missing is not None and (require_related_commit or source.ref is None):
            raise SourceError(f"{project.name} must be pinned, and {missing}", tip=_TIP)
        if found is None and missing is not None:
            log.warn(f"{project.name} is not pinned: {missing}; the recipe's default {source.ref} is used")
        pin = found or Pin(source.origin, source.ref or "", recipe)
    return pin if origin is None else replace(pin, origin=origin, why=f"{pin.why}; origin: --gitrepo-origin")


def look_for_pin(source: Source, torch_dir: Path | None) -> tuple[Pin | None, str | None]:
    """Return the pin in a torch checkout, or why there is none; neither where the recipe knows no pin."""
    key = source.related_commits
    if key is None and not source.pin_files:
        return None, None
    if torch_dir is None:
        return None, "no torch checkout was named"
    missing = []
    if key is not None:
        path = torch_dir / FILE_NAME
        rows = read_related_commits(path) if os.path.lexists(path) else None
        if rows is not None and key in rows:
            row = rows[key]
            return Pin(row.origin, row.commit, f"{path} line {row.line}, branch {row.branch}"), None
        missing.append(
            f"there is no {path}"
            if rows is None
            else f"{path} has no row for {key} (it has {', '.join(sorted(rows)) or 'none at all'})"
        )
    for file in source.pin_files:
        path = torch_dir / file.file
        if os.path.lexists(path):
            commit = parse_commit(read_text(path), name=str(path))
            return Pin(file.origin or source.origin, commit, str(path)), None
        missing.append(f"no {file.file}" if missing else f"there is no {path}")
    return None, " and ".join(missing)


def _release_branch(project: Project, source: Source, platform: Platform, torch_dir: Path | None) -> Pin:
    """Return the release branch that a file of the torch checkout stands for."""
    release = source.release
    if release is None:
        raise UsageError(
            f"--release: the recipe of {project.name} names no release branches for {platform}",
            tip="leave it out, or name the branch with --repo-hashtag",
        )
    path = None if torch_dir is None else torch_dir / release.version_file
    if path is None or not os.path.lexists(path):
        raise SourceError(
            "--release: " + ("no torch checkout was named" if path is None else f"there is no {path}"),
            tip=_TIP,
        )
    major, minor = parse_version(read_text(path), name=str(path))
    return Pin(source.origin, release.ref.format(major=major, minor=minor), f"--release, {path}")
